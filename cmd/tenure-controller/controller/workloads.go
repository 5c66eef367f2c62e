package controller

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tenure-ipam/tenure/claims/workloads"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// workloads has the manager look after the claims of virtual machines, and make the claims of
// StatefulSets and of other pods that ask for some. Without the right to see StatefulSets it leaves
// these alone: the cache would never be filled.
func (c *Controller) workloads(ctx context.Context, mgr manager.Manager, direct client.Client, live *kube.API, catalog *networks.Catalog) error {
	machines := &workloads.MachineClaims{Cache: mgr.GetCache(), Live: direct, Log: c.log.With("part", "machines")}
	if err := machines.Setup(mgr); err != nil {
		return err //nolint:wrapcheck // says what it is about
	}
	if err := c.podClaims(mgr, direct, catalog); err != nil || !c.cfg.StatefulSetClaims {
		return err
	}
	ok, err := live.MayList(ctx, "apps", "statefulsets")
	if err != nil {
		return err //nolint:wrapcheck // likewise
	}
	if !ok {
		c.log.WarnContext(ctx, "no claims are made for StatefulSets: the role tenure-controller-workloads is not bound to this controller")
		return nil
	}
	if err := workloads.Index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err //nolint:wrapcheck // likewise
	}
	r := &workloads.Reconciler{
		Cache: mgr.GetCache(), Live: direct, Networks: catalog, Events: mgr.GetEventRecorder(name), Log: c.log.With("part", "workloads"),
	}
	return r.Setup(mgr) //nolint:wrapcheck // likewise
}

// podClaims has the manager make the claims that pods need. Their metadata has a cache of its own:
// that of the manager has what others read of pods, where somebody does.
func (c *Controller) podClaims(mgr manager.Manager, direct client.Client, catalog *networks.Catalog) error {
	options := cacheOptions(c.cfg)
	options.Scheme, options.Mapper, options.ByObject = mgr.GetScheme(), mgr.GetRESTMapper(), nil
	options.DefaultTransform = func(o any) (any, error) {
		if pod, ok := o.(*metav1.PartialObjectMetadata); ok {
			workloads.CondensePod(pod)
		}
		return o, nil
	}
	pods, err := cache.New(mgr.GetConfig(), options)
	if err != nil {
		return fmt.Errorf("cache of pods: %w", err)
	}
	if err := mgr.Add(pods); err != nil {
		return fmt.Errorf("cache of pods: %w", err)
	}
	p := &workloads.PodClaims{
		Pods: pods, Cache: mgr.GetCache(), Live: direct, Networks: catalog, Events: mgr.GetEventRecorder(name),
		Log: c.log.With("part", "workloads"), ByName: c.cfg.StatefulSetClaims,
	}
	return p.Setup(mgr, pods) //nolint:wrapcheck // says what it is about
}

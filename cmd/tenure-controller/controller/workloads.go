package controller

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tenure-ipam/tenure/claims/workloads"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// workloads has the manager look after the claims of virtual machines that have lost their
// owner, and make the claims of StatefulSets. Without the right to see StatefulSets it leaves
// them alone: the caches would never be filled.
func (c *Controller) workloads(ctx context.Context, mgr manager.Manager, direct client.Client, live *kube.API, catalog *networks.Catalog) error {
	machines := &workloads.MachineClaims{Cache: mgr.GetCache(), Live: direct, Log: c.log.With("part", "machines")}
	if err := machines.Setup(mgr); err != nil || !c.cfg.StatefulSetClaims {
		return err //nolint:wrapcheck // says what it is about
	}
	ok, err := live.MayList(ctx, "apps", "statefulsets")
	if err != nil {
		return err //nolint:wrapcheck // says what it is about
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

package controller

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tenure-ipam/tenure/attach/controller/endpoints"
	"github.com/tenure-ipam/tenure/ipam/controller/trigger"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// namesWorkers is how many Services are worked on at once.
const namesWorkers = 8

// names has the manager publish the addresses that pods have on secondary networks for Services
// that ask for it. Without the right to see EndpointSlices it does not: the cache would never be
// filled. That cache is apart: of pods it has what nobody else reads.
func (c *Controller) names(ctx context.Context, mgr manager.Manager, live *kube.API) error {
	if !c.cfg.Names {
		return nil
	}
	ok, err := live.MayList(ctx, "discovery.k8s.io", "endpointslices")
	if err != nil {
		return err //nolint:wrapcheck // says what it is about
	}
	if !ok {
		c.log.WarnContext(ctx, "no addresses are published for Services: the role tenure-controller-names is not bound to this controller")
		return nil
	}
	options := cacheOptions(c.cfg)
	options.Scheme, options.Mapper, options.ByObject = mgr.GetScheme(), mgr.GetRESTMapper(), endpoints.ByObject()
	own, err := cache.New(mgr.GetConfig(), options)
	if err != nil {
		return fmt.Errorf("cache of Services: %w", err)
	}
	if err := mgr.Add(own); err != nil {
		return fmt.Errorf("cache of Services: %w", err)
	}
	rc := rest.CopyConfig(c.rest)
	rc.Timeout = kube.CallTimeout
	writes, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	r := endpoints.New(endpoints.Config{
		Own: own, Cache: mgr.GetCache(), Live: writes, Events: mgr.GetEventRecorder(name), Log: c.log.With("part", "names"), PodNetworks: c.cfg.MultiNetwork,
	})
	return r.Setup(ctx, mgr, own, trigger.Workers(namesWorkers)) //nolint:wrapcheck // likewise
}

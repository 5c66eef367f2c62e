package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/controller/podnetworks"
	"github.com/tenure-ipam/tenure/claims"
	"github.com/tenure-ipam/tenure/claims/vifs"
	"github.com/tenure-ipam/tenure/claims/workloads"
	"github.com/tenure-ipam/tenure/ipam/controller/advertise"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/controller/looker"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/controller/pools"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// cacheOptions keeps the caches lean: with 100,000 claims and 30,000 leases what
// nobody here reads would be most of them. They hear soon after an outage.
func cacheOptions(cfg Config) cache.Options {
	strip := cache.TransformStripManagedFields()
	return cache.Options{
		NewInformer: func(lw toolscache.ListerWatcher, o runtime.Object, resync time.Duration, by toolscache.Indexers) toolscache.SharedIndexInformer {
			return toolscache.NewSharedIndexInformer(kube.Persist(lw, kube.ControllerPause), o, resync, by)
		},
		DefaultTransform: strip,
		ByObject: map[client.Object]cache.ByObject{
			&coordination.Lease{}:              {Namespaces: map[string]cache.Config{cfg.RegistrationNamespace: {}}},
			&nad.NetworkAttachmentDefinition{}: {Transform: looker.KeepChanged},
			&corev1.Node{}: {Transform: func(o any) (any, error) {
				if n, ok := o.(*corev1.Node); ok {
					n.Annotations = nil
					advertise.Condense(n)
				}
				return strip(o)
			}},
			// Nobody has pods cached where neither PodNetworks nor VIFs are served.
			&corev1.Pod{}: {Transform: func(o any) (any, error) {
				if p, ok := o.(*corev1.Pod); ok {
					condensePod(p, cfg.VIFs)
				}
				return strip(o)
			}},
			&v1alpha1.IPLease{}: {Transform: func(o any) (any, error) {
				if l, ok := o.(*v1alpha1.IPLease); ok {
					pools.Condense(l)
				}
				return strip(o)
			}},
			&ipamclaims.IPAMClaim{}: {Transform: func(o any) (any, error) {
				if c, ok := o.(*ipamclaims.IPAMClaim); ok {
					workloads.CondenseClaim(c)
				}
				return strip(o)
			}},
			&appsv1.StatefulSet{}: {Transform: func(o any) (any, error) {
				if s, ok := o.(*appsv1.StatefulSet); ok {
					workloads.Condense(s)
				}
				return strip(o)
			}},
		},
	}
}

// index adds what the cache is searched by.
func index(ctx context.Context, mgr manager.Manager, catalog *networks.Catalog) error {
	return errors.Join(
		catalog.Index(ctx, mgr.GetFieldIndexer()),
		claims.IndexClaims(ctx, mgr.GetFieldIndexer()),
		pools.IndexLeases(ctx, mgr.GetFieldIndexer()),
		advertise.Index(ctx, mgr.GetFieldIndexer()),
	)
}

// condensePod drops of a pod what nobody reads. Where VIFs are served, more of it is read.
func condensePod(p *corev1.Pod, served bool) {
	few, hostNetwork := vifs.Few(p.Annotations), p.Spec.HostNetwork
	podnetworks.CondensePod(p)
	if !served || len(few) == 0 {
		return
	}
	maps.Copy(few, p.Annotations)
	p.Annotations, p.Spec.HostNetwork = few, hostNetwork
}

// feed tells the broker what the caches see of pools and leases.
func feed(ctx context.Context, from cache.Informers, b *grants.Broker, shapes *pools.Shapes, log *slog.Logger) error {
	leases := handlers(func(l *v1alpha1.IPLease) {
		lease, err := kube.LeaseOf(l)
		if err != nil {
			log.ErrorContext(ctx, "lease cannot be read", "lease", l.Name, "error", err)
			return
		}
		b.Observe(lease)
	}, func(l *v1alpha1.IPLease) { b.Forget(l.Name, protocol.UID(l.UID)) })
	poolHandlers := handlers(func(p *v1alpha1.IPPool) {
		b.SetPool(PoolState(p, shapes))
	}, func(p *v1alpha1.IPPool) {
		b.DropPool(protocol.PoolName(p.Name), protocol.UID(p.UID))
		shapes.Forget(p.UID)
	})
	for _, f := range []struct {
		of client.Object
		to toolscache.ResourceEventHandler
	}{{&v1alpha1.IPLease{}, leases}, {&v1alpha1.IPPool{}, poolHandlers}} {
		informer, err := from.GetInformer(ctx, f.of)
		if err != nil {
			return fmt.Errorf("watch for the broker: %w", err)
		}
		if _, err := informer.AddEventHandler(f.to); err != nil {
			return fmt.Errorf("watch for the broker: %w", err)
		}
	}
	return nil
}

// PoolState returns what the broker has to know of a pool.
func PoolState(p *v1alpha1.IPPool, shapes *pools.Shapes) grants.PoolState {
	shape, fault := shapes.Of(p)
	pressure, _ := allocator.ParsePressure(string(p.Status.Pressure)) // low, where none is decided
	return grants.PoolState{
		Pool: kube.PoolOf(p), Generation: p.Generation, Shape: shape, Fault: fault, Pressure: pressure, Restored: pools.Restored(p),
		Unopened: p.Status.Opening == "", Stopped: p.Spec.Allocation == v1alpha1.AllocationStopped, GivenAway: kube.GivenAway(p), Sourced: p.Spec.Source != nil,
		Unpooled: kube.Unpooled(p), ReuseAfter: kube.ReuseAfterOf(p),
	}
}

// cachedRegistrations returns all registrations, as the cache has them.
func cachedRegistrations(ctx context.Context, from client.Reader, namespace string) ([]protocol.Registration, error) {
	var list coordination.LeaseList
	if err := from.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list registrations: %w", err)
	}
	var regs []protocol.Registration
	for i := range list.Items {
		if kube.IsRegistration(&list.Items[i]) {
			s, _ := kube.RegistrationOf(&list.Items[i]) // of a garbled one what can be read
			regs = append(regs, s)
		}
	}
	return regs, nil
}

// handlers calls there with every object as it is now, and gone with the last of
// one that was deleted.
func handlers[T any](there, gone func(T)) toolscache.ResourceEventHandler {
	call := func(f func(T), o any) {
		if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = last.Obj
		}
		if t, ok := o.(T); ok {
			f(t)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { call(there, o) },
		UpdateFunc: func(_, o any) { call(there, o) },
		DeleteFunc: func(o any) { call(gone, o) },
	}
}

// domainPools returns what lists the pools of the default domain in a cache.
func domainPools(from client.Reader) func(context.Context) ([]poolspec.DomainPool, error) {
	return func(ctx context.Context) ([]poolspec.DomainPool, error) {
		var list v1alpha1.IPPoolList
		if err := from.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list pools: %w", err)
		}
		return kube.DomainPools(list.Items), nil
	}
}

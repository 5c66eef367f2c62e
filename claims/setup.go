package claims

import (
	"context"
	"fmt"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/controller/trigger"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// unsettled is the index, by network, of claims that wait: they have no addresses, or their
// condition is not True. A change of the network concerns them.
const unsettled = "tenure.unsettled"

// waiting is the index of the same claims, all under one name. A change of a pool's rule or of a
// namespace concerns them: it may let them use the pool, or forbid it.
const waiting = "tenure.waiting"

// Waits reports whether a claim is in the indices of those that wait.
func Waits(claim *ipamclaims.IPAMClaim) bool {
	return len(claim.Status.IPs) == 0 || !meta.IsStatusConditionTrue(claim.Status.Conditions, kube.ConditionIPsAllocated)
}

// IndexClaims adds the index of claims that the reconciler needs. Call it before
// the cache starts.
func IndexClaims(ctx context.Context, to client.FieldIndexer) error {
	for name, value := range map[string]func(*ipamclaims.IPAMClaim) string{
		unsettled: func(c *ipamclaims.IPAMClaim) string { return c.Spec.Network },
		waiting:   func(*ipamclaims.IPAMClaim) string { return waiting },
	} {
		err := to.IndexField(ctx, &ipamclaims.IPAMClaim{}, name, func(o client.Object) []string {
			if claim := o.(*ipamclaims.IPAMClaim); Waits(claim) {
				return []string{value(claim)}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("index claims by %s: %w", name, err)
		}
	}
	return nil
}

// first is the source that starts changed and fires it for each claim that grants name: a
// claim that is gone sends no event.
func (r *Reconciler) first(changed *trigger.Source) source.Source {
	return changed.First(func(context.Context) error {
		for _, key := range r.Broker.Claims() {
			changed.Fire(key.Namespace, key.Name)
		}
		return nil
	})
}

// Setup has the manager run r with this many workers, for what its watches tell and changed
// fires.
func (r *Reconciler) Setup(mgr ctrl.Manager, catalog *networks.Catalog, changed *trigger.Source, workers int) error {
	err := trigger.Add(ctrl.NewControllerManagedBy(mgr).Named("claims"), r.Watches()).
		Watches(&nad.NetworkAttachmentDefinition{}, r.ofDefinition(catalog)).
		WatchesMetadata(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.ofNamespace), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		WatchesRawSource(r.first(changed)).
		WithOptions(trigger.Workers(workers)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up claims: %w", err)
	}
	return nil
}

// Watches returns what wakes r, but for definitions and namespaces.
func (r *Reconciler) Watches() []trigger.Watch {
	return []trigger.Watch{
		{Of: &ipamclaims.IPAMClaim{}, To: &handler.EnqueueRequestForObject{}},
		{Of: &v1alpha1.IPSubLease{}, To: handler.EnqueueRequestsFromMapFunc(ofUse)},
		{Of: &v1alpha1.IPPool{}, To: handler.EnqueueRequestsFromMapFunc(r.ofRule), If: predicate.GenerationChangedPredicate{}},
	}
}

// ofUse maps a use to its claim.
func ofUse(_ context.Context, o client.Object) []reconcile.Request {
	use := o.(*v1alpha1.IPSubLease).Spec.Use
	if use == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: use.Claim.Namespace, Name: use.Claim.Name}}}
}

// ofRule maps a pool to the claims that wait: its rule may be another now.
func (r *Reconciler) ofRule(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.waiting(ctx)
}

// ofNamespace maps a namespace to its claims that wait.
func (r *Reconciler) ofNamespace(ctx context.Context, o client.Object) []reconcile.Request {
	return r.waiting(ctx, client.InNamespace(o.GetName()))
}

func (r *Reconciler) waiting(ctx context.Context, where ...client.ListOption) []reconcile.Request {
	return trigger.Listed(ctx, r.Cache, r.Log, &ipamclaims.IPAMClaimList{}, append(where, client.MatchingFields{waiting: waiting})...)
}

// ofDefinition enqueues the claims that wait for a network which a definition has,
// or had.
func (r *Reconciler) ofDefinition(catalog *networks.Catalog) handler.EventHandler {
	add := func(ctx context.Context, q trigger.Queue, network string) {
		for _, claim := range trigger.Listed(ctx, r.Cache, r.Log, &ipamclaims.IPAMClaimList{}, client.MatchingFields{unsettled: network}) {
			q.Add(claim)
		}
	}
	of := func(o client.Object) string { return catalog.Of(o.(*nad.NetworkAttachmentDefinition)).Name }
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q trigger.Queue) { add(ctx, q, of(e.Object)) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q trigger.Queue) {
			was, is := of(e.ObjectOld), of(e.ObjectNew)
			add(ctx, q, is)
			if was != is {
				add(ctx, q, was)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q trigger.Queue) {
			add(ctx, q, catalog.Last(e.Object.(*nad.NetworkAttachmentDefinition)).Name)
		},
	}
}

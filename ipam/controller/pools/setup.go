package pools

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	coordination "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/controller/trigger"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// leasesByPool is the index of leases in the cache.
const leasesByPool = "spec.pool"

// gather is how long a pool's lease events are gathered before the pool is looked
// at: one look costs a step for each of its leases.
const gather = 500 * time.Millisecond

// IndexLeases adds the index of leases that the reconcilers need. Call it before
// the cache starts.
func IndexLeases(ctx context.Context, to client.FieldIndexer) error {
	err := to.IndexField(ctx, &v1alpha1.IPLease{}, leasesByPool, func(o client.Object) []string {
		return []string{o.(*v1alpha1.IPLease).Spec.Pool}
	})
	if err != nil {
		return fmt.Errorf("index leases: %w", err)
	}
	return nil
}

// Setup has the manager run r.
func (r *Reconciler) Setup(mgr ctrl.Manager, catalog *networks.Catalog) error {
	err := trigger.Add(ctrl.NewControllerManagedBy(mgr).Named("pools"), r.Watches()).
		Watches(&nad.NetworkAttachmentDefinition{}, ofDefinition(catalog, r.poolsOf(catalog))).
		WatchesRawSource(r.Changed).
		WithOptions(trigger.Workers(4)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up pools: %w", err)
	}
	return nil
}

// Watches returns what wakes r, but for definitions.
func (r *Reconciler) Watches() []trigger.Watch {
	return []trigger.Watch{
		{Of: &v1alpha1.IPPool{}, To: &handler.EnqueueRequestForObject{}},
		// A pool that overlaps another concerns both.
		{Of: &v1alpha1.IPPool{}, To: handler.EnqueueRequestsFromMapFunc(r.others), If: predicate.GenerationChangedPredicate{}},
		{Of: &v1alpha1.IPLease{}, To: ofLease(true)},
		{Of: &v1alpha1.IPReservation{}, To: ofStranger()},
		{Of: &coordination.Lease{}, To: r.ofRegistration()},
	}
}

// others returns a request for every pool but o, which has another spec, has come or gone.
func (r *Reconciler) others(ctx context.Context, o client.Object) []reconcile.Request {
	return slices.DeleteFunc(r.all(ctx), func(q reconcile.Request) bool { return q.Name == o.GetName() })
}

// all returns a request for every pool.
func (r *Reconciler) all(ctx context.Context) []reconcile.Request {
	return trigger.Listed(ctx, r.Cache, r.Log, &v1alpha1.IPPoolList{})
}

// ofRegistration notes what registrations say, and enqueues every pool when one says something
// else of a restored API server.
func (r *Reconciler) ofRegistration() handler.EventHandler {
	hear := func(ctx context.Context, q trigger.Queue, o client.Object) {
		lease := o.(*coordination.Lease)
		if !kube.IsRegistration(lease) {
			r.Deregister(protocol.NodeName(lease.Name), protocol.UID(lease.UID)) // what it was before
			return
		}
		reg, err := kube.RegistrationOf(lease)
		if err != nil { // the agent that it names is waited for all the same
			r.Log.ErrorContext(ctx, "registration is garbled", "error", err)
		}
		if !r.Hear(reg) {
			return
		}
		for _, pool := range r.all(ctx) {
			q.AddAfter(pool, gather)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q trigger.Queue) { hear(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q trigger.Queue) { hear(ctx, q, e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ trigger.Queue) {
			r.Deregister(protocol.NodeName(e.Object.GetName()), protocol.UID(e.Object.GetUID()))
		},
	}
}

// Hear notes a registration as a watch shows it. It reports whether that says something else
// of a restored API server than before: then every pool is to be looked at.
func (r *Reconciler) Hear(reg protocol.Registration) (news bool) { return r.regs.observe(reg, r.Now()) }

// Deregister notes that a node's registration of that UID is gone.
func (r *Reconciler) Deregister(node protocol.NodeName, uid protocol.UID) { r.regs.forget(node, uid) }

// meet reads once, live, what the registrations say. Watches may be behind, and what was said
// before this controller led must be known before a pool is opened, and anything of one granted or
// freed.
func (r *Reconciler) meet(ctx context.Context) error {
	if r.met.Load() {
		return nil
	}
	regs, err := r.Live.Registrations(ctx)
	if err != nil {
		return err //nolint:wrapcheck // says what it is about
	}
	news := false
	for _, s := range regs {
		news = r.regs.observeLive(s, r.Now()) || news
	}
	r.met.Store(true)
	if news { // another look may have been under way, and the watch tells nothing new
		for _, pool := range r.all(ctx) {
			r.Changed.Fire("", pool.Name)
		}
	}
	return nil
}

// ofLease enqueues the pool of a lease that comes, goes, or has other holders and
// grants; with all false, only of one that goes.
func ofLease(all bool) handler.EventHandler {
	add := func(q trigger.Queue, o client.Object) {
		q.AddAfter(request(o.(*v1alpha1.IPLease).Spec.Pool), gather)
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q trigger.Queue) {
			if all {
				add(q, e.Object)
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q trigger.Queue) {
			was, is := e.ObjectOld.(*v1alpha1.IPLease), e.ObjectNew.(*v1alpha1.IPLease)
			if all && (was.Spec.Holder != is.Spec.Holder || len(was.Spec.Grants) != len(is.Spec.Grants)) {
				add(q, e.ObjectNew)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q trigger.Queue) { add(q, e.Object) },
	}
}

// implicitPools returns the names of the implicit pools that a network describes, or that of the
// domain whose pools have its ranges.
func implicitPools(_ context.Context, n networks.Network) []string {
	if n.Unnamed() {
		return []string{poolspec.DefaultDomain}
	}
	return slices.Collect(maps.Keys(n.ImplicitPools()))
}

// poolsOf returns the names of the pools of a network; it finds those of ranges without a name.
func (r *Reconciler) poolsOf(catalog *networks.Catalog) func(context.Context, networks.Network) []string {
	return func(ctx context.Context, n networks.Network) []string {
		if n.Unnamed() {
			pools, err := catalog.DomainPools(ctx)
			if err != nil {
				r.Log.ErrorContext(ctx, "pools cannot be listed", "error", err)
			}
			n = n.Place(pools)
		}
		return n.Pools()
	}
}

// ofDefinition enqueues the pools that a definition has, or had, to do with.
func ofDefinition(catalog *networks.Catalog, poolsOf func(context.Context, networks.Network) []string) handler.EventHandler {
	add := func(ctx context.Context, q trigger.Queue, all ...networks.Network) {
		var names []string
		for _, n := range all {
			names = append(names, poolsOf(ctx, n)...)
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			q.Add(request(name))
		}
	}
	of := func(o client.Object) networks.Network { return catalog.Of(o.(*nad.NetworkAttachmentDefinition)) }
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q trigger.Queue) { add(ctx, q, of(e.Object)) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q trigger.Queue) {
			add(ctx, q, of(e.ObjectOld), of(e.ObjectNew))
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q trigger.Queue) {
			add(ctx, q, catalog.Last(e.Object.(*nad.NetworkAttachmentDefinition)))
		},
	}
}

// Setup has the manager run r.
func (r *Implicit) Setup(mgr ctrl.Manager, catalog *networks.Catalog) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("implicit-pools").
		Watches(&nad.NetworkAttachmentDefinition{}, ofDefinition(catalog, implicitPools)).
		Watches(&nad.NetworkAttachmentDefinition{}, handler.Funcs{DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ trigger.Queue) {
			r.reported.Forget(client.ObjectKeyFromObject(e.Object))
		}}).
		Watches(&v1alpha1.IPPool{}, handler.EnqueueRequestsFromMapFunc(itsDomain), builder.WithPredicates(predicate.Or[client.Object](
			predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&v1alpha1.IPLease{}, ofLease(false)).
		WithOptions(trigger.Workers(2)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up implicit pools: %w", err)
	}
	return nil
}

// itsDomain maps a pool to a request for it, or for all of its domain.
func itsDomain(_ context.Context, o client.Object) []reconcile.Request {
	if poolspec.InDefaultDomain(o.GetName(), o.(*v1alpha1.IPPool).Spec.Domain) {
		return []reconcile.Request{request(poolspec.DefaultDomain)}
	}
	return []reconcile.Request{request(o.GetName())}
}

func request(pool string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: pool}}
}

package advertise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/pools"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

const (
	// gather is how long what happens to a pool is gathered before the pool is looked at: one look
	// costs a step for each node.
	gather = time.Second
	// settle is how long after a node offers less others are not offered more: by then the
	// scheduler has seen it.
	settle = 5 * time.Second
	// recheck is how often a pool is looked at of which nothing is heard: silence, too, puts
	// addresses out of reach.
	recheck = time.Minute
	// batch is how many Nodes one look writes. Then the pool is looked at anew.
	batch = 200
)

// Rooms says what pools have left: a [pools.Reconciler].
type Rooms interface {
	// Room returns what a pool has left; not ok is a pool whose spec has a fault.
	Room(ctx context.Context, pool *v1alpha1.IPPool) (room pools.Room, ok bool, err error)
}

// Reconciler has Nodes publish what pools have. Make one with [New].
type Reconciler struct {
	// cache has pools, leases, Nodes (condensed by [Condense], indexed by [Index]), and the
	// registrations in namespace.
	cache     client.Reader
	namespace string
	write     client.Client
	rooms     Rooms
	watch     *Watch
	pods      *Pods
	limit     flowcontrol.RateLimiter
	log       *slog.Logger
	now       func() time.Time

	mu    sync.Mutex
	looks map[string]look // guarded by mu; of the pools that are advertised, by name
}

// look is when a pool was looked at last, and when that last had a node offer less.
type look struct{ at, lowered time.Time }

// Config is what a [Reconciler] works with.
type Config struct {
	Cache client.Reader
	// RegistrationNamespace is where the registrations of nodes are.
	RegistrationNamespace string
	Write                 client.Client
	Rooms                 Rooms
	Watch                 *Watch
	Log                   *slog.Logger
	Now                   func() time.Time
}

// New returns a reconciler, which writes a hundred Nodes a second at most.
func New(c Config) *Reconciler {
	return &Reconciler{
		cache: c.Cache, namespace: c.RegistrationNamespace, write: c.Write, rooms: c.Rooms, watch: c.Watch, pods: c.Watch.pods,
		limit: flowcontrol.NewTokenBucketRateLimiter(100, batch), log: c.Log, now: c.Now, looks: map[string]look{},
	}
}

// Reconcile looks at one pool, which may be gone.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var pool v1alpha1.IPPool
	found, err := kube.Read(ctx, r.cache, req.NamespacedName, &pool)
	if err != nil {
		return reconcile.Result{}, err //nolint:wrapcheck // says what it is about
	}
	if !found || !pool.Spec.Advertise || pool.DeletionTimestamp != nil {
		r.forget(req.Name)
		err := r.withdraw(ctx, req.Name)
		if found && err == nil {
			err = r.say(ctx, &pool, nil)
		}
		return reconcile.Result{}, err
	}
	r.watch.Want()
	last := r.last(req.Name)
	if early := gather - r.now().Sub(last.at); early > 0 && early <= gather {
		return reconcile.Result{RequeueAfter: early}, nil
	}
	if closed(&pool) {
		return reconcile.Result{RequeueAfter: recheck}, errors.Join(r.withdraw(ctx, req.Name), r.say(ctx, &pool, notOpen(&pool)))
	}
	return r.publish(ctx, &pool, last)
}

// closed reports whether a pool gives no addresses.
func closed(pool *v1alpha1.IPPool) bool {
	return pool.Status.Leasing != v1alpha1.LeasingOpen || pool.Spec.Allocation == v1alpha1.AllocationStopped
}

// last returns the last look at a pool, and notes that the pool is advertised.
func (r *Reconciler) last(pool string) look {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.looks[pool]
	r.looks[pool] = last
	return last
}

func (r *Reconciler) note(pool string, l look) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looks[pool] = l
}

// forget drops what is remembered of a pool that is not advertised.
func (r *Reconciler) forget(pool string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.looks, pool)
}

// publish has nodes publish what an open pool has.
func (r *Reconciler) publish(ctx context.Context, pool *v1alpha1.IPPool, last look) (reconcile.Result, error) {
	room, ok, err := r.rooms.Room(ctx, pool)
	if err != nil || !ok { // where the spec has a fault, what was published stays until it is repaired
		return reconcile.Result{RequeueAfter: recheck}, err //nolint:wrapcheck // says what it is about
	}
	a, ok := r.pods.asked(pool.Name, room.Claims)
	if !ok {
		return reconcile.Result{RequeueAfter: gather}, nil
	}
	nodes, err := r.nodes(ctx, pool.Name, room.Parts, a)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := r.now()
	var p planned
	for _, g := range grouped(room.Parts, nodes) {
		p.add(plan(g.left(room.Used, a), g.nodes, now.Sub(last.lowered) >= settle))
	}
	err = r.apply(ctx, pool.Name, p.changes[:min(len(p.changes), batch)])
	last.at, now = now, r.now()
	if p.lowers { // also where it was not answered
		last.lowered = now
	}
	r.note(pool.Name, last)
	if err != nil {
		return r.refused(ctx, pool, err)
	}
	after := recheck
	switch {
	case len(p.changes) > batch:
		after = gather
	case p.lowers, p.waits, now.Sub(last.lowered) < settle:
		after = settle
	case len(a.ended) > 0:
		after = stale / 3
	}
	return reconcile.Result{RequeueAfter: after}, r.say(ctx, pool, published(pool))
}

// refused says on the pool that this controller lacks the right, if that is what err says.
func (r *Reconciler) refused(ctx context.Context, pool *v1alpha1.IPPool, err error) (reconcile.Result, error) {
	if !forbidden(err) {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: recheck}, r.say(ctx, pool, notPermitted(pool, err))
}

// nodes returns what decides how much Nodes publish of a pool with these parts.
func (r *Reconciler) nodes(ctx context.Context, pool string, parts []pools.PartRoom, a asked) ([]node, error) {
	var list corev1.NodeList
	if err := r.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	var leases coordination.LeaseList
	if err := r.cache.List(ctx, &leases, client.InNamespace(r.namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list registrations: %w", err)
	}
	registered := map[string]bool{}
	for i := range leases.Items {
		registered[leases.Items[i].Name] = kube.IsRegistration(&leases.Items[i])
	}
	all := make([]node, 0, len(list.Items))
	for i := range list.Items {
		o := &list.Items[i]
		n := node{name: o.Name, asked: a.byNode[o.Name], busy: a.busy[o.Name]}
		for i := range parts {
			if parts[i].For(o) {
				n.parts = append(n.parts, i)
			}
		}
		n.serves = len(n.parts) > 0 && registered[o.Name] && schedulable(o) && tolerated(a.tolerations, o.Spec.Taints)
		n.shown, n.has = shownBy(o, pool)
		all = append(all, n)
	}
	return all, nil
}

// tolerated reports whether a pod may be scheduled in spite of taints: one with some of these
// tolerations, or with none.
func tolerated(tolerations map[string][]corev1.Toleration, taints []corev1.Taint) bool {
	if tolerates(nil, taints) {
		return true
	}
	for _, t := range tolerations {
		if tolerates(t, taints) {
			return true
		}
	}
	return false
}

// schedulable reports whether pods may be scheduled on a Node, as far as it says so itself.
func schedulable(o *corev1.Node) bool {
	return ready(o) && !o.Spec.Unschedulable && o.DeletionTimestamp == nil
}

func ready(o *corev1.Node) bool {
	return slices.ContainsFunc(o.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// shownBy returns what a Node publishes of a pool. What is allocatable the kubelet makes of the
// capacity.
func shownBy(o *corev1.Node, pool string) (shown int64, has bool) {
	capacity, has := o.Status.Capacity[corev1.ResourceName(npwg.AddressResources+pool)]
	return capacity.Value(), has
}

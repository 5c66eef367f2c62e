package pools

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/controller/trigger"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Live reads from the API server, never from a cache.
type Live interface {
	ReadIPPool(ctx context.Context, name protocol.PoolName) (*v1alpha1.IPPool, protocol.Outcome, error)
	IPPools(ctx context.Context) ([]v1alpha1.IPPool, error)
	Registrations(ctx context.Context) ([]protocol.Registration, error)
	Leases(ctx context.Context) ([]protocol.Lease, error)
	LeasesOfPool(ctx context.Context, pool protocol.PoolName) ([]protocol.Lease, error)
}

// Describers finds the networks that describe an implicit pool, oldest first.
type Describers interface {
	OfPool(ctx context.Context, pool string) ([]networks.Network, error)
}

// Users finds the networks that get addresses of a pool, implicit or not, oldest first.
type Users interface {
	Using(ctx context.Context, pool string) ([]networks.Network, error)
}

// Reconciler looks after pools.
type Reconciler struct {
	// Cache has pools, leases (indexed by [IndexLeases], and condensed by
	// [Condense]), and sub-leases.
	Cache client.Reader
	// Starving reports whether somebody asks for an address of a pool, or of a part of it, and none
	// has been found; nil is nobody. Whoever starves fires Changed.
	Starving func(pool protocol.PoolName, part *allocator.Shape) bool
	Changed  *trigger.Source
	// Foreign says what other IPAMs may have given; nil is nothing.
	Foreign Foreign
	// Stolen returns the addresses of claims that ports of others have in a network service, each
	// with both owners; nil is none.
	Stolen func(protocol.PoolName) []string
	// Strangers returns the reservations of strangers' addresses; nil is none.
	Strangers func(ctx context.Context, pool string) ([]v1alpha1.IPReservation, error)
	// Write writes pools.
	Write    client.Client
	Live     Live
	Networks interface {
		Describers
		Users
	}
	Shapes  *Shapes
	Metrics *Metrics
	Log     *slog.Logger
	// CountsEvery is how often at most a pool's counts are written.
	CountsEvery time.Duration
	// Now is the clock.
	Now func() time.Time

	regs    registrations
	met     atomic.Bool                       // see meet
	highest atomic.Pointer[protocol.Revision] // that the API server has answered with
	domains sync.Mutex                        // held while a pool of a named domain is looked at

	mu      sync.Mutex
	counts  map[types.UID]time.Time    // guarded by mu: when each pool's counts were last written
	closed  map[types.UID]spell        // guarded by mu: see closedFor
	starved map[types.UID]lastStarved  // guarded by mu
	users   users                      // guarded by mu
	settled map[types.UID]acceptedSpec // guarded by mu
}

// Reconcile looks at one pool.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var pool v1alpha1.IPPool
	if err := r.Cache.Get(ctx, req.NamespacedName, &pool); err != nil {
		if apierrors.IsNotFound(err) {
			r.Metrics.forget(req.Name)
			return reconcile.Result{}, r.forget(ctx)
		}
		return reconcile.Result{}, fmt.Errorf("read pool %s: %w", req.Name, err)
	}
	if pool.Spec.Domain != "" {
		// What decides whether pools of one domain may be open is read of all of
		// them: no other may be opened between the reading and the writing.
		r.domains.Lock()
		defer r.domains.Unlock()
	}
	s, err := r.look(ctx, &pool)
	if err != nil {
		return reconcile.Result{}, err
	}
	p := decide(s)
	if p.readLive {
		if s.live, err = r.readLive(ctx, &pool); err != nil || s.live == nil {
			return reconcile.Result{}, err
		}
		if s.live.pool.Generation != pool.Generation {
			return reconcile.Result{RequeueAfter: 100 * time.Millisecond}, nil // the cache is behind
		}
		p = decide(s)
	}
	done, err := r.apply(ctx, &pool, p)
	if err != nil {
		return reconcile.Result{}, err
	}
	if p.counted && done {
		r.noteCounted(pool.UID, s.now)
	}
	r.Metrics.observe(&pool, s.tally, s.shape)
	after := r.CountsEvery
	if p.after > 0 {
		after = min(after, p.after)
	}
	if !done && len(p.first) > 0 {
		after = min(after, time.Second) // another pool has changed, which brings nobody here
	}
	if s.starved {
		after = min(after, answerWithin)
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// look reads, from the cache, all that decides about a pool.
func (r *Reconciler) look(ctx context.Context, pool *v1alpha1.IPPool) (seen, error) {
	if err := r.meet(ctx); err != nil {
		return seen{}, err
	}
	s := seen{pool: pool, now: r.Now()}
	s.shape, s.fault = r.Shapes.Of(pool)
	s.before = r.before(pool, s.shape)
	if r.Foreign != nil {
		v := r.Foreign.Of(protocol.PoolName(pool.Name))
		s.foreign = &v
		if s.whole = s.shape; len(pool.Status.Withheld) > 0 {
			s.whole, _ = r.Shapes.Whole(pool)
		}
	}
	leases, err := leasesOf(ctx, r.Cache, pool.Name)
	if err != nil {
		return s, err
	}
	inUse, err := r.inUse(ctx, s.now)
	if err != nil {
		return s, err
	}
	around := surroundings{inUse: inUse, reaches: func(l *v1alpha1.IPLease) bool { return r.regs.reaches(l, s.now) }}
	s.tally = count(leases, s.shape, around)
	var others v1alpha1.IPPoolList
	if err := r.Cache.List(ctx, &others, client.UnsafeDisableDeepCopy); err != nil {
		return s, fmt.Errorf("list pools: %w", err)
	}
	s.shapeOf = func(p *v1alpha1.IPPool) *allocator.Shape {
		shape, _ := r.Shapes.Of(p)
		return shape
	}
	s.overlaps = overlapping(pool, s.shape, others.Items, s.shapeOf)
	if s.cached, err = r.rivals(ctx, pool, others.Items); err != nil {
		return s, err
	}
	if s.routers, err = r.routersOf(ctx, pool); err != nil {
		return s, err
	}
	s.routed = s.routers.usedBy(leases)
	s.pinsTaken = takenPins(pool, leases)
	if implicit(pool) {
		describing, err := r.Networks.OfPool(ctx, pool.Name)
		if err != nil {
			return s, err
		}
		s.disagreements = disagreements(pool, describing)
	}
	s.countsDue = r.countsDue(pool.UID, s.now)
	s.starved = r.starves(pool, wholePool, nil, pool.Status.Pressure, s.now)
	if err := r.lookAtParts(ctx, &s, leases, around); err != nil {
		return s, err
	}
	if r.Stolen != nil {
		s.stolen = r.Stolen(protocol.PoolName(pool.Name))
	}
	if r.Strangers != nil {
		if s.strangers, err = r.Strangers(ctx, pool.Name); err != nil {
			return s, err
		}
	}
	all := epochsOf(others.Items)
	s.lastEpoch = all.last
	s.restored, s.closedFor = r.restorationOf(pool, all, s.now)
	return s, nil
}

// countsDue reports whether it is time to write a pool's counts.
func (r *Reconciler) countsDue(uid types.UID, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.counts[uid]
	return !ok || now.Sub(last) >= r.CountsEvery
}

// noteCounted notes when a pool's counts were looked at.
func (r *Reconciler) noteCounted(uid types.UID, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[types.UID]time.Time{}
	}
	r.counts[uid] = now
}

// forget drops what is known of pools that are not there any more. It is by their UIDs,
// which nobody tells of a pool that is gone.
func (r *Reconciler) forget(ctx context.Context) error {
	var pools v1alpha1.IPPoolList
	if err := r.Cache.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list pools: %w", err)
	}
	there := map[types.UID]bool{}
	for i := range pools.Items {
		there[pools.Items[i].UID] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	prune(r.counts, there)
	prune(r.closed, there)
	prune(r.starved, there)
	prune(r.settled, there)
	return nil
}

// prune removes of what is known by pool what is of none that is there.
func prune[V any](known map[types.UID]V, there map[types.UID]bool) {
	maps.DeleteFunc(known, func(uid types.UID, _ V) bool { return !there[uid] })
}

// readLive reads the pool, and then its leases. It is nil if the pool is gone.
func (r *Reconciler) readLive(ctx context.Context, pool *v1alpha1.IPPool) (*live, error) {
	name := protocol.PoolName(pool.Name)
	now, out, err := r.Live.ReadIPPool(ctx, name)
	switch {
	case out == protocol.NotFound, out == protocol.Done && now.UID != pool.UID:
		return nil, nil //nolint:nilnil // gone: the event is on its way
	case out != protocol.Done:
		return nil, fmt.Errorf("read pool %s: %w", name, err)
	}
	l := &live{pool: now}
	var pools []v1alpha1.IPPool
	var leases []protocol.Lease
	if now.Spec.Domain == "" || now.DeletionTimestamp != nil { // then nothing else decides
		leases, err = r.Live.LeasesOfPool(ctx, name)
	} else if pools, err = r.Live.IPPools(ctx); err == nil {
		leases, err = r.Live.Leases(ctx)
	}
	garbled, ok := kube.LeaseErrors(err)
	if !ok {
		return nil, fmt.Errorf("pool %s: %w", name, err)
	}
	l.sort(pools, leases, garbled)
	return l, nil
}

// apply does what p says. A write that meets another version of the pool is not
// done, and no error: that version brings it here again.
func (r *Reconciler) apply(ctx context.Context, pool *v1alpha1.IPPool, p plan) (done bool, err error) {
	switch {
	case p.addFinalizer:
		finalizers := append(slices.Clone(p.base.Finalizers), v1alpha1.LeasesFinalizer)
		return r.patch(ctx, p.base, map[string]any{"finalizers": finalizers}, nil)
	case p.removeFinalizer:
		finalizers := slices.DeleteFunc(slices.Clone(p.base.Finalizers), func(f string) bool { return f == v1alpha1.LeasesFinalizer })
		return r.patch(ctx, p.base, map[string]any{"finalizers": finalizers}, nil)
	case p.status != nil:
		for _, b := range p.first {
			if done, err = r.patch(ctx, b.pool, nil, b.status); !done {
				return false, err
			}
		}
		if done, err = r.patch(ctx, p.base, nil, p.status); !done {
			return false, err
		}
		was, is := ready(p.base.Status), ready(*p.status)
		if was.Status != is.Status || was.Reason != is.Reason {
			r.Log.InfoContext(ctx, "pool changes", "pool", pool.Name, "leasing", p.status.Leasing, "reason", is.Reason, "message", is.Message)
		}
	}
	return true, nil
}

func ready(st v1alpha1.IPPoolStatus) metav1.Condition {
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.PoolReady); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// merged returns a status for a merge patch, which removes what is null, and leaves alone what it
// lacks.
func merged(status *v1alpha1.IPPoolStatus) any {
	type blocks struct {
		IPv4 *int32 `json:"ipv4"`
		IPv6 *int32 `json:"ipv6"`
	}
	var waited *string
	if status.Waited != "" {
		waited = &status.Waited
	}
	return struct {
		*v1alpha1.IPPoolStatus
		Withheld    []string                  `json:"withheld"`
		Gateways    []string                  `json:"gateways"`
		Selectors   []v1alpha1.SelectorStatus `json:"selectors"`
		Fenced      []string                  `json:"fenced"`
		FencedSince *metav1.Time              `json:"fencedSince"`
		Waited      *string                   `json:"waited"`
		Blocks      *blocks                   `json:"blockPrefixLengths,omitempty"`
	}{status, status.Withheld, status.Gateways, status.Selectors, status.Fenced, status.FencedSince, waited, (*blocks)(status.BlockPrefixLengths)}
}

// patch writes metadata, or the status, of exactly this version of the pool.
func (r *Reconciler) patch(ctx context.Context, base *v1alpha1.IPPool, metadata map[string]any, status *v1alpha1.IPPoolStatus) (done bool, err error) {
	own := map[string]any{"uid": base.UID, "resourceVersion": base.ResourceVersion}
	maps.Copy(own, metadata)
	body := map[string]any{"metadata": own}
	if status != nil {
		body["status"] = merged(status)
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return false, fmt.Errorf("encode pool %s: %w", base.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, kube.CallTimeout)
	defer cancel()
	into := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: base.Name}}
	if status != nil {
		err = r.Write.Status().Patch(ctx, into, client.RawPatch(types.MergePatchType, raw))
	} else {
		err = r.Write.Patch(ctx, into, client.RawPatch(types.MergePatchType, raw))
	}
	switch kube.Classify(err) {
	case protocol.Done:
		r.saw(protocol.Revision(into.ResourceVersion))
		return true, nil
	case protocol.Conflict, protocol.NotFound:
		return false, nil
	default:
		return false, fmt.Errorf("write pool %s: %w", base.Name, err)
	}
}

// oneLine writes joined errors as a sentence.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

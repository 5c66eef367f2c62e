// Package looker finds out, for the controller, which addresses pods have by other IPAMs, and has
// them kept for these pods. One such check of all pools is a look. Package foreign decides what a
// look finds; its docs say in which order.
package looker

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Live reads from the API server, never from a cache.
type Live interface {
	IPPools(ctx context.Context) ([]v1alpha1.IPPool, error)
	BoundPods(ctx context.Context, see func(*corev1.Pod)) error
	WhereaboutsPools(ctx context.Context, see func(*unstructured.Unstructured)) (served bool, err error)
	WhereaboutsReservations(ctx context.Context, see func(*unstructured.Unstructured)) (served bool, err error)
	LeasesOfPool(ctx context.Context, pool protocol.PoolName) ([]protocol.Lease, error)
	SubLeases(ctx context.Context) ([]protocol.SubLease, error)
	FencePolicy(ctx context.Context) (there bool, err error)
	AskNode(ctx context.Context, m protocol.Meta, look string) (protocol.Outcome, error)
	ReadNode(ctx context.Context, name protocol.NodeName) (protocol.Node, protocol.Outcome, error)
	ReadRegistration(ctx context.Context, name protocol.NodeName) (protocol.Registration, protocol.Outcome, error)
}

// Granter keeps addresses for pods: a [grants.Broker].
type Granter interface {
	Ask(a grants.Ask) grants.Answer
	WithdrawKept(pool protocol.PoolName, pod protocol.UID, addr netip.Addr)
	Kept() []grants.Held
	MayFree(ctx context.Context, held []grants.Held) (bool, error)
	Drop(ctx context.Context, held []grants.Held) error
}

const (
	// How often there is a look: waitEvery while a pool waits for it, endEvery while a kept
	// address may have come free or a pool waits for what a node cannot read, else idleEvery.
	idleEvery = 30 * time.Second
	endEvery  = 10 * time.Second
	waitEvery = time.Second
	// tookMost bounds how long a look counts as having taken, for when the next one is, and how
	// much of the time between two calls of Round counts as a node's silence.
	tookMost = 30 * time.Second
	// answerEvery is how often the nodes' answers are read. A node has answerWithin to answer, or
	// slowWithin once one has not answered for slowAfter. After passAfter a pool no longer waits
	// for a node that never answers.
	answerEvery  = 200 * time.Millisecond
	answerWithin = 5 * time.Second
	slowWithin   = 30 * time.Second
	slowAfter    = time.Minute
	passAfter    = 10 * time.Minute
	// maxFence bounds the items of a pool's status.fenced, and maxFenced the characters of each.
	maxFence, maxFenced = 1024, 253
	// fenceWithin is how long the API servers may take to hear of a fence.
	fenceWithin = 5 * time.Second
)

// Looker finds out what other IPAMs have given. All its exported fields must be set. One goroutine,
// that of Run, reads, decides and publishes.
type Looker struct {
	// Cache has definitions.
	Cache  client.Reader
	Live   Live
	Broker Granter
	// Registrations returns all registrations, as a cache may have them.
	Registrations func(ctx context.Context) ([]protocol.Registration, error)
	// Beats reports whether a node's agent has been heard of lately.
	Beats func(protocol.NodeName) bool
	// MayUse reports whether a namespace may use a pool. If that is not known, it reports true.
	MayUse func(ctx context.Context, pool *v1alpha1.IPPool, namespace string) bool
	// Notify is called with each pool whose verdict has changed.
	Notify func(protocol.PoolName)
	// Calls is how many calls to the API server may be under way at once.
	Calls   int
	Metrics *Metrics
	Log     *slog.Logger
	// Now is the clock.
	Now func() time.Time

	wake chan struct{}

	mu       sync.Mutex
	verdicts map[protocol.PoolName]foreign.Verdict // guarded by mu
	names    names                                 // guarded by mu

	// The rest is Run's alone.
	current *look                    // that waits for the nodes' agents; nil if none does
	asking  map[place]grants.Ask     // the asks for all that is kept or to be kept
	endings map[place]ending         // kept addresses that no pod had in the last look
	fences  map[string]fence         // what pools fence, by their names
	specs   map[types.UID]spec       // of pools
	silent  map[foreign.Word]silence // the nodes that have not answered, and about which pool
	turn    int                      // with which pool the queries of this look begin
	// awake is for how long this controller has looked, and last when Round was last called: what
	// it slept is not in awake.
	awake time.Duration
	last  time.Time
}

// place is an address of a pool.
type place struct {
	pool protocol.PoolName
	addr netip.Addr
}

// silence is since when, in time awake, a node has not answered about a pool, and whether the pool
// waits for it no longer.
type silence struct {
	since  time.Duration
	passed bool
}

// ending is since when a kept address has had no pod.
type ending struct {
	pod   protocol.Grantee
	since time.Time
}

// fence is what a pool fences, in which state of the pool, and since when that has been seen.
type fence struct {
	of     string
	fenced []string
	since  time.Time
}

// spec is a pool's generation, since when it has been seen, and when a look last let the pool open,
// or give something. Whoever has read that may still act on it, for opensWithin.
type spec struct {
	generation   int64
	since, clear time.Time
}

// opensWithin is how long a live list, a live read and a write of the API server's may take.
const opensWithin = kube.ListTimeout + 2*kube.CallTimeout

// Of returns the last verdict on a pool, the zero foreign.Verdict if there is none.
func (l *Looker) Of(pool protocol.PoolName) foreign.Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.verdicts[pool]
}

// Wake has the next look come soon: a pool or a definition has changed.
func (l *Looker) Wake() {
	select {
	case l.waker() <- struct{}{}:
	default:
	}
}

func (l *Looker) waker() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wake == nil {
		l.wake = make(chan struct{}, 1)
	}
	return l.wake
}

// Run makes look after look until ctx ends. Between two of them there is waitEvery at least: each
// write of a definition wakes it, and anybody may write many.
func (l *Looker) Run(ctx context.Context) error {
	stale := false // something has changed since the look under way began
	for {
		again, err := l.Round(ctx)
		if err != nil && ctx.Err() == nil {
			l.Log.WarnContext(ctx, "what pods of other IPAMs have cannot be looked at", "error", err)
			again = waitEvery
		}
		if stale && err == nil && l.current == nil {
			stale, again = false, waitEvery
		}
		least := time.After(min(again, waitEvery))
		select {
		case <-ctx.Done():
			return nil
		case <-l.waker():
			stale = l.current != nil
			select {
			case <-ctx.Done():
				return nil
			case <-least:
			}
		case <-time.After(again):
		}
	}
}

// Round begins a look, or goes on with the one under way, and returns how long to wait before the
// next call. It does not wait for answers: a later Round finds them.
func (l *Looker) Round(ctx context.Context) (again time.Duration, err error) {
	t, begun := l.current, l.Now()
	if !l.last.IsZero() {
		l.awake += max(0, min(begun.Sub(l.last), tookMost))
	}
	l.last = begun
	var waited time.Duration // for nodes: that takes no resources
	if t == nil {
		if t, err = l.begin(ctx); err != nil {
			return 0, err
		}
		if t.ask(ctx) {
			l.current = t
			t.keep(ctx)
			l.publish(t.published())
			return answerEvery, nil
		}
	} else if answered, err := t.collect(ctx); err != nil || !answered {
		return answerEvery, err
	} else {
		waited = begun.Sub(t.askedAt)
	}
	l.current, t.over = nil, true
	t.weigh()
	t.keep(ctx)
	l.publish(t.published()) // before freeEnded, which may fail
	if err := t.freeEnded(ctx); err != nil {
		return 0, err
	}
	took := l.Now().Sub(t.facts.Now)
	l.Metrics.looked(took, len(t.facts.Pods), len(l.Broker.Kept()))
	return t.next(took - waited), nil
}

// publish takes over new verdicts, and notifies of those that have changed. Nobody may change next
// afterwards.
func (l *Looker) publish(next map[protocol.PoolName]foreign.Verdict) {
	l.mu.Lock()
	last := l.verdicts
	l.verdicts = next
	l.mu.Unlock()
	for name, v := range next {
		if !v.Same(last[name]) {
			l.Notify(name)
		}
	}
}

// definitions reads all definitions, as the cache has them, in the order of their names, and
// what some were until a while ago. A cache lists in any order, and a verdict that comes in
// another order passes for another one.
func (l *Looker) definitions(ctx context.Context) (all, former []foreign.Definition, err error) {
	var list nad.NetworkAttachmentDefinitionList
	if err := l.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list definitions: %w", err)
	}
	all = make([]foreign.Definition, len(list.Items))
	for i := range list.Items {
		o := &list.Items[i]
		all[i] = foreign.ReadDefinition(o.Namespace, o.Name, o.Spec.Config, o.Annotations)
		all[i].Changed = changedAt(o)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range list.Items {
		all[i].Since = l.names.of(&list.Items[i])
	}
	slices.SortFunc(all, func(x, y foreign.Definition) int { return strings.Compare(x.String(), y.String()) })
	return all, l.names.lately(l.Now()), nil
}

// KeepChanged is a transform of a cache. It replaces a definition's managed fields by the time at
// which the definition was last written.
func KeepChanged(o any) (any, error) {
	if d, ok := o.(*nad.NetworkAttachmentDefinition); ok {
		at := metav1.NewTime(changedAt(d))
		d.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &at}}
	}
	return o, nil
}

// changedAt returns when a definition was last written.
func changedAt(d *nad.NetworkAttachmentDefinition) time.Time {
	at := d.CreationTimestamp.Time
	for _, f := range d.ManagedFields {
		if f.Time != nil && f.Time.After(at) {
			at = f.Time.Time
		}
	}
	return at
}

// Package looker looks, for the controller, at what pods have by other IPAMs, and has it
// kept for them. Package foreign decides what that is; docs there say in which order.
package looker

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/foreign"
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
	// idleEvery is how often a Looker looks that nobody waits for, endEvery how often
	// while something may have ended, and waitEvery how often while a pool waits.
	idleEvery = 30 * time.Second
	endEvery  = 10 * time.Second
	waitEvery = time.Second
	// tookMost is how much of the time that a look took counts for when the next one is.
	tookMost = 30 * time.Second
	// answerEvery is how often it sees whether the nodes' agents have answered, answerWithin
	// how long these may take, or slowWithin once one has not answered for slowAfter, and passAfter
	// how long a pool waits for one that never does.
	answerEvery  = 200 * time.Millisecond
	answerWithin = 5 * time.Second
	slowWithin   = 30 * time.Second
	slowAfter    = time.Minute
	passAfter    = 10 * time.Minute
	// maxFence is how many of whereabouts' objects the status of a pool takes.
	maxFence = 1024
	// fenceWithin is how long the API servers may take to hear of a fence.
	fenceWithin = 5 * time.Second
)

// Looker looks at what other IPAMs have given. Make one with all its exported fields set. One
// goroutine, that of Run, reads, decides and publishes.
type Looker struct {
	// Cache has definitions.
	Cache  client.Reader
	Live   Live
	Broker Granter
	// Registrations returns all registrations, as a cache may have them.
	Registrations func(ctx context.Context) ([]protocol.Registration, error)
	// Beats reports whether a node's agent has been heard of lately.
	Beats func(protocol.NodeName) bool
	// MayUse reports whether a namespace may use a pool; where that is not known it may.
	MayUse func(ctx context.Context, pool *v1alpha1.IPPool, namespace string) bool
	// Told is called with each pool on which the verdict is another than before.
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

	// The rest is Run's alone.
	current *look                    // that waits for the nodes' agents; nil if none does
	asking  map[place]grants.Ask     // what is to be kept, or is
	endings map[place]ending         // what the last look has seen to have ended
	fences  map[string]fence         // what pools fence, by their names
	silent  map[foreign.Word]silence // what nodes are asked that have not answered
	turn    int                      // of the look: from which pool on nodes are asked
}

// place is an address of a pool.
type place struct {
	pool protocol.PoolName
	addr netip.Addr
}

// silence is since when a node is asked of a pool in vain, and whether the pool went on without its
// word.
type silence struct {
	since  time.Time
	passed bool
}

// ending is since when an address has been seen without its pod.
type ending struct {
	pod   protocol.UID
	since time.Time
}

// fence is what a pool says of whereabouts' IPPools that give nothing new, and since when
// that has been seen.
type fence struct {
	of    string
	since time.Time
}

// Of returns the last verdict on a pool, the zero foreign.Verdict if there is none.
func (l *Looker) Of(pool protocol.PoolName) foreign.Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.verdicts[pool]
}

// Wake has the Looker look soon: a pool or a definition has changed.
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

// Run looks when there is cause to, until ctx ends. Whoever writes definitions gives cause as often
// as he likes, so between the end of a look and the next there is waitEvery at least.
func (l *Looker) Run(ctx context.Context) error {
	stale := false // something has changed that the look under way may not have seen
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

// Round goes on with looking, if there is cause to, and returns when to come again. It
// waits for nobody: what a node's agent is asked, the next Round finds answered.
func (l *Looker) Round(ctx context.Context) (again time.Duration, err error) {
	t, begun := l.current, l.Now()
	var waited time.Duration // for nodes, which takes nothing that others need
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
	l.publish(t.published()) // first: it says nothing of what comes free, and that may not come free
	if err := t.freeEnded(ctx); err != nil {
		return 0, err
	}
	took := l.Now().Sub(t.facts.Now)
	l.Metrics.looked(took, len(t.facts.Pods), len(l.Broker.Kept()))
	return t.next(took - waited), nil
}

// publish takes new verdicts over, which nobody changes any more, and tells of those that are
// others than before.
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

// definitions reads all definitions, as the cache has them.
func (l *Looker) definitions(ctx context.Context) ([]foreign.Definition, error) {
	var list nad.NetworkAttachmentDefinitionList
	if err := l.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list definitions: %w", err)
	}
	all := make([]foreign.Definition, len(list.Items))
	for i := range list.Items {
		o := &list.Items[i]
		all[i] = foreign.ReadDefinition(o.Namespace, o.Name, o.Spec.Config, o.Annotations)
		all[i].Changed = changedAt(o)
	}
	return all, nil
}

// KeepChanged keeps of an object that a cache holds, beside the rest, when it was last written, and
// drops who has written which field.
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

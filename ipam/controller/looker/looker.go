// Package looker looks, for the controller, at what pods have by other IPAMs, and has it
// kept for them. Package foreign decides what that is; docs there say in which order.
package looker

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
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
	BoundPods(ctx context.Context, see func(*corev1.Pod)) (calls int, err error)
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
	WithdrawBar(pod protocol.UID, addr netip.Addr)
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
	// answerEvery is how often it sees whether the nodes' agents have answered.
	answerEvery = 200 * time.Millisecond
	// fenceWithin is how long the API servers may take to hear of a fence.
	fenceWithin = 5 * time.Second
	// answerWithin is how long agents may take for their reports.
	answerWithin = 5 * time.Second
)

// Looker looks at what other IPAMs have given. Make one with all its exported fields set.
type Looker struct {
	// Cache has definitions.
	Cache  client.Reader
	Live   Live
	Broker Granter
	// Registrations returns all registrations, as a cache may have them.
	Registrations func(ctx context.Context) ([]protocol.Registration, error)
	// Beats reports whether a node's agent has been heard of lately.
	Beats func(protocol.NodeName) bool
	// Told is called with each pool on which the verdict is another than before.
	Told func(protocol.PoolName)
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
	current *round               // that waits for the nodes' agents; nil if none does
	asking  map[place]grants.Ask // what is to be kept, or is
	endings map[place]ending     // what the last look has seen to have ended
	fences  map[string]fence     // what pools fence, by their names
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

// Run looks when there is cause to, until ctx ends.
func (l *Looker) Run(ctx context.Context) error {
	stale := false // something has changed that the look under way may not have seen
	for {
		again, err := l.Round(ctx)
		if err != nil && ctx.Err() == nil {
			l.Log.WarnContext(ctx, "what pods of other IPAMs have cannot be looked at", "error", err)
			again = waitEvery
		}
		if stale && err == nil && l.current == nil {
			stale, again = false, 0
		}
		select {
		case <-ctx.Done():
			return nil
		case <-l.waker():
			stale = l.current != nil
		case <-time.After(again):
		}
	}
}

// Round goes on with looking, if there is cause to, and returns when to come again. It
// waits for nobody: what a node's agent is asked, the next Round finds answered.
func (l *Looker) Round(ctx context.Context) (again time.Duration, err error) {
	if l.current == nil {
		if asks, err := l.start(ctx); err != nil || asks {
			return answerEvery, err
		}
	}
	t := l.current
	answered, err := t.reports(ctx)
	if err != nil {
		return 0, err
	}
	if !answered {
		return answerEvery, nil
	}
	l.current = nil
	t.keep(ctx)
	l.publish(t.verdicts) // first: they say nothing of what comes free, and it may not come free
	if err := t.freeEnded(ctx); err != nil {
		return 0, err
	}
	l.Metrics.looked(l.Now().Sub(t.facts.Now), len(t.facts.Pods), t.calls, len(l.Broker.Kept()))
	return t.nextLook(l.Now().Sub(t.facts.Now)), nil
}

// start begins the current look, and reports whether nodes' agents are asked for it.
func (l *Looker) start(ctx context.Context) (asks bool, err error) {
	t, err := l.begin(ctx)
	if err != nil {
		return false, err
	}
	if asks, err = t.ask(ctx); err != nil {
		return false, err
	}
	l.current = t
	if asks {
		t.sayAsked()
		l.publish(t.verdicts)
	}
	return asks, nil
}

// begin reads all that a look needs but the nodes' reports.
func (l *Looker) begin(ctx context.Context) (*round, error) {
	objects, err := l.Live.IPPools(ctx)
	if err != nil {
		return nil, err
	}
	t := &round{Looker: l, facts: foreign.Facts{Now: l.Now(), Leases: map[protocol.PoolName][]protocol.Lease{}}, verdicts: map[protocol.PoolName]foreign.Verdict{}, without: map[protocol.NodeName]bool{}}
	if t.facts.Definitions, err = l.definitions(ctx); err != nil {
		return nil, err
	}
	l.seeFences(objects)
	pending := slices.ContainsFunc(objects, waits)
	if pending || len(l.Broker.Kept()) > 0 {
		t.unread = t.records(ctx)
	}
	for i := range objects {
		t.consider(&objects[i])
	}
	if t.unread != nil {
		l.publish(t.verdicts)
		return nil, t.unread
	}
	if !t.cause() {
		return t, nil
	}
	if err := t.look(ctx); err != nil {
		t.unready("what pods have cannot be read: " + err.Error())
		l.publish(t.verdicts)
		return nil, err
	}
	return t, nil
}

// seeFences notes since when the pools have said what they fence: by the clock of this
// program, since that status may have come long after the time that it names.
func (l *Looker) seeFences(pools []v1alpha1.IPPool) {
	next := map[string]fence{}
	for i := range pools {
		p := &pools[i]
		f := fence{fmt.Sprint(p.UID, p.Status.Fenced, p.Status.FencedSince), l.Now()}
		if last, ok := l.fences[p.Name]; ok && last.of == f.of {
			f = last
		}
		next[p.Name] = f
	}
	l.fences = next
}

// waits reports whether some of a pool waits for a look.
func waits(o v1alpha1.IPPool) bool {
	return o.DeletionTimestamp == nil && (o.Status.Leasing != v1alpha1.LeasingOpen || len(o.Status.Withheld) > 0)
}

// publish takes over new verdicts as they are now, and tells of those that are others than
// before. A round goes on with its own.
func (l *Looker) publish(next map[protocol.PoolName]foreign.Verdict) {
	l.mu.Lock()
	var news []protocol.PoolName
	for name, v := range next {
		if !v.Same(l.verdicts[name]) {
			news = append(news, name)
		}
	}
	l.verdicts = maps.Clone(next)
	l.mu.Unlock()
	for _, name := range news {
		l.Told(name)
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

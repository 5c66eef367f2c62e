// Package looker looks, for the controller, at what pods have by other IPAMs, and has it
// kept for them. Package foreign decides what that is; docs there say in which order.
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
	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/broker"
	"github.com/tenure-ipam/tenure/ipam/cluster"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
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

// Granter keeps addresses for pods: a [broker.Broker].
type Granter interface {
	Ask(a broker.Ask) broker.Answer
	WithdrawBar(pod protocol.UID, addr netip.Addr)
	Kept() []broker.Held
	Drop(ctx context.Context, grants []broker.Held) error
	ReadLease(ctx context.Context, name string) (protocol.Lease, bool, error)
}

const (
	// idleEvery is how often a Looker looks that nobody waits for, endEvery how often
	// while something may have ended, and waitEvery how often while a pool waits.
	idleEvery = 30 * time.Second
	endEvery  = 10 * time.Second
	waitEvery = time.Second
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
	// Seats returns all seats, as a cache may have them.
	Seats func(ctx context.Context) ([]protocol.Seat, error)
	// Restored reports whether nothing of a pool may be freed now, because the API
	// server's data went back in time.
	Restored func(ctx context.Context, pools ...protocol.PoolName) (bool, error)
	// Beats reports whether a node's agent has been heard of lately.
	Beats func(protocol.NodeName) bool
	// Told is called with each pool on which the verdict is another than before.
	Told    func(protocol.PoolName)
	Metrics *Metrics
	Log     *slog.Logger
	// Now is the clock.
	Now func() time.Time

	wake chan struct{}

	mu       sync.Mutex
	verdicts map[protocol.PoolName]foreign.Verdict // guarded by mu

	// The rest is Run's alone.
	current *turn                // that waits for the nodes' agents; nil if none does
	asking  map[place]broker.Ask // what is to be kept, or is
	endings map[place]ending     // what the last look has seen to have ended
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
	for {
		again, err := l.Turn(ctx)
		if err != nil && ctx.Err() == nil {
			l.Log.WarnContext(ctx, "what pods of other IPAMs have cannot be looked at", "error", err)
			again = waitEvery
		}
		select {
		case <-ctx.Done():
			return nil
		case <-l.waker():
		case <-time.After(again):
		}
	}
}

// Turn goes on with looking, if there is cause to, and returns when to come again. It
// waits for nobody: what a node's agent is asked, the next Turn finds answered.
func (l *Looker) Turn(ctx context.Context) (again time.Duration, err error) {
	t := l.current
	if t == nil {
		if t, err = l.begin(ctx); err != nil {
			return 0, err
		}
		if asks, err := t.ask(ctx); err != nil {
			return 0, err
		} else if asks {
			l.current = t
			t.unready("the nodes' agents are asked what their pods have")
			l.publish(t.verdicts)
			return answerEvery, nil
		}
	}
	answered, err := t.reports(ctx)
	if err != nil {
		return 0, err
	}
	if !answered {
		return answerEvery, nil
	}
	l.current = nil
	t.keep(ctx)
	if err := t.end(ctx); err != nil {
		return 0, err
	}
	l.publish(t.verdicts)
	l.Metrics.looked(l.Now().Sub(t.facts.Now), len(t.facts.Pods), t.calls, len(l.Broker.Kept()))
	return t.again(l.Now().Sub(t.facts.Now)), nil
}

// begin reads all that a look needs but the nodes' reports.
func (l *Looker) begin(ctx context.Context) (*turn, error) {
	objects, err := l.Live.IPPools(ctx)
	if err != nil {
		return nil, err
	}
	t := &turn{Looker: l, facts: foreign.Facts{Now: l.Now(), Leases: map[protocol.PoolName][]protocol.Lease{}}, verdicts: map[protocol.PoolName]foreign.Verdict{}}
	if t.facts.Definitions, err = l.definitions(ctx); err != nil {
		return nil, err
	}
	pending := slices.ContainsFunc(objects, waits)
	if pending || len(l.Broker.Kept()) > 0 {
		if err := t.records(ctx); err != nil {
			return nil, err
		}
	}
	for i := range objects {
		t.consider(&objects[i])
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

// waits reports whether some of a pool waits for a look.
func waits(o v1alpha1.IPPool) bool {
	return o.DeletionTimestamp == nil && (o.Status.Leasing != v1alpha1.LeasingOpen || len(o.Status.Withheld) > 0)
}

// unready says of all pools that wait why they do.
func (t *turn) unready(why string) {
	for _, w := range t.waiting {
		t.say(w, why)
	}
}

// again returns when to look next. A look at very many pods takes its time, of which
// others need some, too.
func (t *turn) again(took time.Duration) time.Duration {
	switch {
	case t.soon, slices.ContainsFunc(t.waiting, func(w *waiting) bool { return !t.verdicts[w.pool.Name].Clear }):
		return max(waitEvery, 2*took)
	case len(t.endings) > 0:
		return max(endEvery, 10*took)
	default:
		return max(idleEvery, 20*took)
	}
}

// publish takes over new verdicts, and tells of those that are others than before.
func (l *Looker) publish(next map[protocol.PoolName]foreign.Verdict) {
	l.mu.Lock()
	var news []protocol.PoolName
	for name, v := range next {
		if !v.Same(l.verdicts[name]) {
			news = append(news, name)
		}
	}
	l.verdicts = next
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
	}
	return all, nil
}

// turn is one look on its way.
type turn struct {
	*Looker
	facts    foreign.Facts
	calls    int
	waiting  []*waiting
	watching bool // there are pools beside which another IPAM gives addresses, or has lately
	soon     bool // a pool waits for no look, but for a moment to pass
	verdicts map[protocol.PoolName]foreign.Verdict
	// served says that there are whereabouts' objects, of which these are its IPPools.
	served  bool
	objects []object

	id     string                     // of the look that nodes are asked, "" if none are
	nodes  []protocol.NodeName        // that are asked
	silent []protocol.NodeName        // of these, those that live and have not answered
	ended  map[protocol.NodeName]bool // whose seat's term was ended
	seated map[protocol.NodeName]bool // that have a seat with somebody on it
}

// object is one of whereabouts' IPPools.
type object struct {
	name   string
	covers netip.Prefix
}

// ending is since when what is kept for a pod has been seen to have ended.
type ending struct {
	pod   protocol.UID
	since time.Time
}

// place is an address of a pool.
type place struct {
	pool protocol.PoolName
	addr netip.Addr
}

// waiting is a pool that waits for a look.
type waiting struct {
	pool foreign.Pool
	uid  protocol.UID
	bars int // to be kept, and not yet kept
	late string
}

// cause reports whether there is a cause to look.
func (t *turn) cause() bool {
	return len(t.waiting) > 0 || t.watching || len(t.Broker.Kept()) > 0 || len(t.asking) > 0
}

// consider works out what is to be found out about a pool.
func (t *turn) consider(o *v1alpha1.IPPool) {
	whole, err := poolspec.ParsePool(cluster.SpecText(o))
	if err != nil || o.DeletionTimestamp != nil {
		return
	}
	p := foreign.Pool{Name: protocol.PoolName(o.Name), Domain: o.Spec.Domain, Whole: whole, ShareWith: o.Spec.ShareWith}
	if o.Status.FencedSince != nil {
		p.Since = o.Status.FencedSince.Time
	}
	v := foreign.Verdict{Of: foreign.StateOf(o)}
	v.Others, v.Blocked = p.Others(t.facts.Definitions)
	p.New = newOf(o, whole, v.Blocked)
	v.Fence = o.Status.Fenced
	if waits(*o) {
		v.Fence = t.fence(p)
	}
	open := o.Status.Leasing == v1alpha1.LeasingOpen
	switch {
	case o.Spec.Allocation == v1alpha1.AllocationStopped:
		v.Fence = nil // it is on its way out
	case open && len(p.New.Ranges()) == 0:
		v.Clear = true // nothing of it waits
	case !open && o.Status.Opening == "" && len(v.Others) > 0:
		v.Why = "another IPAM may still give its addresses"
	case o.Status.FencedSince == nil || !slices.Equal(v.Fence, o.Status.Fenced) || o.Status.BlockPrefixLengths == nil:
		v.Why, t.soon = "it has yet to be taken over from other IPAMs", true // the reconciler writes that first
	case len(v.Fence) > 0 && t.facts.Now.Sub(o.Status.FencedSince.Time) < fenceWithin:
		v.Why, t.soon = "the API servers have yet to hear that whereabouts gives none of its addresses any more", true
	default:
		t.waiting = append(t.waiting, &waiting{pool: p, uid: protocol.UID(o.UID)})
	}
	t.verdicts[p.Name] = v
	t.facts.Pools = append(t.facts.Pools, p)
	recent := o.Status.FencedSince != nil && t.facts.Now.Sub(o.Status.FencedSince.Time) < foreign.WatchAfter
	t.watching = t.watching || open && (len(v.Others) > 0 || recent)
}

// newOf returns the addresses of a pool that nobody has been given yet, without blocked.
func newOf(o *v1alpha1.IPPool, whole *allocator.Shape, blocked *netipx.IPSet) *netipx.IPSet {
	var b netipx.IPSetBuilder
	if o.Status.Leasing != v1alpha1.LeasingOpen {
		b.AddSet(whole.Usable())
	}
	for _, text := range o.Status.Withheld {
		if r, err := netipx.ParseIPRange(text); err == nil {
			b.AddRange(r)
		}
	}
	if blocked != nil && o.Status.Leasing == v1alpha1.LeasingOpen {
		b.RemoveSet(blocked)
	}
	b.Intersect(whole.Usable())
	set, _ := b.IPSet() // only valid ranges were added
	return set
}

// look reads what there is to find.
func (t *turn) look(ctx context.Context) error {
	for _, p := range t.facts.Pools {
		leases, err := t.Live.LeasesOfPool(ctx, p.Name)
		if _, garbled := cluster.LeaseErrors(err); err != nil && !garbled { // of those that cannot be read the pool says so
			return err
		}
		t.facts.Leases[p.Name] = leases
	}
	var err error
	if t.facts.SubLeases, err = t.Live.SubLeases(ctx); err != nil {
		return err
	}
	calls, err := t.Live.BoundPods(ctx, func(o *corev1.Pod) {
		if p := foreign.ReadPod(o); len(p.Selected) > 0 {
			t.facts.Pods = append(t.facts.Pods, p)
		}
	})
	t.calls += calls
	return err
}

// records reads what whereabouts has recorded.
func (t *turn) records(ctx context.Context) error {
	text := func(o *unstructured.Unstructured) (namespace, name string, spec map[string]any) {
		spec, _, _ = unstructured.NestedMap(o.Object, "spec") // none where it is something else
		return o.GetNamespace(), o.GetName(), spec
	}
	var err error
	t.served, err = t.Live.WhereaboutsPools(ctx, func(o *unstructured.Unstructured) {
		records, _ := foreign.WhereaboutsPool(text(o)) // what is damaged, the import says
		t.facts.Records = append(t.facts.Records, records...)
		cidr, _, _ := unstructured.NestedString(o.Object, "spec", "range")
		if p, err := netip.ParsePrefix(cidr); err == nil {
			t.objects = append(t.objects, object{o.GetName(), p.Masked()})
		}
	})
	if err != nil || !t.served {
		return err
	}
	there, err := t.Live.FencePolicy(ctx)
	switch {
	case err != nil:
		return err
	case !there:
		return errNoFence
	}
	_, err = t.Live.WhereaboutsReservations(ctx, func(o *unstructured.Unstructured) {
		if r, fault := foreign.WhereaboutsReservation(text(o)); fault == "" {
			t.facts.Records = append(t.facts.Records, r)
		}
	})
	return err
}

// keep has what was found kept, and says how far that has come.
func (t *turn) keep(ctx context.Context) {
	bars, conflicts := foreign.Find(t.facts)
	if t.asking == nil {
		t.asking = map[place]broker.Ask{}
	}
	found := map[place]bool{}
	for _, b := range bars {
		at := place{b.Pool, b.Addr}
		if found[at] {
			continue // a second pod: a conflict
		}
		found[at] = true
		ask := broker.Ask{To: b.To, From: []broker.Source{{Pool: b.Pool, Addr: b.Addr, Families: []allocator.Family{allocator.FamilyOf(b.Addr)}}}}
		if old, ok := t.asking[at]; !ok || old.To != ask.To {
			t.Log.InfoContext(ctx, "address of another IPAM is kept for its pod", "pool", b.Pool, "address", b.Addr, "pod", b.To.Namespace+"/"+b.To.Name, "node", b.To.Node, "source", b.Source)
			if ok {
				t.Broker.WithdrawBar(old.To.UID, b.Addr)
			}
		}
		t.asking[at] = ask
	}
	for at, ask := range t.asking {
		if !found[at] && !t.held(at) { // it is not seen any more, and was not kept yet
			t.Broker.WithdrawBar(ask.To.UID, at.addr)
			delete(t.asking, at)
		}
	}
	conflicts = append(conflicts, t.answers(ctx, bars)...)
	for _, w := range t.waiting {
		t.judge(w)
	}
	for _, c := range conflicts {
		v := t.verdicts[c.Pool]
		v.Conflicts = append(v.Conflicts, c)
		t.verdicts[c.Pool] = v
	}
}

// held reports whether an address is kept for a pod.
func (t *turn) held(at place) bool {
	return slices.ContainsFunc(t.Broker.Kept(), func(h broker.Held) bool { return h.Pool == at.pool && h.Grant.Addr == at.addr })
}

// judge says whether a pool that waits may go on.
func (t *turn) judge(w *waiting) {
	pending := foreign.Pending(t.facts, w.pool)
	switch {
	case len(t.silent) > 0:
		t.say(w, fmt.Sprintf("it waits for the agents of nodes %s to say what their pods have", names(t.silent)))
	case w.bars > 0:
		t.say(w, fmt.Sprintf("%d addresses that pods of other IPAMs have are yet to be kept for them%s", w.bars, w.late))
	case len(pending) > 0:
		var pods []string
		for _, p := range pending {
			pods = append(pods, p.String())
		}
		t.say(w, fmt.Sprintf("pods that were bound to their nodes before may still get an address of another IPAM: %s", few(pods)))
	default:
		v := t.verdicts[w.pool.Name]
		v.Clear, v.Why = true, ""
		t.verdicts[w.pool.Name] = v
	}
}

// say notes why a pool has to wait.
func (t *turn) say(w *waiting, why string) {
	v := t.verdicts[w.pool.Name]
	v.Clear, v.Why = false, why
	t.verdicts[w.pool.Name] = v
}

// names lists nodes for people.
func names(nodes []protocol.NodeName) string {
	var all []string
	for _, n := range nodes {
		all = append(all, string(n))
	}
	return few(all)
}

// few lists the first of what may be many.
func few(all []string) string {
	const most = 5
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}

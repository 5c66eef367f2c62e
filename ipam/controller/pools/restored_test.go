package pools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// regAt is the registration of a node whose last heartbeat, by its own clock, is the beat'th.
func regAt(node string, beat int) protocol.Registration {
	return protocol.Registration{
		Meta: protocol.Meta{UID: protocol.UID("registration-of-" + node)}, Node: protocol.NodeName(node), Store: protocol.StoreID("store-of-" + node), Boot: "b",
		Term: 1, Fence: 16 * time.Minute, Beat: noon.Add(time.Duration(beat) * time.Minute),
	}
}

func saying(s protocol.Registration, back bool, epoch string) protocol.Registration {
	s.Restored = protocol.Restoration{Back: back, Epoch: epoch}.String()
	return s
}

// TestReaches: what is free in a block can be had from a holder that has been heard
// of within F/2, has the store that the lease is of, and answers recalls.
func TestReaches(t *testing.T) {
	held := func(node, store, answered string) *v1alpha1.IPLease {
		l := &v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{Holder: v1alpha1.Holder{Kind: v1alpha1.HolderNode, Node: node}, Store: store}}
		l.Name, l.Status.Answered = "lan.1", answered
		return l
	}
	mine := held("a", "store-of-a", "")
	recalled := func(s protocol.Registration, id string) protocol.Registration {
		s.Recalls = []protocol.Recall{{ID: id, Lease: "lan.1"}}
		s.Writes++
		return s
	}
	never := regAt("a", 0)
	never.Fence = 0
	ended := regAt("a", 0)
	ended.Store, ended.Boot = "", ""
	type step struct {
		after time.Duration
		reg   protocol.Registration
	}
	tests := []struct {
		name  string
		heard []step
		at    time.Duration
		lease *v1alpha1.IPLease
		want  bool
	}{
		{"just registered", []step{{0, regAt("a", 0)}}, 0, mine, true},
		{"no agent is registered", nil, 0, mine, false},
		{"another node", []step{{0, regAt("b", 0)}}, 0, mine, false},
		{"the registration was ended", []step{{0, regAt("a", 0)}, {1, ended}}, 1, mine, false},
		{"an earlier store's lease is frozen", []step{{0, regAt("a", 0)}}, 0, held("a", "store-before", ""), false},
		{"nearly silent", []step{{0, regAt("a", 0)}}, 8*time.Minute - 1, mine, true},
		{"silent for F/2", []step{{0, regAt("a", 0)}}, 8 * time.Minute, mine, false},
		{"silent, and never by time", []step{{0, never}}, 24 * time.Hour, mine, true},
		{"heard of again", []step{{0, regAt("a", 0)}, {9 * time.Minute, regAt("a", 1)}}, 9 * time.Minute, mine, true},
		{"a recall is no sign of life", []step{{0, regAt("a", 0)}, {8 * time.Minute, recalled(regAt("a", 0), "r1")}}, 8 * time.Minute, mine, false},
		{"a recall, just now", []step{{0, recalled(regAt("a", 0), "r1")}}, answerWithin - 1, mine, true},
		{"a recall without an answer", []step{{0, recalled(regAt("a", 0), "r1")}}, answerWithin, mine, false},
		{"a recall with its answer", []step{{0, recalled(regAt("a", 0), "r1")}}, answerWithin, held("a", "store-of-a", "r1"), true},
		{"a recall that was dropped without an answer", []step{{0, recalled(regAt("a", 0), "r1")}, {time.Second, regAt("a", 0)}}, answerWithin, mine, false},
		{"a heartbeat after it", []step{{0, recalled(regAt("a", 0), "r1")}, {answerWithin + 1, regAt("a", 1)}}, time.Minute, mine, true},
		{"the next recall without an answer", []step{{0, recalled(regAt("a", 0), "r1")}, {time.Second, recalled(regAt("a", 0), "r2")}},
			time.Second + answerWithin, held("a", "store-of-a", "r1"), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var l registrations
			for _, s := range tt.heard {
				l.observe(s.reg, noon.Add(s.after))
			}
			if got := l.reaches(tt.lease, noon.Add(tt.at)); got != tt.want {
				t.Errorf("%v; want %v", got, tt.want)
			}
		})
	}
}

// TestHearTellsNews: only what a registration says of a restored API server concerns every
// pool.
func TestHearTellsNews(t *testing.T) {
	var l registrations
	a := regAt("a", 0)
	for i, tt := range []struct {
		reg  protocol.Registration
		want bool
	}{
		{a, false}, {regAt("a", 1), false}, {saying(a, false, "5"), true}, {saying(regAt("a", 2), false, "5"), false},
		{saying(a, true, "5"), true}, {regAt("a", 3), true}, {saying(regAt("b", 0), false, ""), true},
	} {
		if got := l.observe(tt.reg, noon); got != tt.want {
			t.Errorf("registration %d: news %v; want %v", i, got, tt.want)
		}
	}
}

// TestFirstEpoch: what a backup says of a pool that had not been opened yet looks like a
// new pool, and a controller that was started since opens it. Agents that know of later epochs
// since the pool was made have it closed; of a pool that was made after these they say
// nothing.
func TestFirstEpoch(t *testing.T) {
	said := protocol.EpochAfter(noon.Add(-time.Minute))
	for made, want := range map[time.Duration]bool{-time.Hour: true, -time.Second: false} {
		p := pool("10.0.0.0/24")
		p.CreationTimestamp = metav1.NewTime(noon.Add(made))
		st := &v1alpha1.IPPoolStatus{}
		seen{pool: p, now: noon}.open(st, sizes{}, sizes{})
		var l registrations
		l.observe(saying(regAt("a", 0), false, said), noon)
		if r := l.restoration(st.Opening, epochs{last: st.Opening}, false, noon); (r != nil) != want {
			t.Errorf("a pool made %v before: opened by %s, and closed by %s: %v; want %v", -made, st.Opening, said, r != nil, want)
		}
	}
}

// TestOneStolenRegistration: what one registration says closes pools for F, and not for as long as
// it likes: neither by a word of a time to come, nor by an F of its own.
func TestOneStolenRegistration(t *testing.T) {
	epoch := func(after time.Duration) string { return protocol.EpochAfter(noon.Add(after)) }
	for _, tt := range []struct {
		name, says, last string
		want             bool
	}{
		{"of the past", epoch(-time.Hour), epoch(-time.Hour), true},
		{"of a controller whose clock is ahead", epoch(clockSkew), epoch(-time.Hour), true},
		{"of a time to come", epoch(clockSkew + time.Second), epoch(-time.Hour), false},
		{"no time", "x", epoch(-time.Hour), false},
		{"of a time to come, in which a pool was opened", epoch(48 * time.Hour), epoch(48 * time.Hour), true},
	} {
		t.Run("a word "+tt.name, func(t *testing.T) {
			var l registrations
			l.observe(saying(regAt("thief", 0), false, tt.says), noon)
			l.observe(saying(regAt("a", 0), true, epoch(-2*time.Hour)), noon) // of an earlier restore
			r := l.restoration(epoch(-time.Hour), epochs{last: tt.last}, false, noon)
			if (r != nil) != tt.want {
				t.Errorf("the pool is closed: %v; want %v", r != nil, tt.want)
			}
			if r == nil {
				return
			}
			if why, _ := r.wait(0); !strings.Contains(why, "node thief says so") {
				t.Errorf("waits: %q; want who says so", why)
			}
			// The pool is opened by a word that the registration's does not void.
			s := seen{pool: pool("10.0.0.0/24"), now: noon, restored: r, lastEpoch: tt.last}
			st := &v1alpha1.IPPoolStatus{}
			s.open(st, sizes{}, sizes{})
			if again := l.restoration(st.Opening, epochs{last: max(tt.last, st.Opening)}, false, noon); again != nil {
				t.Errorf("opened by %s it is closed again by %s", st.Opening, tt.says)
			}
		})
	}
	for _, tt := range []struct {
		name    string
		fences  []time.Duration
		want    time.Duration
		patient bool
	}{
		{"no registrations", nil, usualFence, false},
		{"one", []time.Duration{time.Hour}, time.Hour, false},
		{"one without", []time.Duration{0}, 0, true},
		{"different ones", []time.Duration{time.Minute, 40 * time.Minute, time.Minute}, 40 * time.Minute, false},
		{"one is longer than can be", []time.Duration{time.Minute, 1000 * time.Hour, time.Minute}, protocol.MaxFence, false},
		{"one of three has none", []time.Duration{0, time.Minute, time.Minute}, protocol.MaxFence, false},
		{"one of two has none", []time.Duration{time.Minute, 0}, protocol.MaxFence, false},
		{"two of three have none", []time.Duration{0, time.Minute, 0}, 0, true},
	} {
		t.Run("F: "+tt.name, func(t *testing.T) {
			var l registrations
			for i, fence := range tt.fences {
				s := regAt(fmt.Sprint("n", i), 0)
				s.Fence = fence
				l.observe(s, noon)
			}
			r := l.restoration("", epochs{}, true, noon)
			if why, _ := r.wait(1000 * time.Hour); r.fence != tt.want || (why != "") != tt.patient {
				t.Errorf("F is %v, and then %q; want %v, and that it waits on: %v", r.fence, why, tt.want, tt.patient)
			}
		})
	}
}

// TestGarbledRegistrationIsWaitedFor: the agent of a registration that is garbled, or that lacks
// what an agent writes, is waited for like others; a lease of another kind is nobody's
// registration.
func TestGarbledRegistrationIsWaitedFor(t *testing.T) {
	store, fence := "s", int32(600)
	reg := func(name string, annotations map[string]string) *coordination.Lease {
		return &coordination.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Annotations: annotations},
			Spec:       coordination.LeaseSpec{HolderIdentity: &store, LeaseDurationSeconds: &fence},
		}
	}
	r := &Reconciler{Cache: emptyCache{}, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return noon }}
	hear := r.ofRegistration()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	for _, l := range []*coordination.Lease{
		reg("a", map[string]string{"tenure.dev/boot": "b", "tenure.dev/former": "x"}), reg("b", map[string]string{"tenure.dev/node-uid": "u"}),
		reg("c", map[string]string{"tenure.dev/boot": "b"}), reg("leader", nil),
	} {
		hear.Create(t.Context(), event.CreateEvent{Object: l}, q)
	}
	missing := func() string {
		nodes, _ := r.regs.restoration("", epochs{}, true, noon).waitedFor(0)
		return fmt.Sprint(nodes)
	}
	if got := missing(); got != "[a b c]" {
		t.Errorf("it waits for %s; want [a b c]", got)
	}
	hear.Update(t.Context(), event.UpdateEvent{ObjectOld: reg("c", nil), ObjectNew: reg("c", nil)}, q)
	if got := missing(); got != "[a b]" {
		t.Errorf("it waits for %s; want [a b]: nothing of the other is a registration's any more", got)
	}
}

// emptyCache is a cache without pools.
type emptyCache struct{ client.Reader }

func (emptyCache) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// TestWaits: a pool stays closed for F/2, and then until every node that is
// registered, and not silent for F, is back; at most for F.
func TestWaits(t *testing.T) {
	epoch := protocol.EpochAfter(noon)
	back, seen, nothing := saying(regAt("a", 0), true, epoch), saying(regAt("b", 0), false, epoch), regAt("c", 0)
	never := regAt("d", 0)
	never.Fence = 0
	tests := []struct {
		name   string
		regs   []protocol.Registration
		own    bool          // a controller has seen it itself, and closed the pool
		beaten bool          // the registrations beat again before at
		at     time.Duration // since the registrations were heard of, and the pool was closed
		want   string        // of the reason; empty: may be opened; "-": not concerned
	}{
		{name: "nobody has seen anything", regs: []protocol.Registration{nothing}, want: "-"},
		{name: "all are back, but registrations may be missing", regs: []protocol.Registration{back}, at: 8*time.Minute - 1, want: "registrations may be missing"},
		{name: "all are back", regs: []protocol.Registration{back}, at: 8 * time.Minute},
		{name: "one has only seen it", regs: []protocol.Registration{back, seen}, beaten: true, at: 10 * time.Minute, want: "waits for b"},
		{name: "one has not even seen it", regs: []protocol.Registration{back, nothing}, beaten: true, at: 10 * time.Minute, want: "waits for c"},
		{name: "F has passed", regs: []protocol.Registration{back, seen, nothing}, beaten: true, at: 16 * time.Minute},
		{name: "one is silent", regs: []protocol.Registration{back, seen}, at: 16 * time.Minute},
		{name: "one has no F", regs: []protocol.Registration{back, never}, at: 24 * time.Hour, want: "waits for d"},
		{name: "the controller alone has seen it", own: true, at: usualFence/2 - 1, want: "registrations may be missing"},
		{name: "and nobody ever beats", own: true, at: usualFence / 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var l registrations
			for i, s := range tt.regs {
				l.observe(s, noon)
				if tt.beaten {
					s.Beat = s.Beat.Add(time.Duration(i+1) * time.Second)
					l.awaken(tt.at - time.Second)
					l.observe(s, noon.Add(tt.at-time.Second))
				}
			}
			l.awaken(tt.at)
			r := l.restoration(epoch, epochs{last: epoch}, tt.own, noon.Add(tt.at))
			if r == nil {
				if tt.want != "-" {
					t.Error("it does not concern the pool")
				}
				return
			}
			why, after := r.wait(tt.at)
			if (why == "") != (tt.want == "") || !strings.Contains(why, tt.want) {
				t.Errorf("waits: %q; want %q", why, tt.want)
			}
			if (why == "") != (after == 0) || after > recheckAfter {
				t.Errorf("looks again after %v", after)
			}
		})
	}
}

// TestAnotherLeaderBeginsAnew: it counts how long a pool has been closed by what it
// has seen itself, and not the hours for which it slept.
func TestAnotherLeaderBeginsAnew(t *testing.T) {
	p := with(pool("10.0.0.0/24"), open(32))
	first, second := &Reconciler{}, &Reconciler{}
	var got []string
	look := func(r *Reconciler, concerned bool, after time.Duration) {
		got = append(got, fmt.Sprint(r.closedFor(p, concerned, noon.Add(after))))
	}
	look(first, true, 0) // open
	p.Status.Leasing = v1alpha1.LeasingClosed
	look(first, true, time.Minute)
	look(first, true, 2*time.Minute)
	look(first, true, 2*time.Minute+recheckAfter)
	look(first, true, 3*time.Hour)
	look(second, true, 3*time.Minute)
	look(second, true, 4*time.Minute)
	p.Status.Leasing = v1alpha1.LeasingOpen
	look(first, false, 5*time.Minute)
	p.Status.Leasing = v1alpha1.LeasingClosed
	look(first, true, 9*time.Minute)
	if want := "[0s 0s 1m0s 1m10s 2m10s 0s 1m0s 0s 0s]"; fmt.Sprint(got) != want {
		t.Errorf("closed for %v; want %s", got, want)
	}
}

// lookAt has r look at p, the only pool, and p get the status that it decides. It returns the
// reason of p's condition Ready, or that p is let go of.
func lookAt(t *testing.T, r *Reconciler, p *v1alpha1.IPPool, now time.Time, leases ...protocol.Lease) string {
	t.Helper()
	all := epochsOf([]v1alpha1.IPPool{*p})
	s := seen{pool: p, now: now, live: &live{pool: p, leases: leases}, lastEpoch: all.last}
	s.shape, s.fault = shapeOf(p)
	s.restored, s.closedFor = r.restorationOf(p, all, now)
	got := decide(s)
	if got.status != nil {
		p.Status = *got.status
	}
	if got.removeFinalizer {
		return "let go of"
	}
	return ready(p.Status).Reason
}

// TestStoppedPoolWaitsOnce: a pool that stays stopped waits for the nodes as others do, also one
// that was never opened by the restored data. Then it is in a later epoch, so that neither its
// nodes nor another leader wait again. When it is started it is opened in a later epoch still.
func TestStoppedPoolWaitsOnce(t *testing.T) {
	word := protocol.EpochAfter(noon.Add(-time.Hour))
	made := pool("10.0.0.0/24")
	made.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour))
	for name, p := range map[string]*v1alpha1.IPPool{
		"opened": with(pool("10.0.0.0/24"), open(32)), "never opened": pool("10.0.0.0/24"), "never opened, and a node has heard of it": made,
	} {
		p.Spec.Allocation = v1alpha1.AllocationStopped
		was := p.Status.Opening
		r := &Reconciler{}
		r.regs.observe(saying(regAt("a", 0), true, word), noon)
		for at := time.Duration(0); at < 8*time.Minute; at += recheckAfter {
			if got := lookAt(t, r, p, noon.Add(at)); got != v1alpha1.ReasonRestored || p.Status.Waited != "" {
				t.Fatalf("%s: after %v: %s, in epoch %s; want Restored, in that of before", name, at, got, kube.Epoch(p))
			}
		}
		got, epoch := lookAt(t, r, p, noon.Add(9*time.Minute)), kube.Epoch(p)
		if got != v1alpha1.ReasonStopped || epoch <= word || p.Status.Opening != was || p.Status.Leasing != v1alpha1.LeasingClosed {
			t.Errorf("%s: %s and %s, opened in %s, in epoch %s; want Stopped and Closed, not opened, and in one after %s", name, got, p.Status.Leasing, p.Status.Opening, epoch, word)
		}
		another := &Reconciler{}
		another.regs.observe(saying(regAt("a", 100), true, word), noon.Add(100*time.Minute))
		if got := lookAt(t, another, p, noon.Add(100*time.Minute)); got != v1alpha1.ReasonStopped || kube.Epoch(p) != epoch {
			t.Errorf("%s: another leader: %s, in epoch %s; want as it was", name, got, kube.Epoch(p))
		}
		p.Spec.Allocation = ""
		for range 3 {
			got = lookAt(t, another, p, noon.Add(101*time.Minute))
		}
		if got != v1alpha1.ReasonOpen || p.Status.Opening <= epoch || p.Status.Waited != "" {
			t.Errorf("%s: started: %s in epoch %s, waited in %s; want Open, in one after %s alone", name, got, p.Status.Opening, p.Status.Waited, epoch)
		}
	}
}

// TestWaitedBeforeAnythingWasWritten: a pool that was stopped already when the API server's data
// went back begins an epoch, too, where the controller could write nothing of it while it waited.
func TestWaitedBeforeAnythingWasWritten(t *testing.T) {
	p := with(pool("10.0.0.0/24"), open(32))
	p.Spec.Allocation = v1alpha1.AllocationStopped
	r := &Reconciler{}
	if got := lookAt(t, r, p, noon); got != v1alpha1.ReasonStopped || p.Status.Waited != "" {
		t.Fatalf("%s, waited in %q; want Stopped, and not waited", got, p.Status.Waited)
	}
	r.regs.observe(saying(regAt("a", 0), true, protocol.EpochAfter(noon.Add(-time.Hour))), noon)
	for at := time.Duration(0); at < 8*time.Minute; at += recheckAfter {
		if got := lookAt(t, r, p.DeepCopy(), noon.Add(at)); got != v1alpha1.ReasonRestored {
			t.Fatalf("after %v: %s; want Restored", at, got)
		}
	}
	for range 2 {
		if got := lookAt(t, r, p, noon.Add(8*time.Minute)); got != v1alpha1.ReasonStopped || p.Status.Waited == "" {
			t.Errorf("%s, waited in %q; want Stopped, and an epoch", got, p.Status.Waited)
		}
	}
}

// TestWordOfNobodys: a word that no controller wrote closes no pool: no epoch would ever be later.
func TestWordOfNobodys(t *testing.T) {
	epoch := protocol.EpochAfter(noon)
	for word, want := range map[string]bool{epoch: true, epoch[:11] + "~": false, "~": false, "1": false, epoch[:11] + "9" + epoch[13:]: false} {
		var l registrations
		l.observe(saying(regAt("a", 0), true, word), noon)
		if got := l.restoration("1", epochs{last: "~"}, false, noon) != nil; got != want {
			t.Errorf("%q: pools are closed: %v; want %v", word, got, want)
		}
	}
}

// TestStoppedPoolTakesSizes: a stopped pool, too, takes over the block size of what the nodes have
// put back, before they go by what it has: also where its spec has that size or cannot be read, and
// where it was never opened by the restored data, or its size was about to change.
func TestStoppedPoolTakesSizes(t *testing.T) {
	backup := with(pool("10.0.0.0/24"), closed(29))
	mended := backup.DeepCopy()
	mended.Spec.BlockSize = new(int32(16))
	never := mended.DeepCopy()
	never.Status = v1alpha1.IPPoolStatus{}
	changing := with(pool("10.0.0.0/24", "fd00::/64"), undecided, blockSize(8))
	for _, p := range []*v1alpha1.IPPool{backup, mended, never, changing} {
		invalid := p.DeepCopy()
		invalid.Spec.Ranges[0].CIDR = "10.0.0.0/99"
		takesSizes(t, p)
		takesSizes(t, invalid)
	}
}

func takesSizes(t *testing.T, p *v1alpha1.IPPool) {
	t.Helper()
	p.Spec.Allocation = v1alpha1.AllocationStopped
	r := &Reconciler{}
	r.regs.observe(saying(regAt("a", 0), true, protocol.EpochAfter(noon.Add(-time.Hour))), noon)
	for at := time.Duration(0); at <= 9*time.Minute; at += recheckAfter {
		got := lookAt(t, r, p, noon.Add(at), lease("10.0.0.0/28", "p1"))
		var bits int32
		if has := p.Status.BlockPrefixLengths; has != nil && has.IPv4 != nil {
			bits = *has.IPv4
		}
		if bits != 28 && (got == v1alpha1.ReasonStopped || got == v1alpha1.ReasonInvalidSpec || p.Status.Waited != "") {
			t.Fatalf("after %v: %s, with blocks of /%d, waited in %q", at, got, bits, p.Status.Waited)
		}
	}
	if p.Status.Waited == "" {
		t.Error("it still waits")
	}
}

// onlyPool is an API server with one pool, whose status can be patched.
type onlyPool struct {
	Live
	client.Client
	pool *v1alpha1.IPPool
}

func (o onlyPool) IPPools(context.Context) ([]v1alpha1.IPPool, error) {
	return []v1alpha1.IPPool{*o.pool}, nil
}

func (o onlyPool) Status() client.SubResourceWriter { return onlyStatus{pool: o.pool} }

type onlyStatus struct {
	client.SubResourceWriter
	pool *v1alpha1.IPPool
}

func (o onlyStatus) Patch(_ context.Context, into client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	raw, err := patch.Data(into)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, o.pool)
}

// TestClosedPoolsWaitToo: when a controller alone has seen the API server go back, the next leader
// opens no pool before the nodes had time to notice, also none that was about to be opened then,
// and lets go of none that is being deleted.
func TestClosedPoolsWaitToo(t *testing.T) {
	for name, change := range map[string]change{
		"its blocks get another size": func(p *v1alpha1.IPPool) {
			seen{pool: p, now: noon}.shut(&p.Status, v1alpha1.ReasonBlockSizeChanging, "blocks are about to have others")
		},
		"it is open":          func(*v1alpha1.IPPool) {},
		"it was never opened": func(p *v1alpha1.IPPool) { p.Status.Opening, p.Status.Leasing = "", "" },
		"it is being deleted": deleted,
	} {
		p := with(pool("10.0.0.0/24"), open(32), change)
		api := onlyPool{pool: p}
		if err := (&Reconciler{Live: api, Write: api, Now: func() time.Time { return noon }}).closeAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		next := &Reconciler{}
		next.regs.observe(regAt("a", 0), noon) // it has noticed nothing yet
		for at := time.Duration(0); at <= time.Minute; at += recheckAfter {
			if got := lookAt(t, next, p, noon.Add(at)); got != v1alpha1.ReasonRestored || p.Status.Leasing != v1alpha1.LeasingClosed {
				t.Errorf("%s: after %v: %s and %s; want Restored and Closed", name, at, got, p.Status.Leasing)
			}
		}
	}
}

// noPools is an API server without pools.
type noPools struct{ Live }

func (noPools) IPPools(context.Context) ([]v1alpha1.IPPool, error) { return nil, nil }

// revisions answers with one revision after another, and then ends.
type revisions struct {
	answers []protocol.Revision
	end     context.CancelFunc
}

func (a *revisions) Revision(context.Context) (protocol.Revision, error) {
	if len(a.answers) == 0 {
		a.end()
		return "", errors.New("no answer")
	}
	now := a.answers[0]
	a.answers = a.answers[1:]
	if now == "" {
		return "", errors.New("no answer")
	}
	return now, nil
}

// TestWatchRevision: only a revision below one that was seen before the call, by
// any call, shows that the API server has gone back.
func TestWatchRevision(t *testing.T) {
	for _, tt := range []struct {
		name    string
		wrote   protocol.Revision
		answers []protocol.Revision
		want    bool
	}{
		{"it goes on", "", []protocol.Revision{"9", "10", "10", "101"}, false},
		{"it goes back", "", []protocol.Revision{"101", "99"}, true},
		{"no answer says nothing", "", []protocol.Revision{"101", "", "102"}, false},
		{"below what was written", "101", []protocol.Revision{"99"}, true},
		{"no number", "", []protocol.Revision{"101", "x"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &Reconciler{Live: noPools{}, Log: slog.New(slog.DiscardHandler)}
				if tt.wrote != "" {
					r.saw(tt.wrote)
				}
				ctx, end := context.WithCancel(t.Context())
				if err := r.WatchRevision(ctx, &revisions{tt.answers, end}); errors.Is(err, errRewound) != tt.want {
					t.Errorf("ends with %v; want that it has gone back: %v", err, tt.want)
				}
				end()
			})
		})
	}
}

// TestNamesOneNode: of the nodes that say the same word one is named, and the same at each
// look: else each look would write the pool's status.
func TestNamesOneNode(t *testing.T) {
	var l registrations
	epoch := protocol.EpochAfter(noon)
	for _, node := range []string{"c", "a", "b", "d"} {
		l.observe(saying(regAt(node, 0), false, epoch), noon)
	}
	for range 50 {
		if r := l.restoration(epoch, epochs{last: epoch}, false, noon); r == nil || r.restoredNode != "a" {
			t.Fatalf("got %+v; want that a says so", r)
		}
	}
}

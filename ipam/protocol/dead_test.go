package protocol

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"
)

const testMargin = time.Minute

// deadFormer is a former agent of regSelf's registration, on a machine of its own.
func deadFormer(change func(*Former)) Former {
	f := Former{Store: "s0", Machine: "m0", Boot: "b0", NodeUID: "node0", Term: 1, Fence: 15 * time.Minute}
	if change != nil {
		change(&f)
	}
	return f
}

// TestJudge: who counts as dead, and when.
func TestJudge(t *testing.T) {
	const f = 15 * time.Minute
	same, other, none := Node{UID: "node"}, Node{UID: "node2"}, Node{}
	off := func(n Node) Node { n.Off = true; return n }
	forever := func(s *Registration) { s.Fence = 0 }
	unknown := func(s *Registration) { s.NodeUID = "" }
	ended := func(e Evidence) func(*Registration) {
		return func(s *Registration) { *s = EndTerm(*s, e) }
	}
	before := func(change func(*Former)) func(*Registration) {
		return func(s *Registration) { s.Former = []Former{deadFormer(change)} }
	}
	both := func(changes ...func(*Registration)) func(*Registration) {
		return func(s *Registration) {
			for _, c := range changes {
				c(s)
			}
		}
	}
	endedFormer := func(f *Former) { f.Ended = true }
	registeredAgain := func(s *Registration) { // the same store, in the term after the one that was ended
		store := s.Store
		*s = EndTerm(*s, EvidenceTaint)
		s.Store, s.Boot = store, "b1"
	}

	tests := []struct {
		name  string
		reg   func(*Registration)
		node  Node
		quiet time.Duration
		end   Evidence
		dead  []StoreID // taken over
		vouch []StoreID // of these, with the taint's word
		after time.Duration
	}{
		{name: "alive", node: same},
		{name: "silence alone changes nothing", node: same, quiet: 1000 * f},
		{name: "taint: at once", node: off(same), end: EvidenceTaint},
		{name: "taint, and F is 0", reg: forever, node: off(same), end: EvidenceTaint},
		{name: "Node gone, still heard of", node: none, after: f + testMargin},
		{name: "Node gone, silent for F", node: none, quiet: f, after: testMargin},
		{name: "Node gone, silent for F and the margin", node: none, quiet: f + testMargin, end: EvidenceSilence},
		{name: "Node made again", node: other, quiet: f + testMargin - 1, after: 1},
		{name: "Node made again, silent for F and the margin", node: other, quiet: f + testMargin, end: EvidenceSilence},
		{name: "Node gone, and F is 0: never by time", reg: forever, node: none, quiet: 1000 * f},
		{name: "Node made again, and F is 0: never by time", reg: forever, node: other, quiet: 1000 * f},
		{name: "Node made again with the taint, and F is 0: the only word there can be", reg: forever, node: off(other), end: EvidenceTaint},
		{name: "Node made again with the taint: it speaks of its own machine", node: off(other), quiet: f, after: testMargin},
		{name: "Node made again with the taint, silent for F and the margin", node: off(other), quiet: f + testMargin, end: EvidenceTaint},
		{name: "no Node known, and there is none", reg: unknown, node: none, quiet: f + testMargin, end: EvidenceSilence},
		{name: "no Node known, and there is one: it may be its own", reg: unknown, node: same, quiet: 1000 * f},
		{name: "no Node known, and there is one with the taint", reg: unknown, node: off(same), end: EvidenceTaint},

		{name: "ended: all that is left, at once, whatever the Node says", reg: ended(EvidenceSilence), node: same, dead: []StoreID{"s1"}},
		{name: "ended by the taint", reg: ended(EvidenceTaint), node: same, dead: []StoreID{"s1"}, vouch: []StoreID{"s1"}},
		{name: "ended by silence, then the taint on whatever Node", reg: ended(EvidenceSilence), node: off(other), dead: []StoreID{"s1"}, vouch: []StoreID{"s1"}},
		{name: "the same store is registered again: what it says anew is its own", reg: registeredAgain, node: same},

		{name: "another machine was registered: its Node is there", reg: before(func(f *Former) { f.NodeUID = "node" }), node: same, quiet: 1000 * f},
		{name: "another machine was registered, Node made again", reg: before(nil), node: same, quiet: f + testMargin, dead: []StoreID{"s0"}},
		{name: "another machine was registered, Node made again, not long enough", reg: before(nil), node: same, quiet: f, after: testMargin},
		{name: "another machine was registered, and its F is 0", reg: before(func(f *Former) { f.Fence = 0 }), node: same, quiet: 1000 * f},
		{name: "another machine was registered, ended", reg: before(endedFormer), node: same, dead: []StoreID{"s0"}},
		{name: "this machine's earlier store is its agent's business", reg: before(func(f *Former) { f.Machine = "m1" }), node: same, quiet: 1000 * f},
		{
			name: "this machine's earlier store, ended: the cluster's, whoever is registered",
			reg:  before(func(f *Former) { f.Machine, f.Ended = "m1", true }), node: same, dead: []StoreID{"s0"},
		},
		{
			name: "two machines under one Node, the taint: all",
			reg:  both(before(func(f *Former) { f.NodeUID = "node" }), ended(EvidenceTaint)), node: off(same), dead: []StoreID{"s0", "s1"}, vouch: []StoreID{"s0", "s1"},
		},
		{
			name: "ended, and another machine before it that may live",
			reg:  both(before(func(f *Former) { f.NodeUID = "node2" }), ended(EvidenceSilence)), node: other, quiet: 1000 * f, dead: []StoreID{"s1"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			reg := regOf(2, 4)
			if test.reg != nil {
				test.reg(&reg)
			}
			const first = 42 * time.Hour
			v := Vigil{}.See(reg, first)
			got := Judge(reg, v, test.node, testMargin, first+test.quiet)
			var dead, vouched []StoreID
			for _, d := range got.Dead {
				dead = append(dead, d.Store)
				if d.Vouched {
					vouched = append(vouched, d.Store)
				}
			}
			if got.End != test.end || !slices.Equal(dead, test.dead) || !slices.Equal(vouched, test.vouch) || got.After != test.after {
				t.Errorf("end %v, dead %v, vouched %v, after %v; want %v, %v, %v, %v",
					got.End, dead, vouched, got.After, test.end, test.dead, test.vouch, test.after)
			}
		})
	}
}

// TestVigil: silence is counted from when a heartbeat was first seen, whatever else
// changes the registration.
func TestVigil(t *testing.T) {
	reg := regOf(2, 4)
	reg.Former = []Former{deadFormer(nil)}
	v := Vigil{}.See(reg, 10)
	recalled := reg
	recalled.Revision, recalled.Writes, recalled.Recalls = "6", 5, []Recall{{ID: "r"}}
	recalled.Beat = reg.Beat.In(time.FixedZone("elsewhere", 3600))
	if got := v.See(recalled, 20).Silent(30); got != 20 {
		t.Errorf("after a recall silent for %d; want 20", got)
	}
	for name, change := range map[string]func(*Registration){
		"a heartbeat":  func(s *Registration) { s.Beat = s.Beat.Add(time.Microsecond) },
		"another term": func(s *Registration) { s.Term++ },
		"another store": func(s *Registration) {
			s.Store = "s2"
		},
		"another registration": func(s *Registration) { s.UID = "u2" },
	} {
		next := reg
		change(&next)
		if got := v.See(next, 20).Silent(30); got != 10 {
			t.Errorf("after %s silent for %d; want 10", name, got)
		}
	}

	// Former agents are counted on their own.
	more := recalled
	more.Beat = more.Beat.Add(time.Minute)
	more.Former = append(slices.Clone(reg.Former), deadFormer(func(f *Former) { f.Store, f.Term = "s7", 2 }))
	w := v.See(more, 20)
	for i, want := range []time.Duration{10, 20} {
		if since, ok := w.left(more.Former[i]); !ok || since != want {
			t.Errorf("%s is not registered since %d, %v; want %d", more.Former[i].Store, since, ok, want)
		}
	}
	again := more
	again.UID = "u2"
	if since, _ := w.See(again, 30).left(more.Former[0]); since != 30 {
		t.Errorf("of another registration, %s is not registered since %d; want 30", more.Former[0].Store, since)
	}
}

func TestEndTerm(t *testing.T) {
	reg := regOf(7, 4)
	reg.Recalls = []Recall{{ID: "r"}}
	reg.Former = []Former{deadFormer(nil), deadFormer(func(f *Former) { f.Store, f.Term, f.Ended = "s1", 5, true })}
	want := reg
	want.Store, want.Boot, want.Term, want.Writes, want.Recalls = "", "", 8, 5, nil
	want.Former = []Former{
		deadFormer(nil),
		{Store: "s1", Machine: "m1", Boot: "b1", NodeUID: "node", Term: 7, Fence: 15 * time.Minute, Ended: true, Vouched: true},
	}
	got := EndTerm(reg, EvidenceTaint)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v; want %+v", got, want)
	}
	if !got.Ended() || len(reg.Former) != 2 || reg.Former[1].Term != 5 {
		t.Errorf("the registration it was made of has changed to %+v", reg)
	}
	if got := EndTerm(reg, EvidenceSilence); got.Former[1].Vouched {
		t.Error("silence vouches")
	}
	for i := range 2 * formerMax {
		reg.Store, reg.Boot, reg.Term = StoreID(rune('a'+i)), "b", reg.Term+1
		reg = EndTerm(reg, EvidenceTaint)
	}
	if n := len(reg.Former); n != formerMax || reg.Former[n-1].Term != reg.Term-1 {
		t.Errorf("%d former registrants, the last of term %d; want %d, %d", n, reg.Former[n-1].Term, formerMax, reg.Term-1)
	}
}

// TestTake: what of a dead registrant is taken, and how it looks then.
func TestTake(t *testing.T) {
	reg := regOf(7, 4)
	reg.Former = []Former{deadFormer(nil)}
	reg = EndTerm(reg, EvidenceSilence)
	d := Judge(reg, Vigil{}.See(reg, 0), Node{}, testMargin, 0).Dead[0]
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	grants := []Grant{{Addr: b, To: Grantee{Kind: GranteeClaim, UID: "c"}}}
	lease := Lease{
		Meta: Meta{Name: "l", UID: "u", Revision: "9"}, Protocol: Version, Pool: "lan", Block: netip.MustParsePrefix("10.0.0.0/30"),
		Holder: Holder{Node: "n1"}, Store: "s1", Term: 7, Writes: 3, Ceded: []netip.Addr{a, b}, Grants: grants,
	}
	want := lease
	want.Holder, want.Store, want.Term, want.Writes, want.Ceded = Holder{Cluster: true}, "", 0, 4, nil
	if got, ok := d.TakeLease(lease, "n1", false); !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, ok, want)
	}
	vouched := d
	vouched.Vouched = true
	use := &Use{Claim: ClaimRef{UID: "c"}}
	for _, test := range []struct {
		name      string
		d         Dead
		change    func(*Lease, *SubLease)
		confirmed bool // and held: the claim has grants in such a pool
		lease     bool
		sub       bool
	}{
		{"its own", d, func(*Lease, *SubLease) {}, false, true, true},
		{"of an earlier term", d, func(l *Lease, s *SubLease) { l.Term, s.Term = 2, 2 }, false, true, true},
		{"said anew in a later term", d, func(l *Lease, s *SubLease) { l.Term, s.Term = 8, 8 }, false, false, false},
		{"a store that the registration does not know", d, func(l *Lease, s *SubLease) { l.Store, s.Store = "s5", "s5" }, false, true, true},
		{"a store that the registration knows as another's", d, func(l *Lease, s *SubLease) { l.Store, s.Store = "s0", "s0" }, false, false, false},
		{"another node's", d, func(l *Lease, s *SubLease) { l.Holder.Node, s.Node = "n2", "n2" }, false, false, false},
		{"the cluster's", d, func(l *Lease, s *SubLease) { l.Holder, l.Store, l.Term, s.Node = Holder{Cluster: true}, "", 0, "n2" }, false, false, false},
		{"written by a newer program", d, func(l *Lease, s *SubLease) { l.Protocol, s.Protocol = Version+1, Version+1 }, false, false, false},
		{"of a pool that asks for somebody who vouches", d, func(*Lease, *SubLease) {}, true, false, false},
		{"of such a pool, and somebody does", vouched, func(*Lease, *SubLease) {}, true, true, true},
	} {
		l, s := lease.Clone(), SubLease{Meta: Meta{UID: "s"}, Protocol: Version, Node: "n1", Store: "s1", Term: 7, Use: use}
		test.change(&l, &s)
		if _, ok := test.d.TakeLease(l, "n1", test.confirmed); ok != test.lease {
			t.Errorf("%s: lease taken: %v; want %v", test.name, ok, test.lease)
		}
		for kind, held := range map[string]map[UID]bool{"use": {"c": true}, "request": {"s": true}} {
			if !test.confirmed {
				held = nil
			}
			s := s
			if kind == "request" {
				s.Use = nil
			}
			if ok := test.d.TakesSubLease(s, "n1", held); ok != test.sub {
				t.Errorf("%s: %s deleted: %v; want %v", test.name, kind, ok, test.sub)
			}
		}
	}

	// Where an agent is registered, strays are left alone.
	reg.Store, reg.Machine, reg.Boot = "s2", "m2", "b2"
	d = Judge(reg, Vigil{}.See(reg, 0), Node{}, testMargin, 0).Dead[0]
	if _, ok := d.TakeLease(lease, "n1", false); !ok {
		t.Error("what is left of an ended term is not taken when another is registered")
	}
	lease.Store = "s5"
	if _, ok := d.TakeLease(lease, "n1", false); ok {
		t.Error("a stray is taken while an agent is registered")
	}
}

func TestSettle(t *testing.T) {
	reg := regOf(7, 4)
	own := deadFormer(func(f *Former) { f.Store, f.Term = "s1", 5 })
	left, empty := deadFormer(nil), deadFormer(func(f *Former) { f.Store = "s2" })
	reg.Former = []Former{left, own, empty}
	v := Vigil{}.See(reg, 0)
	stores := map[StoreID]bool{"s0": true, "s1": true}
	next, ok := Settle(reg, v, stores, LastRecheck-1)
	if !ok || next.Writes != 5 || !reflect.DeepEqual(next.Former, []Former{left, empty}) {
		t.Errorf("early: %+v, %v; want all but the registrant's own", next.Former, ok)
	}
	if next, ok = Settle(reg, v, stores, LastRecheck); !ok || !reflect.DeepEqual(next.Former, []Former{left}) {
		t.Errorf("later: %+v, %v; want whose lease is left", next.Former, ok)
	}
	if _, ok = Settle(next, v, stores, LastRecheck); ok {
		t.Error("it settles what is settled")
	}

	for _, test := range []struct {
		name string
		reg  Registration
		node Node
		want bool
	}{
		{"occupied", Registration{Store: "s1"}, Node{}, false},
		{"something left", Registration{Former: []Former{left}}, Node{}, false},
		{"the Node is there", Registration{}, Node{UID: "node"}, false},
		{"nothing left", Registration{}, Node{}, true},
	} {
		if got := Abandoned(test.reg, test.node); got != test.want {
			t.Errorf("%s: abandoned %v; want %v", test.name, got, test.want)
		}
	}
}

package protocol

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"
)

const testMargin = time.Minute

// deadFormer is one who sat on seatSelf's seat before, on a machine of its own.
func deadFormer(change func(*Former)) Former {
	f := Former{Store: "s0", Machine: "m0", Boot: "b0", NodeUID: "node0", Term: 1, Fence: 15 * time.Minute}
	if change != nil {
		change(&f)
	}
	return f
}

// TestJudge: who counts as dead, and when (F2, H6, H10, M17, M18, M48).
func TestJudge(t *testing.T) {
	const f = 15 * time.Minute
	same, other, none := Node{UID: "node"}, Node{UID: "node2"}, Node{}
	off := func(n Node) Node { n.Off = true; return n }
	forever := func(s *Seat) { s.Fence = 0 }
	unknown := func(s *Seat) { s.NodeUID = "" }
	ended := func(e Evidence) func(*Seat) {
		return func(s *Seat) { *s = EndTerm(*s, e) }
	}
	before := func(change func(*Former)) func(*Seat) {
		return func(s *Seat) { s.Former = []Former{deadFormer(change)} }
	}
	both := func(changes ...func(*Seat)) func(*Seat) {
		return func(s *Seat) {
			for _, c := range changes {
				c(s)
			}
		}
	}
	endedFormer := func(f *Former) { f.Ended = true }
	sitsAgain := func(s *Seat) { // the same store, in the term after the one that was ended
		store := s.Store
		*s = EndTerm(*s, EvidenceTaint)
		s.Store, s.Boot = store, "b1"
	}

	tests := []struct {
		name  string
		seat  func(*Seat)
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
		{name: "taint, and F is 0", seat: forever, node: off(same), end: EvidenceTaint},
		{name: "Node gone, still heard of", node: none, after: f + testMargin},
		{name: "Node gone, silent for F", node: none, quiet: f, after: testMargin},
		{name: "Node gone, silent for F and the margin", node: none, quiet: f + testMargin, end: EvidenceSilence},
		{name: "X20 Node made again", node: other, quiet: f + testMargin - 1, after: 1},
		{name: "X20 Node made again, silent for F and the margin", node: other, quiet: f + testMargin, end: EvidenceSilence},
		{name: "Node gone, and F is 0: never by time", seat: forever, node: none, quiet: 1000 * f},
		{name: "Node made again, and F is 0: never by time", seat: forever, node: other, quiet: 1000 * f},
		{name: "Node made again with the taint, and F is 0: the only word there can be", seat: forever, node: off(other), end: EvidenceTaint},
		{name: "Node made again with the taint: it speaks of its own machine", node: off(other), quiet: f, after: testMargin},
		{name: "Node made again with the taint, silent for F and the margin", node: off(other), quiet: f + testMargin, end: EvidenceTaint},
		{name: "no Node known, and there is none", seat: unknown, node: none, quiet: f + testMargin, end: EvidenceSilence},
		{name: "no Node known, and there is one: it may be its own", seat: unknown, node: same, quiet: 1000 * f},
		{name: "no Node known, and there is one with the taint", seat: unknown, node: off(same), end: EvidenceTaint},

		{name: "ended: all that is left, at once, whatever the Node says", seat: ended(EvidenceSilence), node: same, dead: []StoreID{"s1"}},
		{name: "ended by the taint", seat: ended(EvidenceTaint), node: same, dead: []StoreID{"s1"}, vouch: []StoreID{"s1"}},
		{name: "ended by silence, then the taint on whatever Node", seat: ended(EvidenceSilence), node: off(other), dead: []StoreID{"s1"}, vouch: []StoreID{"s1"}},
		{name: "M20 the same store sits again: what it says anew is its own", seat: sitsAgain, node: same},

		{name: "M48 another machine sat there: its Node is there", seat: before(func(f *Former) { f.NodeUID = "node" }), node: same, quiet: 1000 * f},
		{name: "another machine sat there, Node made again", seat: before(nil), node: same, quiet: f + testMargin, dead: []StoreID{"s0"}},
		{name: "another machine sat there, Node made again, not long enough", seat: before(nil), node: same, quiet: f, after: testMargin},
		{name: "another machine sat there, and its F is 0", seat: before(func(f *Former) { f.Fence = 0 }), node: same, quiet: 1000 * f},
		{name: "another machine sat there, ended", seat: before(endedFormer), node: same, dead: []StoreID{"s0"}},
		{name: "this machine's earlier store is its agent's business", seat: before(func(f *Former) { f.Machine = "m1" }), node: same, quiet: 1000 * f},
		{
			name: "this machine's earlier store, ended: the cluster's, whoever sits there",
			seat: before(func(f *Former) { f.Machine, f.Ended = "m1", true }), node: same, dead: []StoreID{"s0"},
		},
		{
			name: "two machines under one Node, the taint: all",
			seat: both(before(func(f *Former) { f.NodeUID = "node" }), ended(EvidenceTaint)), node: off(same), dead: []StoreID{"s0", "s1"}, vouch: []StoreID{"s0", "s1"},
		},
		{
			name: "ended, and another machine before it that may live",
			seat: both(before(func(f *Former) { f.NodeUID = "node2" }), ended(EvidenceSilence)), node: other, quiet: 1000 * f, dead: []StoreID{"s1"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			seat := seatOf(2, 4)
			if test.seat != nil {
				test.seat(&seat)
			}
			const first = 42 * time.Hour
			v := Vigil{}.See(seat, first)
			got := Judge(seat, v, test.node, testMargin, first+test.quiet)
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
// changes the seat.
func TestVigil(t *testing.T) {
	seat := seatOf(2, 4)
	seat.Former = []Former{deadFormer(nil)}
	v := Vigil{}.See(seat, 10)
	recalled := seat
	recalled.Revision, recalled.Turn, recalled.Recalls = "6", 5, []Recall{{ID: "r"}}
	recalled.Beat = seat.Beat.In(time.FixedZone("elsewhere", 3600))
	if got := v.See(recalled, 20).Silent(30); got != 20 {
		t.Errorf("after a recall silent for %d; want 20", got)
	}
	for name, change := range map[string]func(*Seat){
		"a heartbeat":  func(s *Seat) { s.Beat = s.Beat.Add(time.Microsecond) },
		"another term": func(s *Seat) { s.Term++ },
		"another store": func(s *Seat) {
			s.Store = "s2"
		},
		"another seat": func(s *Seat) { s.UID = "u2" },
	} {
		next := seat
		change(&next)
		if got := v.See(next, 20).Silent(30); got != 10 {
			t.Errorf("after %s silent for %d; want 10", name, got)
		}
	}

	// Those who sat there before are counted on their own.
	more := recalled
	more.Beat = more.Beat.Add(time.Minute)
	more.Former = append(slices.Clone(seat.Former), deadFormer(func(f *Former) { f.Store, f.Term = "s7", 2 }))
	w := v.See(more, 20)
	for i, want := range []time.Duration{10, 20} {
		if since, ok := w.left(more.Former[i]); !ok || since != want {
			t.Errorf("%s sits there no more since %d, %v; want %d", more.Former[i].Store, since, ok, want)
		}
	}
	again := more
	again.UID = "u2"
	if since, _ := w.See(again, 30).left(more.Former[0]); since != 30 {
		t.Errorf("of another seat, %s sits there no more since %d; want 30", more.Former[0].Store, since)
	}
}

func TestEndTerm(t *testing.T) {
	seat := seatOf(7, 4)
	seat.Recalls = []Recall{{ID: "r"}}
	seat.Former = []Former{deadFormer(nil), deadFormer(func(f *Former) { f.Store, f.Term, f.Ended = "s1", 5, true })}
	want := seat
	want.Store, want.Boot, want.Term, want.Turn, want.Recalls = "", "", 8, 5, nil
	want.Former = []Former{
		deadFormer(nil),
		{Store: "s1", Machine: "m1", Boot: "b1", NodeUID: "node", Term: 7, Fence: 15 * time.Minute, Ended: true, Vouched: true},
	}
	got := EndTerm(seat, EvidenceTaint)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v; want %+v", got, want)
	}
	if !got.Ended() || len(seat.Former) != 2 || seat.Former[1].Term != 5 {
		t.Errorf("the seat it was made of has changed to %+v", seat)
	}
	if got := EndTerm(seat, EvidenceSilence); got.Former[1].Vouched {
		t.Error("silence vouches")
	}
	for i := range 2 * formerMax {
		seat.Store, seat.Boot, seat.Term = StoreID(rune('a'+i)), "b", seat.Term+1
		seat = EndTerm(seat, EvidenceTaint)
	}
	if n := len(seat.Former); n != formerMax || seat.Former[n-1].Term != seat.Term-1 {
		t.Errorf("%d former occupants, the last of term %d; want %d, %d", n, seat.Former[n-1].Term, formerMax, seat.Term-1)
	}
}

// TestTake: what of a dead occupant is taken, and how it looks then (M45).
func TestTake(t *testing.T) {
	seat := seatOf(7, 4)
	seat.Former = []Former{deadFormer(nil)}
	seat = EndTerm(seat, EvidenceSilence)
	d := Judge(seat, Vigil{}.See(seat, 0), Node{}, testMargin, 0).Dead[0]
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	grants := []Grant{{Addr: b, To: Grantee{Kind: GranteeClaim, UID: "c"}}}
	lease := Lease{
		Meta: Meta{Name: "l", UID: "u", Revision: "9"}, Protocol: Version, Pool: "lan", Block: netip.MustParsePrefix("10.0.0.0/30"),
		Holder: Holder{Node: "n1"}, Store: "s1", Term: 7, Turn: 3, Ceded: []netip.Addr{a, b}, Grants: grants,
	}
	want := lease
	want.Holder, want.Store, want.Term, want.Turn, want.Ceded = Holder{Cluster: true}, "", 0, 4, nil
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
		{"M45 said anew in a later term", d, func(l *Lease, s *SubLease) { l.Term, s.Term = 8, 8 }, false, false, false},
		{"a store that the seat does not know", d, func(l *Lease, s *SubLease) { l.Store, s.Store = "s5", "s5" }, false, true, true},
		{"M48 a store that the seat knows as another's", d, func(l *Lease, s *SubLease) { l.Store, s.Store = "s0", "s0" }, false, false, false},
		{"another node's", d, func(l *Lease, s *SubLease) { l.Holder.Node, s.Node = "n2", "n2" }, false, false, false},
		{"the cluster's", d, func(l *Lease, s *SubLease) { l.Holder, l.Store, l.Term, s.Node = Holder{Cluster: true}, "", 0, "n2" }, false, false, false},
		{"X25 written by a newer program", d, func(l *Lease, s *SubLease) { l.Protocol, s.Protocol = Version+1, Version+1 }, false, false, false},
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

	// On a seat where somebody sits, strays are left alone.
	seat.Store, seat.Machine, seat.Boot = "s2", "m2", "b2"
	d = Judge(seat, Vigil{}.See(seat, 0), Node{}, testMargin, 0).Dead[0]
	if _, ok := d.TakeLease(lease, "n1", false); !ok {
		t.Error("what is left of an ended term is not taken when another sits there")
	}
	lease.Store = "s5"
	if _, ok := d.TakeLease(lease, "n1", false); ok {
		t.Error("a stray is taken while somebody sits there")
	}
}

func TestSettle(t *testing.T) {
	seat := seatOf(7, 4)
	own := deadFormer(func(f *Former) { f.Store, f.Term = "s1", 5 })
	left, empty := deadFormer(nil), deadFormer(func(f *Former) { f.Store = "s2" })
	seat.Former = []Former{left, own, empty}
	v := Vigil{}.See(seat, 0)
	stores := map[StoreID]bool{"s0": true, "s1": true}
	next, ok := Settle(seat, v, stores, LooksLast-1)
	if !ok || next.Turn != 5 || !reflect.DeepEqual(next.Former, []Former{left, empty}) {
		t.Errorf("early: %+v, %v; want all but the occupant's own", next.Former, ok)
	}
	if next, ok = Settle(seat, v, stores, LooksLast); !ok || !reflect.DeepEqual(next.Former, []Former{left}) {
		t.Errorf("later: %+v, %v; want whose lease is left", next.Former, ok)
	}
	if _, ok = Settle(next, v, stores, LooksLast); ok {
		t.Error("it settles what is settled")
	}

	for _, test := range []struct {
		name string
		seat Seat
		node Node
		want bool
	}{
		{"occupied", Seat{Store: "s1"}, Node{}, false},
		{"something left", Seat{Former: []Former{left}}, Node{}, false},
		{"the Node is there", Seat{}, Node{UID: "node"}, false},
		{"nothing left", Seat{}, Node{}, true},
	} {
		if got := Abandoned(test.seat, test.node); got != test.want {
			t.Errorf("%s: abandoned %v; want %v", test.name, got, test.want)
		}
	}
}

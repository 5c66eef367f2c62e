package grants

import (
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestStamp: an answer has the ask's stamp only if every grant was shown by a call
// that began after the ask came. What a watch shows, or a call that was under way,
// may be older than the version of the grantee that led to the ask.
func TestStamp(t *testing.T) {
	tests := []struct {
		name  string
		shows func(b *book, l protocol.Lease, before uint64)
		want  protocol.Revision
	}{
		{"by a watch", func(b *book, l protocol.Lease, _ uint64) { b.Observe(l, 0) }, ""},
		{"by a call that was under way", func(b *book, l protocol.Lease, before uint64) { b.Observe(l, before) }, ""},
		{"by a call since", func(b *book, l protocol.Lease, _ uint64) { b.Observe(l, b.begin()) }, "7"},
		{"by a watch, and then by a call", func(b *book, l protocol.Lease, _ uint64) {
			b.Observe(l, 0)
			b.Observe(l, b.begin())
		}, "7"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBook(time.Now)
			pool := lan(t, "lan", "10.0.0.0/24")
			pool.Revision = "1"
			b.setPool(pool)
			before := b.begin()
			a := ask("a", "lan")
			a.Stamp = "7"
			if got := b.ask(a, never); len(got.Granted) > 0 {
				t.Fatalf("granted %v without a lease", got.Granted)
			}
			block := netip.MustParsePrefix("10.0.0.5/32")
			tt.shows(b, protocol.Lease{
				Meta: protocol.Meta{Name: protocol.LeaseName("lan", block), UID: "l1", Revision: "2"}, Protocol: protocol.Version,
				Pool: "lan", PoolUID: pool.UID, Block: block, Holder: protocol.Holder{Cluster: true},
				Grants: []protocol.Grant{{Addr: block.Addr(), To: a.To}},
			}, before)
			if got := b.ask(a, never); len(got.Granted) != 1 || got.Stamp != tt.want {
				t.Errorf("granted %v with stamp %q; want one address with stamp %q", got.Granted, got.Stamp, tt.want)
			}
			b.withdraw(a.To.UID)
			if got := b.ask(a, never); len(got.Granted) != 1 || got.Stamp != "" {
				t.Errorf("asked anew: granted %v with stamp %q; want one address without", got.Granted, got.Stamp)
			}
		})
	}
}

// TestBlockSizeOfTheBook: blocks of two sizes are never open at once, in whatever
// order the news comes.
func TestBlockSizeOfTheBook(t *testing.T) {
	b := newBook(time.Now)
	lease := func(cidr, revision string) protocol.Lease {
		block := netip.MustParsePrefix(cidr)
		return protocol.Lease{
			Meta:     protocol.Meta{Name: protocol.LeaseName("lan", block), UID: protocol.UID("l" + revision), Revision: protocol.Revision(revision)},
			Protocol: protocol.Version, Pool: "lan", PoolUID: "p-lan", Block: block, Holder: protocol.Holder{Cluster: true},
		}
	}
	b.Observe(lease("10.0.0.0/30", "1"), 0) // before its pool
	b.Observe(lease("10.0.0.0/32", "2"), 0)
	pool := lan(t, "lan", "10.0.0.0/24")
	for i, bits := range []int{32, 30, 32} {
		pool.Bits4, pool.Revision, pool.Generation = bits, protocol.Revision([]string{"3", "4", "5"}[i]), int64(i+1)
		b.setPool(pool)
		for block, l := range b.pools["lan"].leases {
			if l.open != (block.Bits() == bits) {
				t.Errorf("blocks of /%d: %v open: %v", bits, block, l.open)
			}
		}
	}
	if idle := b.idle(time.Now(), time.Minute, 10); len(idle) != 1 || idle[0].Name != "lan.0a000000.30" {
		t.Errorf("to be given back: %v; want the lease of another size", idle)
	}
	b.dropPool("lan", "p-lan")
	for block, l := range b.pools["lan"].leases {
		if l.open {
			t.Errorf("%v is open without a pool", block)
		}
	}
}

// TestIdleWhileRestored: an empty lease of the cluster's goes back at once while nodes
// put back what they hold: one of them may hold the block since it was given back, and
// waits for it no longer than the pool is closed. One with a grant stays.
func TestIdleWhileRestored(t *testing.T) {
	b := newBook(time.Now)
	pool := lan(t, "lan", "10.0.0.0/24")
	pool.Revision, pool.Open = "1", true
	b.setPool(pool)
	empty, granted := netip.MustParsePrefix("10.0.0.4/32"), netip.MustParsePrefix("10.0.0.5/32")
	l := protocol.Lease{
		Meta:     protocol.Meta{Name: protocol.LeaseName("lan", empty), UID: "l1", Revision: "2"},
		Protocol: protocol.Version, Pool: "lan", PoolUID: "p-lan", Block: empty, Holder: protocol.Holder{Cluster: true},
	}
	b.Observe(l, 0)
	l.Name, l.UID, l.Revision, l.Block = protocol.LeaseName("lan", granted), "l2", "3", granted
	l.Grants = []protocol.Grant{{Addr: granted.Addr(), To: ask("a", "lan").To}}
	b.Observe(l, 0)
	now := time.Now()
	if idle := b.idle(now, time.Minute, 10); len(idle) > 0 {
		t.Fatalf("%v is to be given back at once, though the pool is open", idle)
	}
	pool.Revision, pool.Open, pool.Restored = "4", false, true
	b.setPool(pool)
	if idle := b.idle(now, time.Minute, 10); len(idle) != 1 || idle[0].UID != "l1" {
		t.Errorf("to be given back: %v; want the empty lease alone", idle)
	}
}

// TestChangeWhileClosing: a lease may show other grants and be of no use any more in
// one step. A book that gave its space back by the new grants would contradict it,
// and take the controller down.
func TestChangeWhileClosing(t *testing.T) {
	b := newBook(time.Now)
	pool := lan(t, "lan", "10.0.0.0/24")
	pool.Revision = "1"
	b.setPool(pool)
	block := netip.MustParsePrefix("10.0.0.5/32")
	l := protocol.Lease{
		Meta: protocol.Meta{Name: protocol.LeaseName("lan", block), UID: "l1", Revision: "2"}, Protocol: protocol.Version,
		Pool: "lan", PoolUID: pool.UID, Block: block, Holder: protocol.Holder{Cluster: true},
		Grants: []protocol.Grant{{Addr: block.Addr(), To: ask("a", "lan").To}},
	}
	b.Observe(l, 0)
	gone := l.Clone()
	gone.Revision, gone.Deleting, gone.Grants = "3", true, nil
	b.Observe(gone, 0)
	full := l.Clone()
	full.Revision, full.UID = "4", "l2"
	b.Observe(full, 0)
	if held := b.heldBy("u-a"); len(held) != 1 {
		t.Errorf("got %v; want the grant on the second lease", held)
	}
}

// A lease that somebody has written by hand may have grants to one UID under two names. What goes
// leaves nothing behind, and what stays is known by its own name.
func TestGrantsToOneUIDUnderTwoNames(t *testing.T) {
	for _, kind := range []protocol.GranteeKind{protocol.GranteeClaim, protocol.GranteePod} {
		b := newBook(time.Now)
		grant := func(addr, name string) protocol.Grant {
			return protocol.Grant{Addr: netip.MustParseAddr(addr), To: protocol.Grantee{Kind: kind, UID: "u", Namespace: "ns", Name: name}}
		}
		first, second := grant("10.0.0.5", "a"), grant("10.0.0.6", "b")
		lease := protocol.Lease{Pool: "lan", Block: netip.MustParsePrefix("10.0.0.0/28")}
		with := func(grants ...protocol.Grant) protocol.Lease { l := lease; l.Grants = grants; return l }
		b.index(lease, with(first, second))
		if got := b.kept(); kind == protocol.GranteePod && len(got) != 2 {
			t.Errorf("kept %v; want each address once", got)
		}
		b.index(with(first, second), with(second))
		if got := b.granteesOfKind(kind); len(got) != 1 || got[0].Name != "b" {
			t.Errorf("%s: after the first has gone: known %v; want b", kind, got)
		}
		b.index(with(second), lease)
		if len(b.names)+len(b.held) > 0 {
			t.Errorf("%s: %v and %v are left", kind, b.names, b.held)
		}
	}
}

// TestPoolSeenLiveFirst: what a live read has shown of a pool first is news all the same
// when the watch shows it: with the rest of what there is to know of it, and for asks
// that have come to wait since.
func TestPoolSeenLiveFirst(t *testing.T) {
	b := newBook(time.Now)
	pool := lan(t, "lan", "10.0.0.0/24")
	pool.Revision = "1"
	b.setPool(pool)
	now := pool
	now.Revision, now.Open = "2", false
	b.correct("lan", pool.UID, now.Pool, true)
	b.ask(ask("a", "lan"), never)
	r := b.plan(b.take(1, time.Now()), nil, time.Now())
	b.finish(r, time.Now())
	if got := b.ask(ask("a", "lan"), never); got.Problem.Reason != PoolNotReady || b.pending() {
		t.Fatalf("problem %v, ready %v; want %v and an ask that waits", got.Problem.Reason, b.pending(), PoolNotReady)
	}
	now.Restored = true
	if !b.setPool(now) || !b.pools["lan"].state.Restored {
		t.Error("that the API server's data went back in time is not noticed")
	}
	if !b.pending() {
		t.Error("the ask that waits is not tried again")
	}
	if b.setPool(now) {
		t.Error("the same a second time is news")
	}
}

// TestLateAnswerAboutAPool: a pool was made again while a live read was under way, and
// the watch was faster than the answer. Nobody tells the book again that the pool is open.
func TestLateAnswerAboutAPool(t *testing.T) {
	old := lan(t, "lan", "10.0.0.0/24")
	old.Revision = "1"
	tests := []struct {
		name  string
		live  protocol.Pool
		there bool
	}{
		{"it was not there", protocol.Pool{}, false},
		{"it was the one before", old.Pool, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBook(time.Now)
			b.setPool(old)
			b.dropPool("lan", old.UID)
			again := old
			again.UID, again.Revision = "p-again", "3"
			b.setPool(again)
			b.correct("lan", old.UID, tt.live, tt.there)
			if !b.pools["lan"].state.Open {
				t.Error("the book has the pool closed")
			}
		})
	}
}

// TestAskWhileItIsTriedAgain: while an ask is about to be tried again it has no
// problem, and its grantee hears what comes of it, also if that is the same as before.
// One that gave back what it has of two addresses, on the word of an earlier try, would
// get the other, and so on for ever.
func TestAskWhileItIsTriedAgain(t *testing.T) {
	now := time.Now()
	b := newBook(time.Now)
	closed := lan(t, "lan", "10.0.0.0/24")
	closed.Revision, closed.Open = "1", false
	b.setPool(closed)
	a := ask("a", "lan")
	try := func() (told bool) {
		return len(b.plan(b.take(10, now), nil, now).news) > 0
	}
	b.ask(a, never)
	if told := try(); !told {
		t.Fatal("the grantee has not been told that the pool is closed")
	}
	if got := b.ask(a, never).Problem.Reason; got != PoolNotReady {
		t.Fatalf("the problem is %v; want %v", got, PoolNotReady)
	}
	b.wake(b.pool("lan"))
	if got := b.ask(a, never).Problem; got != (Problem{}) {
		t.Errorf("about to be tried again, the problem is %v; want none", got)
	}
	if told := try(); !told {
		t.Error("the grantee was told that there is no problem, and then nothing")
	}
	b.wake(b.pool("lan"))
	if told := try(); told {
		t.Error("the grantee was told again of what it knew")
	}
}

// TestEditedWhileLeasing: a range is taken out of a pool after a block of it was
// chosen, and the watch is faster than the live read that follows the lease. What is
// compared with the pool is the spec by which the block was chosen, not the one that is
// known by then: the block may be another pool's.
func TestEditedWhileLeasing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calm()
		b, err := New(DefaultConfig(), s, Notify{}, NewMetrics(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		edit := func(generation int64, cidr string) {
			pool := lan(t, "lan", cidr)
			pool.Generation, pool.Pool.Generation = generation, generation
			s.setPool(pool)
			pool.Pool = s.pools["lan"]
			b.SetPool(pool)
		}
		edit(1, "10.0.0.0/24")
		b.Ask(ask("a", "lan"))
		r := b.book.plan(b.book.take(1, time.Now()), nil, time.Now())
		edit(2, "10.9.0.0/24")
		for _, wr := range r.order {
			b.create(t.Context(), wr)
		}
		b.confirm(t.Context(), r.order)
		if got := r.order[0].refused.Reason; got != PoolNotReady {
			t.Errorf("a grant on %s is refused for %v; want %v", r.order[0].start.Name, got, PoolNotReady)
		}
		if len(s.leases) > 0 {
			t.Errorf("the lease stays: %v", s.leases)
		}
	})
}

// TestEditedPool: what an edit has added pods of another IPAM may have, and until the
// controller has seen the edit nothing says so. Nothing of the pool is granted before,
// also on a lease that is the cluster's already, and also where a live read has shown
// first that the controller has seen it: what is withheld since comes with the watch.
func TestEditedPool(t *testing.T) {
	b := newBook(time.Now)
	pool := lan(t, "lan", "10.0.0.0/30")
	pool.Revision = "1"
	b.setPool(pool)
	edited := lan(t, "lan", "10.0.0.0/24")
	edited.Revision, edited.Generation, edited.Edited = "2", 2, true
	asked := func(want Reason) {
		t.Helper()
		_, bad := b.expand(ask("a", "lan"))
		if bad.Reason != want {
			t.Errorf("the ask waits for %v; want %v", bad.Reason, want)
		}
	}
	asked(NoProblem)
	b.setPool(edited)
	asked(PoolNotReady)
	accepted := edited.Pool
	accepted.Revision, accepted.Edited = "3", false
	b.correct("lan", edited.UID, accepted, true)
	asked(PoolNotReady)
	edited.Pool, edited.Unpooled, edited.Shape = accepted, "10.0.0.3-10.0.0.254", pool.Shape
	b.setPool(edited)
	asked(NoProblem)
}

// TestSpecOfTheAsk: an ask was made by one spec of its pool, or before there was a pool.
// While the pool has another spec, nothing is granted.
func TestSpecOfTheAsk(t *testing.T) {
	b := newBook(time.Now)
	asked := func(by Spec, want Reason) {
		t.Helper()
		a := ask("a", "lan")
		a.From[0].Spec = &by
		b.ask(a, never)
		waiter := b.queue.asks[a.To.UID]
		if _, bad := b.expand(waiter.ask); bad.Reason != want {
			t.Errorf("by spec %v the ask waits for %v; want %v", by, bad.Reason, want)
		}
	}
	asked(Spec{}, PoolMissing)
	pool := lan(t, "lan", "10.0.0.0/30")
	pool.Revision = "1"
	b.setPool(pool)
	asked(Spec{}, PoolNotReady)
	asked(Spec{pool.UID, 1}, NoProblem)
	pool.Revision, pool.Generation = "2", 2
	b.setPool(pool)
	asked(Spec{pool.UID, 1}, PoolNotReady)
	asked(Spec{"p-before", 2}, PoolNotReady)
	asked(Spec{pool.UID, 2}, NoProblem)
}

// What hinders one address that is kept for a grantee hinders no other address of the same one.
func TestObstaclesAreOfOneAddress(t *testing.T) {
	ofSeveral := protocol.Grantee{Kind: protocol.GranteePod, UID: "p"}.ToSeveral()
	adds := func(addr string) edit {
		return edit{verb: add, grant: protocol.Grant{Addr: netip.MustParseAddr(addr), To: ofSeveral}}
	}
	lan := &pool{name: "lan"}
	r := &round{order: []*write{{pool: lan, err: errBusy, edits: []edit{adds("10.0.0.5")}}, {pool: lan, edits: []edit{adds("10.1.0.5")}}}}
	found := r.obstacles()
	if a, b := found[keepKey("lan", ofSeveral.UID, netip.MustParseAddr("10.0.0.5"))], found[keepKey("lan", ofSeveral.UID, netip.MustParseAddr("10.1.0.5"))]; a == nil || b != nil {
		t.Errorf("10.0.0.5 is hindered: %v, 10.1.0.5: %v; want the first alone", a != nil, b != nil)
	}
}

// Who asks for addresses of pools that are not there, or makes leases of such, leaves nothing in
// the book once he has gone: any name can be made up.
func TestForgetsPoolsThatWereNeverThere(t *testing.T) {
	b := newBook(time.Now)
	b.ask(ask("a", "made-up"), never)
	b.plan(b.take(1, time.Now()), nil, time.Now())
	if b.pools["made-up"] == nil {
		t.Error("nobody waits for the pool")
	}
	b.withdraw("u-a")
	block := netip.MustParsePrefix("10.0.0.0/28")
	l := protocol.Lease{Meta: protocol.Meta{Name: protocol.LeaseName("too", block), UID: "l", Revision: "1"}, Pool: "too", Block: block}
	b.Observe(l, 0)
	b.take(1, time.Now())
	if b.pools["too"] == nil {
		t.Error("the lease is not known")
	}
	b.forget(l.Name, l.UID)
	b.take(1, time.Now())
	if len(b.pools) > 0 {
		t.Errorf("pools are left: %d", len(b.pools))
	}
}

package grants

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// observed is a server that counts the reads of pools, and runs a function before a
// write of a lease is answered.
type observed struct {
	*server
	reads   int
	written func(protocol.Lease)
}

func (o *observed) ReadPool(ctx context.Context, name protocol.PoolName) (protocol.Pool, protocol.Outcome, error) {
	o.reads++
	return o.server.ReadPool(ctx, name)
}

func (o *observed) UpdateLease(ctx context.Context, old, next protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	l, out, err := o.server.UpdateLease(ctx, old, next)
	o.written(l)
	return l, out, err
}

// newObserved returns a broker of a pool with two leases of a node's, each with one ceded
// address, which it has seen.
func newObserved(t *testing.T, n Notify) (*Broker, *observed) {
	t.Helper()
	o := &observed{server: calm(), written: func(protocol.Lease) {}}
	b, err := New(DefaultConfig(), o, n, NewMetrics(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	pool := lan(t, "lan", "10.0.0.0/29")
	pool.Bits4, pool.Pool.Generation = 30, 1
	o.setPool(pool)
	pool.Pool = o.pools["lan"]
	b.SetPool(pool)
	for _, block := range []string{"10.0.0.0/30", "10.0.0.4/30"} {
		hold(t, b, o, block)
	}
	return b, o
}

// hold has a node lease a block, of which it cedes the second address.
func hold(t *testing.T, b *Broker, o *observed, block string) {
	t.Helper()
	p := netip.MustParsePrefix(block)
	l, _, err := o.CreateLease(t.Context(), protocol.Lease{
		Meta: protocol.Meta{Name: protocol.LeaseName("lan", p)}, Protocol: protocol.Version,
		Pool: "lan", PoolUID: o.pools["lan"].UID, Block: p, Holder: protocol.Holder{Node: "n1"}, Ceded: []netip.Addr{p.Addr().Next()},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.Observe(l)
}

// TestWatchFasterThanTheAnswer: what a watch shows of a grant while the write of it is
// under way is not yet an answer, since nothing has shown it live: the answer of the write
// does, and then the grantee is told.
func TestWatchFasterThanTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		b, o := newObserved(t, Notify{SubLease: func(name string) { told = append(told, name) }})
		a := requestOf(t, "a", "lan", "10.0.0.0-10.0.0.7")
		a.Stamp = "7"
		o.written = func(l protocol.Lease) {
			b.Observe(l)
			if got := b.Ask(a); len(got.Granted) > 0 || got.Problem != (Problem{}) {
				t.Errorf("while it is written: %+v; want no answer", got)
			}
			told = nil
		}
		b.Ask(a)
		b.RunOnce(t.Context(), false)
		if !slices.Contains(told, "a") {
			t.Error("the grantee is not told when the write is answered")
		}
		if got := b.Ask(a); len(got.Granted) != 1 || got.Stamp != "7" {
			t.Errorf("granted %v with stamp %q; want one address with stamp 7", got.Granted, got.Stamp)
		}
	})
}

// TestAnswerWhileAnotherIsWritten: a write that grants somebody nothing does not tell
// them, so that what they have been granted is an answer while it is under way.
func TestAnswerWhileAnotherIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, o := newObserved(t, Notify{})
		_, l := b.book.lease("lan.0a000000.30")
		more := l.Lease.Clone()
		more.Ceded = append(more.Ceded, netip.MustParseAddr("10.0.0.2"))
		more, _, err := o.UpdateLease(t.Context(), l.Lease, more)
		if err != nil {
			t.Fatal(err)
		}
		b.Observe(more)
		first, second := requestOf(t, "a", "lan", "10.0.0.0-10.0.0.3"), requestOf(t, "b", "lan", "10.0.0.0-10.0.0.3")
		for _, a := range []Ask{first, second} {
			b.Ask(a)
			b.RunOnce(t.Context(), false)
		}
		writes := 0
		o.written = func(protocol.Lease) {
			writes++
			if got := b.Ask(second); len(got.Granted) != 1 {
				t.Errorf("while another's address is given back: %+v; want the one that is granted", got)
			}
		}
		_ = b.Submit(Drop, b.Held(first.To.UID)) // the turn does it
		b.RunOnce(t.Context(), false)
		if writes != 1 {
			t.Errorf("%d writes; want one", writes)
		}
	})
}

// TestOneReadOfThePool: one live read of a pool confirms all of its leases that were seen
// before it, and none that was made again since, or is seen when the spec is another.
func TestOneReadOfThePool(t *testing.T) {
	serve := func(t *testing.T, b *Broker, name string) {
		t.Helper()
		a := requestOf(t, name, "lan", "10.0.0.0-10.0.0.7")
		b.Ask(a)
		b.RunOnce(t.Context(), false)
		if got := b.Ask(a); len(got.Granted) != 1 {
			t.Fatalf("%s: %+v; want it granted", name, got)
		}
	}
	tests := []struct {
		name    string
		between func(t *testing.T, b *Broker, o *observed)
		want    int
	}{
		{"both seen before", func(*testing.T, *Broker, *observed) {}, 1},
		{"one made again", func(t *testing.T, b *Broker, o *observed) {
			for name, l := range o.leases {
				if len(l.Grants) > 0 {
					continue
				}
				if _, err := o.DeleteLease(t.Context(), l.Meta); err != nil {
					t.Fatal(err)
				}
				b.Forget(name, l.UID)
				hold(t, b, o, l.Block.String())
			}
		}, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, o := newObserved(t, Notify{})
				serve(t, b, "a")
				tt.between(t, b, o)
				serve(t, b, "b")
				if o.reads != tt.want {
					t.Errorf("the pool was read %d times; want %d", o.reads, tt.want)
				}
			})
		})
	}
	t.Run("another spec", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b, o := newObserved(t, Notify{})
			seen := b.book.unconfirmed("lan", nil)
			edited := o.pools["lan"]
			edited.Generation = 2
			b.book.confirm("lan", seen, edited, protocol.Done)
			if left := b.book.unconfirmed("lan", nil); len(left) != len(seen) || len(left) != 2 {
				t.Errorf("%d of %d leases are not confirmed; want all", len(left), len(seen))
			}
		})
	})
}

// TestCededUnasked: a lease of an exhausted pool of which something was ceded, unasked, is left
// alone as after an answer: its holder has ceded what is free. Of another pool a holder cedes
// unasked what a stranger has, and nothing else.
func TestCededUnasked(t *testing.T) {
	for pressure, rests := range map[allocator.Pressure]time.Duration{allocator.PressureExhausted: backoff, allocator.PressureHigh: 0, allocator.PressureLow: 0} {
		t.Run(pressure.String(), func(t *testing.T) { testCededUnasked(t, pressure, rests) })
	}
}

func testCededUnasked(t *testing.T, pressure allocator.Pressure, rests time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		b, o := newObserved(t, Notify{})
		p, l := b.book.lease("lan.0a000000.30")
		p.state.Pressure = pressure
		l.asked = asked{unanswering: true} // as of one that was ceded long ago
		more := l.Lease.Clone()
		more.Revision, more.Ceded = o.next(), append(more.Ceded, netip.MustParseAddr("10.0.0.2"))
		b.Observe(more)
		if got := max(0, l.asked.again.Sub(b.cfg.Now())); got != rests {
			t.Errorf("it is left alone for %v; want %v", got, rests)
		}
		if l.asked.unanswering {
			t.Error("its holder seems not to answer")
		}
	})
}

// TestLateAnswer: who answers a recall after it was given up is not silent, and whoever
// asked for that address hears that it is in use.
func TestLateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, o := newObserved(t, Notify{})
		p, l := b.book.lease("lan.0a000000.30")
		a := requestOf(t, "a", "lan", "10.0.0.2-10.0.0.2")
		b.Ask(a)
		r := &round{now: b.cfg.Now()}
		rec := b.book.recall(r, p, l, a.From[0].View)
		rec.name(netip.MustParseAddr("10.0.0.2"))
		rec.until = r.now
		b.book.expire(r.now)
		if h := b.book.holders["n1"]; !h.silent || !l.asked.unanswering {
			t.Fatal("a holder that has not answered is not silent")
		}
		answer := l.Lease.Clone()
		answer.Revision, answer.Published.Answered = o.next(), rec.ID
		b.Observe(answer)
		if h := b.book.holders["n1"]; h.silent || l.asked.unanswering {
			t.Error("a holder that has answered late is silent")
		}
		b.RunOnce(t.Context(), false)
		if got := b.Ask(a); got.Problem.Reason != Taken || !strings.Contains(got.Problem.Message, "is in use on") {
			t.Errorf("got %+v; want that it is in use", got)
		}
		if !l.asked.again.IsZero() {
			t.Errorf("the lease rests until %v after what it said of one address", l.asked.again)
		}
	})
}

// TestOneAddressRecalled: the answer to a recall of one address says nothing of the
// lease's others: it may be asked for these at once.
func TestOneAddressRecalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, one := range []bool{false, true} {
			b, o := newObserved(t, Notify{})
			p, l := b.book.lease("lan.0a000000.30")
			rec := b.book.recall(&round{now: b.cfg.Now()}, p, l, allocator.View{})
			if one {
				rec.name(netip.MustParseAddr("10.0.0.2"))
			}
			answer := l.Lease.Clone()
			answer.Revision, answer.Published.Answered = o.next(), l.asked.under.ID
			answer.Ceded = append(answer.Ceded, netip.MustParseAddr("10.0.0.2"))
			b.Observe(answer)
			if rests := !l.asked.again.IsZero(); rests == one {
				t.Errorf("by its name %v: rests %v", one, rests)
			}
		}
	})
}

// TestPartRecalled: the answer to a recall of a part of a lease, as one network sees the
// pool, says nothing of what others may take of it, whatever it has brought.
func TestPartRecalled(t *testing.T) {
	part := func(last string) want {
		src := requestOf(t, last, "lan", "10.0.0.1-10.0.0."+last).From[0]
		return want{family: allocator.IPv4, view: src.View, search: src.View.String()}
	}
	for name, ceded := range map[string][]netip.Addr{"in vain": nil, "of some": {netip.MustParseAddr("10.0.0.1")}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, o := newObserved(t, Notify{})
				p, l := b.book.lease("lan.0a000000.30")
				rests := func(w want) time.Duration {
					w.pool = p
					if s := b.book.holdersFor(w, 30, b.cfg.Now()); len(s.left) == 0 {
						return s.again.Sub(b.cfg.Now())
					}
					return 0
				}
				for _, want := range []time.Duration{backoff, 2 * backoff} {
					b.book.recall(&round{now: b.cfg.Now()}, p, l, part("2").view)
					answer := l.Lease.Clone()
					answer.Revision, answer.Published.Answered, answer.Published.Free = o.next(), l.asked.under.ID, 1
					answer.Ceded = ceded
					b.Observe(answer)
					if got := rests(part("2")); got != want {
						t.Errorf("whoever wants that part waits %v; want %v", got, want)
					}
					if got := rests(part("3")); got != 0 {
						t.Errorf("whoever wants another waits %v; want nothing", got)
					}
					time.Sleep(want)
				}
			})
		})
	}
}

// TestRecallEndsWhileItIsWritten: a recall that ends while the registration is written stands on
// the registration all the same, and is taken off later.
func TestRecallEndsWhileItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := newObserved(t, Notify{})
		p, l := b.book.lease("lan.0a000000.30")
		rec := b.book.recall(&round{now: b.cfg.Now()}, p, l, allocator.View{})
		has := b.book.amend("n1", nil, b.cfg.Now())
		b.book.cancel(l)
		b.book.sent("n1", has)
		time.Sleep(cleanupDelay)
		if got := b.book.dueCleanups(b.cfg.Now()); !slices.Contains(got, rec.node) {
			t.Errorf("to be tidied are the registrations of %v; want n1", got)
		}
		b.book.sent("n1", b.book.amend("n1", has, b.cfg.Now()))
		if got := b.book.dueCleanups(b.cfg.Now()); len(got) > 0 {
			t.Errorf("to be tidied are the registrations of %v afterwards; want none", got)
		}
	})
}

// unreached is a server that the first create of a lease does not reach.
type unreached struct {
	*server
	creates int
}

func (d *unreached) CreateLease(ctx context.Context, l protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	d.creates++
	if d.creates == 1 {
		return protocol.Lease{}, protocol.Unknown, errLost
	}
	return d.server.CreateLease(ctx, l)
}

// TestLastBlockNotCreated: a block that was about to be leased, while another ask found
// every block leased, is not for ever out of reach if its lease could not be created.
func TestLastBlockNotCreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &unreached{server: calm()}
		b, err := New(DefaultConfig(), d, Notify{}, NewMetrics(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		pool := lan(t, "lan", "10.0.0.0/30") // two of its addresses are a pod's to have
		pool.Bits4, pool.Pool.Generation = 30, 1
		d.setPool(pool)
		pool.Pool = d.pools["lan"]
		b.SetPool(pool)
		asks := []Ask{requestOf(t, "a", "lan", "10.0.0.0-10.0.0.3"), requestOf(t, "b", "lan", "10.0.0.0-10.0.0.3"), requestOf(t, "c", "lan", "10.0.0.0-10.0.0.3")}
		for _, a := range asks {
			b.Ask(a)
		}
		for range 3 {
			b.RunOnce(t.Context(), false)
			time.Sleep(time.Second) // past the pause after a failure
		}
		for _, a := range asks[:2] {
			if got := b.Ask(a); len(got.Granted) != 1 {
				t.Errorf("%s: %+v after %d creates; want an address", a.To.Name, got, d.creates)
			}
		}
		if got := b.Ask(asks[2]); got.Problem.Reason != Exhausted {
			t.Errorf("the third: %+v; want that the pool is exhausted", got)
		}
	})
}

package agent

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// bubbleClock is a synctest bubble's.
type bubbleClock struct{ began time.Time }

func (c bubbleClock) Now() protocol.Instant {
	return protocol.Instant{Boot: time.Since(c.began), Wall: time.Now()}
}

func (bubbleClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// newBubbleAgent returns an agent with a pool that it knows: of eight blocks of four IPv4
// addresses, and of 2^48 blocks of IPv6. It has no registration, and no API server.
func newBubbleAgent(t *testing.T) (*Agent, *pool) {
	t.Helper()
	known, err := knownAs(Pool{
		Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}, Open: true, Bits4: 30, Bits6: 112},
		Text: poolspec.PoolText{Ranges: []poolspec.RangeText{{CIDR: "10.0.0.0/27"}, {CIDR: "fd00::/64"}}},
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	p := newPool("lan")
	p.known = known
	a := assemble(&base{
		cfg: DefaultConfig("n1"), st: newStore(t), sched: sched.Goroutines(bubbleClock{time.Now()}), log: slog.New(slog.DiscardHandler),
	})
	a.pools.byName = map[protocol.PoolName]*pool{"lan": p}
	a.reg.registrar.Seen.UID = "registration"
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	a.queue = func(task func(context.Context)) { running.Go(func() { task(t.Context()) }) }
	return a, p
}

// TestCandidate: a node goes round from its own point on; where it has met others it goes on
// anywhere. It passes over blocks that it has a record of, or that an acquire is at.
func TestCandidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newBubbleAgent(t)
		slot := assign.Slot{Family: allocator.IPv4}
		next := func(tried ...netip.Prefix) (netip.Prefix, bool) {
			t.Helper()
			met := map[netip.Prefix]bool{}
			for _, block := range tried {
				met[block] = true
			}
			block, ok, trying, err := a.blocks.candidate(p, p.known, slot, met)
			if err != nil || !ok && !trying {
				t.Fatalf("%v, %v, on its way %v: %v", block, ok, trying, err)
			}
			return block, ok
		}
		var order []netip.Prefix
		for block := range p.known.around(slot, p.known.shape.Spread(slot.Family, hashOf("n1"))) {
			order = append(order, block)
		}
		err := a.st.Update(t.Context(), func(tx *store.Tx) error {
			r := leaseRight(p.known.Pool, order[1])
			r.Phase = protocol.Releasing
			return tx.PutRight(r)
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []netip.Prefix{order[0], order[2]} {
			if block, _ := next(); block != want {
				t.Errorf("candidate %v; want %v", block, want)
			}
		}
		p.acquires.unclaim(order[2])
		met, seen := []netip.Prefix{order[2]}, map[netip.Prefix]bool{}
		for range 5 {
			block, ok := next(met...)
			if !ok || block == order[2] || seen[block] {
				t.Errorf("candidate %v, %v after %v; want another", block, ok, seen)
			}
			seen[block] = true
		}
		if block, ok := next(met...); ok {
			t.Errorf("candidate %v; want none: all are met, on their way, or its own", block)
		}
	})
}

// takeBlock has the node hold a block of which every address is taken.
func takeBlock(t *testing.T, a *Agent, p *pool, block netip.Prefix) {
	t.Helper()
	err := a.st.Update(t.Context(), func(tx *store.Tx) error {
		space := allocator.NewSpace(tx.Table("lan"), p.known.shape)
		if err := space.Open(block); err != nil {
			return err
		}
		for x := block.Addr(); block.Contains(x); x = x.Next() {
			if err := space.Take(x); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestReserveAfterTheRegistration: an agent that starts takes no reserve before it has seen
// its registration: only that may show it that the API server has gone back, and that a block which
// seems free is somebody's who is about to put it back.
func TestReserveAfterTheRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newBubbleAgent(t)
		takeBlock(t, a, p, netip.MustParsePrefix("10.0.0.4/30"))
		a.reg.registrar.Seen = protocol.Registration{}
		a.blocks.reserve(p)
		time.Sleep(2*regRetry + time.Millisecond)
		synctest.Wait()
		if n := a.blocks.finished.Load(); n != 0 {
			t.Errorf("%d acquires before the registration was seen; want none", n)
		}
		a.reg.mu.Lock()
		a.reg.registrar.Seen.UID = "registration"
		a.reg.mu.Unlock()
		time.Sleep(regRetry)
		synctest.Wait()
		if n := a.blocks.finished.Load(); n != 1 {
			t.Errorf("%d acquires then; want one", n)
		}
	})
}

// TestQueuesOfSlots: who waits for an address of another family, or of another view, is no
// reason to begin no acquire, nor to wait for a block that is on its way to them.
func TestQueuesOfSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newBubbleAgent(t)
		var b netipx.IPSetBuilder
		b.AddPrefix(netip.MustParsePrefix("10.0.0.16/28"))
		set, err := b.IPSet()
		if err != nil {
			t.Fatal(err)
		}
		others := assign.Slot{Family: allocator.IPv6}
		for _, slot := range []assign.Slot{{Family: allocator.IPv4}, {Family: allocator.IPv4, View: allocator.NewView(set)}} {
			p.acquires.change(others, 1, 1)
			a.queue = func(func(context.Context)) {}
			if own, _ := a.blocks.join(p, slot, 0); own == nil {
				t.Errorf("%v: begins no acquire", keyOf(slot))
			}
			if own, _ := a.blocks.join(p, slot, 0); own != nil {
				t.Errorf("%v: begins a second one, though the first serves both", keyOf(slot))
			}
			p.acquires = acquires{}
			p.acquires.change(others, a.cfg.Parallel, 0)
			if own, ended := a.blocks.join(p, slot, 0); own != nil || ended == nil {
				t.Errorf("%v: begins one more than may run at once", keyOf(slot))
			}
			tried := map[netip.Prefix]bool{}
			for block := range p.known.around(slot, netip.MustParseAddr("10.0.0.0")) {
				tried[block] = true
			}
			p.acquires.claim(netip.MustParsePrefix("fd00::/112"))
			if _, ok, trying, err := a.blocks.candidate(p, p.known, slot, tried); ok || trying || err != nil {
				t.Errorf("%v: a block %v, one is on its way %v, %v; want that there is none, whatever is under way for %v", keyOf(slot), ok, trying, err, keyOf(others))
			}
			p.acquires = acquires{}
		}
	})
}

// TestLandingBetween: an ADD that has found no room does not want another block if one
// has landed since it looked for room.
func TestLandingBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newBubbleAgent(t)
		slot := assign.Slot{Family: allocator.IPv4}
		p.acquires.change(slot, 1, 0)
		before := a.blocks.finished.Load()
		a.blocks.land(&p.acquires, slot, nil)
		if unmet, err := a.blocks.obtain(t.Context(), p, slot, before); unmet != nil || err != nil || p.acquires.busy() {
			t.Errorf("%v, %v, queues %v; want another try, and nobody in them", unmet, err, p.acquires.queues)
		}
	})
}

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

// listedLeases has leases of these blocks, takes a tenth of a second to list them, and
// counts what it is asked for.
type listedLeases struct {
	Leases
	blocks []netip.Prefix
	lists  int
}

func (l *listedLeases) LeasedBlocks(context.Context, protocol.PoolName) ([]netip.Prefix, error) {
	l.lists++
	time.Sleep(100 * time.Millisecond)
	return l.blocks, nil
}

// newBubbleAgent returns an agent on leases with a pool that it knows: of eight blocks
// of four IPv4 addresses, and of 2^48 blocks of IPv6. It has no registration.
func newBubbleAgent(t *testing.T, leases *listedLeases) (*Agent, *pool) {
	t.Helper()
	shape, err := poolspec.ParsePool(poolspec.PoolText{Ranges: []poolspec.RangeText{{CIDR: "10.0.0.0/27"}, {CIDR: "fd00::/64"}}})
	if err != nil {
		t.Fatal(err)
	}
	p := newPool("lan")
	p.known = &knownPool{Pool: Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}, Open: true, Bits4: 30, Bits6: 112}}, shape: shape}
	a := &Agent{
		cfg: DefaultConfig("n1"), st: newStore(t), cl: Cluster{Leases: leases}, sched: sched.Goroutines(bubbleClock{time.Now()}), log: slog.New(slog.DiscardHandler),
		pools: map[protocol.PoolName]*pool{"lan": p},
	}
	a.registrar.Seen.UID = "registration"
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	a.queue = func(task func(context.Context)) { running.Go(func() { task(t.Context()) }) }
	return a, p
}

// TestLookIsShared: acquires that meet others at once make one list, and one that was
// just made is not made again.
func TestLookIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := &listedLeases{}
		a, p := newBubbleAgent(t, leases)
		look := func(at string, callers int, news bool, lists int) {
			t.Helper()
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					if got := a.look(t.Context(), p, 0); got != news {
						t.Errorf("%s: news %v; want %v", at, got, news)
					}
				})
			}
			wg.Wait()
			if leases.lists != lists {
				t.Errorf("%s: %d lists so far; want %d", at, leases.lists, lists)
			}
		}
		look("at first", 3, true, 1)
		look("at once", 2, false, 1)
		time.Sleep(lookEach)
		look("later", 2, true, 2)
	})
}

// TestLookIsSpread: nodes that have met do not all look at once; the acquires of one
// that meet others meanwhile wait with it for one list, made when that time is over.
func TestLookIsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := &listedLeases{}
		a, p := newBubbleAgent(t, leases)
		const spread = time.Hour
		began := time.Now()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { a.look(t.Context(), p, spread) })
		}
		wg.Wait()
		took := time.Since(began)
		if took <= 100*time.Millisecond || took > spread+100*time.Millisecond || leases.lists != 1 {
			t.Errorf("%d lists after %v; want one, within %v", leases.lists, took, spread)
		}
		if listed := a.sched.Now().Boot - p.demands.seen.at.Boot; listed != 100*time.Millisecond {
			t.Errorf("the overview is as of %v ago; want of when the list was begun", listed)
		}
	})
}

// TestCandidate: a node probes from its own point on until it has met another; then
// it takes any block that nobody was seen to have.
func TestCandidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := &listedLeases{}
		a, p := newBubbleAgent(t, leases)
		n := addressDemand{family: allocator.IPv4}
		next := func() (netip.Prefix, bool) {
			t.Helper()
			block, ok, _, err := a.candidate(p, p.known, n, nil)
			if err != nil {
				t.Fatal(err)
			}
			return block, ok
		}
		first, _ := next()
		second, _ := next()
		if want := p.known.shape.Block(second.Addr(), 30); second != want || first == second {
			t.Errorf("candidates %v and %v; want two blocks", first, second)
		}
		var own, free netip.Prefix
		for block := range p.known.around(n, netip.Addr{}) {
			switch {
			case block == first || block == second:
			case !own.IsValid():
				own = block
			case !free.IsValid():
				free = block
			default:
				leases.blocks = append(leases.blocks, block)
			}
		}
		if len(leases.blocks) != 4 {
			t.Fatalf("%d blocks are left of 8; want 4", len(leases.blocks))
		}
		err := a.st.Update(t.Context(), func(tx *store.Tx) error {
			r := leaseRight(p.known.Pool, own)
			r.Phase = protocol.Releasing
			return tx.PutRight(r)
		})
		if err != nil {
			t.Fatal(err)
		}
		a.look(t.Context(), p, 0)
		if block, ok := next(); block != free || !ok {
			t.Errorf("candidate %v, %v; want %v, which nobody has", block, ok, free)
		}
		if block, ok := next(); ok {
			t.Errorf("candidate %v; want none: all are tried, own, or others'", block)
		}
		p.demands.unclaim(free)
		p.demands.met(free, a.sched.Now())
		if block, ok := next(); ok {
			t.Errorf("candidate %v; want none: another was met there", block)
		}
		time.Sleep(lookHolds)
		if _, ok := next(); !ok {
			t.Error("no candidate, although it was long ago that others were seen")
		}
	})
}

// TestCandidateOfManyBlocks: what was seen of a pool's few IPv4 blocks does not make a
// node choose among all of its IPv6 blocks, of which there is no end.
func TestCandidateOfManyBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newBubbleAgent(t, &listedLeases{})
		a.look(t.Context(), p, 0)
		if block, ok, _, err := a.candidate(p, p.known, addressDemand{family: allocator.IPv6}, nil); !ok || err != nil || block.Bits() != 112 {
			t.Errorf("candidate %v, %v, %v; want a block of IPv6", block, ok, err)
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
		a, p := newBubbleAgent(t, &listedLeases{})
		takeBlock(t, a, p, netip.MustParsePrefix("10.0.0.4/30"))
		a.registrar.Seen = protocol.Registration{}
		a.reserve(p)
		time.Sleep(2*regRetry + time.Millisecond)
		synctest.Wait()
		if n := a.finished.Load(); n != 0 {
			t.Errorf("%d acquires before the registration was seen; want none", n)
		}
		a.mu.Lock()
		a.registrar.Seen.UID = "registration"
		a.mu.Unlock()
		time.Sleep(regRetry)
		synctest.Wait()
		if n := a.finished.Load(); n != 1 {
			t.Errorf("%d acquires then; want one", n)
		}
	})
}

// TestReserveAfterABurst: a reserve waits until nobody fights for blocks.
func TestReserveAfterABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newBubbleAgent(t, &listedLeases{})
		block := netip.MustParsePrefix("10.0.0.4/30")
		takeBlock(t, a, p, block)
		p.demands.met(block, a.sched.Now())
		a.reserve(p)
		a.reserve(p)
		time.Sleep(burstOver - time.Millisecond)
		synctest.Wait()
		if n := a.finished.Load(); n != 0 {
			t.Errorf("%d acquires in the burst; want none", n)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if n := a.finished.Load(); n != 1 {
			t.Errorf("%d acquires after the burst; want one", n)
		}
	})
}

// TestHurried: there is a burst in a pool for a while after others were met there.
func TestHurried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newBubbleAgent(t, &listedLeases{})
		want := func(when string, hurried bool) {
			t.Helper()
			if got := a.hurried("lan", a.sched.Now()); got != hurried {
				t.Errorf("%s: hurried %v; want %v", when, got, hurried)
			}
		}
		want("at ease", false)
		p.demands.met(netip.MustParsePrefix("10.0.0.16/30"), a.sched.Now())
		want("in a burst", true)
		time.Sleep(burstOver)
		want("after it", false)
		if a.hurried("other", a.sched.Now()) {
			t.Error("a burst in a pool that the node does not use")
		}
	})
}

// TestRestOfAcquires: where nothing is left, as many ADDs wait for the acquires under
// way as those may serve; the others ask the cluster at once.
func TestRestOfAcquires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newBubbleAgent(t, &listedLeases{})
		known := *p.known
		known.Pressure = allocator.PressureExhausted
		p.known = &known
		n := addressDemand{family: allocator.IPv4}
		p.demands.change(n, 1, 0)
		errs := make(chan error, 6)
		for range 6 {
			go func() { errs <- a.obtain(t.Context(), p, n, 0) }()
		}
		synctest.Wait()
		for range 2 {
			if err := <-errs; !is[*unmetError](err) {
				t.Errorf("beyond the block that is on its way: %v; want an unmet demand", err)
			}
		}
		a.land(&p.demands, n, nil)
		synctest.Wait()
		for range 4 {
			if err := <-errs; err != nil {
				t.Errorf("when it has landed: %v; want another look", err)
			}
		}
		if err := a.obtain(t.Context(), p, n, 1); !is[*unmetError](err) {
			t.Errorf("with nothing on its way: %v; want an unmet demand", err)
		}
		p.demands.change(n, 1, 0)
		began := time.Now()
		if err := a.obtain(t.Context(), p, n, 1); !is[*unmetError](err) || time.Since(began) != restAtMost {
			t.Errorf("where it takes long: %v after %v; want an unmet demand after %v", err, time.Since(began), restAtMost)
		}
	})
}

// TestQueuesOfNeeds: who waits for an address of another family, or of another view, is no
// reason to begin no acquire, nor to wait for those that are under way, however many they are.
func TestQueuesOfNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newBubbleAgent(t, &listedLeases{})
		var b netipx.IPSetBuilder
		b.AddPrefix(netip.MustParsePrefix("10.0.0.16/28"))
		set, err := b.IPSet()
		if err != nil {
			t.Fatal(err)
		}
		others := addressDemand{family: allocator.IPv6}
		for _, n := range []addressDemand{{family: allocator.IPv4}, {family: allocator.IPv4, view: allocator.NewView(set)}} {
			p.demands.change(others, 1, 1)
			a.queue = func(func(context.Context)) {}
			if own, _ := a.join(p, n, 0); own == nil {
				t.Errorf("%v: begins no acquire", n.key())
			}
			if own, _ := a.join(p, n, 0); own != nil {
				t.Errorf("%v: begins a second one, though the first serves both", n.key())
			}
			p.demands = demands{}
			p.demands.change(others, a.cfg.Parallel, 0)
			if own, ended := a.join(p, n, 0); own != nil || ended == nil {
				t.Errorf("%v: begins one more than may run at once", n.key())
			}
			if ended := a.joinRest(p, n); ended != nil {
				t.Errorf("%v: waits for %v, which brings it nothing", n.key(), others.key())
			}
			tried := map[netip.Prefix]bool{}
			for block := range p.known.around(n, netip.MustParseAddr("10.0.0.0")) {
				tried[block] = true
			}
			p.demands.claim(netip.MustParsePrefix("fd00::/112"))
			if _, ok, trying, err := a.candidate(p, p.known, n, tried); ok || trying || err != nil {
				t.Errorf("%v: a block %v, one is on its way %v, %v; want that there is none, whatever is under way for %v", n.key(), ok, trying, err, others.key())
			}
			p.demands = demands{}
		}
	})
}

// TestLandingBetween: an ADD that has found no room does not want another block if one
// has landed since it looked.
func TestLandingBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newBubbleAgent(t, &listedLeases{})
		n := addressDemand{family: allocator.IPv4}
		p.demands.change(n, 1, 0)
		before := a.finished.Load()
		a.land(&p.demands, n, nil)
		if err := a.obtain(t.Context(), p, n, before); err != nil || p.demands.busy() {
			t.Errorf("%v, queues %v; want another look, and nobody in them", err, p.demands.queues)
		}
	})
}

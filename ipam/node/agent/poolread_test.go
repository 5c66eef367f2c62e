package agent

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// slowPools takes a second for each read, which it numbers.
type slowPools struct {
	Pools
	reads int64
}

func (s *slowPools) ReadPool(context.Context, protocol.PoolName) (protocol.Pool, protocol.Outcome, error) {
	s.reads++
	pool := protocol.Pool{Generation: s.reads}
	time.Sleep(time.Second)
	return pool, protocol.Done, nil
}

// TestSharedPools: callers share a read only if it begins after they came.
func TestSharedPools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowPools{}
		var running sync.WaitGroup
		shared := &sharedPools{Pools: slow, background: func(task func(context.Context)) {
			running.Go(func() { task(t.Context()) })
		}, sched: sched.Goroutines(bubbleClock{time.Now()})}
		var callers sync.WaitGroup
		call := func(want int64, after time.Duration) {
			callers.Go(func() {
				began := time.Now()
				p, out, err := shared.ReadPool(t.Context(), "lan")
				if p.Generation != want || out != protocol.Done || err != nil || time.Since(began) != after {
					t.Errorf("read %d, %v, %v after %v; want read %d after %v", p.Generation, out, err, time.Since(began), want, after)
				}
			})
		}
		call(1, time.Second)
		time.Sleep(600 * time.Millisecond) // the first is under way
		for range 5 {
			call(2, 1400*time.Millisecond)
		}
		gone, leave := context.WithCancelCause(t.Context())
		leave(errNothing)
		if _, out, err := shared.ReadPool(gone, "lan"); out != protocol.Unknown || err != errNothing {
			t.Errorf("a caller that is gone: %v, %v; want %v, %v", out, err, protocol.Unknown, errNothing)
		}
		callers.Wait()
		call(3, time.Second) // nobody else is there
		callers.Wait()
		running.Wait()
		if slow.reads != 3 || len(shared.reads) != 0 {
			t.Errorf("%d reads, %d pools being read; want 3 and none", slow.reads, len(shared.reads))
		}
	})
}

// TestPoolIsReadAfterTheCreates: a read waits for the creates of leases that are under
// way, so that it serves all of them, but not much longer than the last one took, and no
// longer than a second: one without an answer holds nobody up.
func TestPoolIsReadAfterTheCreates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running sync.WaitGroup
		clock, slow := bubbleClock{time.Now()}, &slowPools{}
		shared := &sharedPools{Pools: slow, sched: sched.Goroutines(clock), background: func(task func(context.Context)) {
			running.Go(func() { task(t.Context()) })
		}}
		create := func(took time.Duration) {
			answered := shared.creating.begin("lan", clock.Now())
			time.Sleep(took)
			answered(clock.Now(), func() {})
		}
		want := func(when string, after time.Duration, reads int64) {
			t.Helper()
			began := time.Now()
			if _, out, err := shared.ReadPool(t.Context(), "lan"); out != protocol.Done || err != nil {
				t.Errorf("%s: %v, %v", when, out, err)
			}
			if took := time.Since(began); took != after || slow.reads != reads {
				t.Errorf("%s: the %d. read after %v; want the %d. after %v", when, slow.reads, took, reads, after)
			}
			running.Wait()
		}
		var under sync.WaitGroup
		for _, took := range []time.Duration{time.Second, 2 * time.Second} {
			under.Go(func() { create(took) })
		}
		time.Sleep(1500 * time.Millisecond)
		want("while one is under way", 1500*time.Millisecond, 1)
		under.Wait()
		for _, took := range []time.Duration{50 * time.Millisecond, time.Second} {
			under.Go(func() { create(took) })
		}
		time.Sleep(100 * time.Millisecond)
		want("while one takes long", awaitTimes*50*time.Millisecond+time.Second, 2)
		under.Wait()
		under.Go(func() { create(time.Minute) })
		synctest.Wait()
		want("while one has no answer", time.Second+awaitAtMost, 3)
		if _, _, err := shared.ReadPool(t.Context(), "other"); err != nil || slow.reads != 4 {
			t.Errorf("a read of another pool: %v, %d reads; want 4", err, slow.reads)
		}
		under.Wait()
		want("while none is", time.Second, 5)
	})
}

// slowLeases takes a second for each create.
type slowLeases struct{ Leases }

func (slowLeases) CreateLease(_ context.Context, l protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	time.Sleep(time.Second)
	l.UID, l.Revision = "u", "1"
	return l, protocol.Done, nil
}

// TestCreatesShareARead: leases whose creates are answered together are confirmed by one
// read of their pool, however long the record of each answer takes.
func TestCreatesShareARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowPools{}
		a, p := newRegisteredAgent(t, slowLeases{}, slow)
		var drives sync.WaitGroup
		for i := range 5 {
			drives.Go(func() {
				var has shown
				r := leaseRight(p.known.Pool, p.known.shape.Block(netip.AddrFrom4([4]byte{10, 0, 0, byte(4 * i)}), 30))
				if _, out, err := a.callLease(t.Context(), protocol.Self{Node: "n1", Term: 3}, r, protocol.CallCreate, &has); out != protocol.Done {
					t.Errorf("create: %v, %v", out, err)
				}
				time.Sleep(time.Duration(i) * time.Millisecond)
				if _, out, err := a.callLease(t.Context(), protocol.Self{Node: "n1", Term: 3}, r, protocol.CallConfirm, &has); out == protocol.Unknown && !is[*poolWaitsError](err) {
					t.Errorf("confirm: %v, %v", out, err)
				}
			})
		}
		drives.Wait()
		if slow.reads != 1 {
			t.Errorf("%d reads of the pool; want 1", slow.reads)
		}
	})
}

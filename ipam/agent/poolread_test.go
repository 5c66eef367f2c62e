package agent

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
		}}
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

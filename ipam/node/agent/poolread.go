package agent

import (
	"context"
	"sync"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// sharedPools has callers that read one pool live share a read: one is under way at
// a time, and those that come meanwhile are all answered by the next, which begins
// after they came, and after the creates that are under way have been answered. A burst
// of acquires, each of which must read its pool after its create, so costs a few reads.
type sharedPools struct {
	Pools
	background func(func(context.Context)) // runs a task
	sched      sched.Scheduler
	creating   creating

	mu    sync.Mutex
	reads map[protocol.PoolName]*poolReads // guarded by mu; of pools that are being read
}

// poolReads are the reads of one pool.
type poolReads struct {
	next *poolRead // guarded by sharedPools.mu; for those that came since the last began; nil if none did
}

// poolRead is one read. Its fields may be read when done is closed.
type poolRead struct {
	sched sched.Scheduler
	done  chan struct{}
	pool  protocol.Pool
	out   protocol.Outcome
	err   error
}

// ReadPool implements [Pools].
func (s *sharedPools) ReadPool(ctx context.Context, name protocol.PoolName) (protocol.Pool, protocol.Outcome, error) {
	return s.join(name).await(ctx)
}

// await returns what the read brings.
func (r *poolRead) await(ctx context.Context) (protocol.Pool, protocol.Outcome, error) {
	if r.sched.Wait(ctx, sched.Forever, r.done) != 0 {
		return protocol.Pool{}, protocol.Unknown, context.Cause(ctx)
	}
	return r.pool, r.out, r.err
}

// join returns a read that has not begun.
func (s *sharedPools) join(name protocol.PoolName) *poolRead {
	s.mu.Lock()
	defer s.mu.Unlock()
	of, busy := s.reads[name]
	if !busy {
		if s.reads == nil {
			s.reads = map[protocol.PoolName]*poolReads{}
		}
		of = &poolReads{}
		s.reads[name] = of
		s.background(func(ctx context.Context) { s.serve(ctx, name, of) })
	}
	if of.next == nil {
		of.next = &poolRead{sched: s.sched, done: make(chan struct{})}
	}
	return of.next
}

// serve reads a pool until nobody waits for it.
func (s *sharedPools) serve(ctx context.Context, name protocol.PoolName, of *poolReads) {
	for {
		s.creating.await(ctx, name, s.sched)
		s.mu.Lock()
		r := of.next
		of.next = nil
		if r == nil {
			delete(s.reads, name)
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		r.pool, r.out, r.err = s.Pools.ReadPool(ctx, name)
		close(r.done)
	}
}

// creating counts the creates of leases that are under way. The zero value is ready.
type creating struct {
	mu    sync.Mutex
	pools map[protocol.PoolName]*creates // guarded by mu; of pools with creates under way, or lately
}

// creates are those of one pool. Its fields are guarded by creating.mu.
type creates struct {
	underWay int
	none     chan struct{} // closes when none is under way; nil while none is
	took     time.Duration // how long the last one took
}

// begin notes that a create of a lease of a pool has begun. The caller calls answered
// once, when it is. What that is to do then comes before the create counts as answered, and
// after it is known how long it took: a read that waits for creates goes by that.
func (c *creating) begin(name protocol.PoolName, began protocol.Instant) (answered func(now protocol.Instant, then func())) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.pools[name]
	if of == nil {
		if c.pools == nil {
			c.pools = map[protocol.PoolName]*creates{}
		}
		of = &creates{}
		c.pools[name] = of
	}
	if of.underWay == 0 {
		of.none = make(chan struct{})
	}
	of.underWay++
	return func(now protocol.Instant, then func()) {
		c.mu.Lock()
		of.took = now.Since(began)
		c.mu.Unlock()
		then()
		c.mu.Lock()
		defer c.mu.Unlock()
		if of.underWay--; of.underWay == 0 {
			close(of.none)
			of.none = nil
		}
	}
}

// A read of a pool waits for creates that are under way for awaitTimes as long as the last
// one took: of several that began together the first is answered long before the last.
// It waits no longer than awaitAtMost.
const (
	awaitTimes  = 4
	awaitAtMost = time.Second
)

// await waits until no create of a pool is under way, and not for long: those that began
// with the one that was answered last are answered by then, if anything is.
func (c *creating) await(ctx context.Context, name protocol.PoolName, s sched.Scheduler) {
	c.mu.Lock()
	of := c.pools[name]
	if of == nil || of.none == nil {
		c.mu.Unlock()
		return
	}
	none, took := of.none, min(awaitTimes*of.took, awaitAtMost)
	c.mu.Unlock()
	s.Wait(ctx, took, none)
}

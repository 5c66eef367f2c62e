package agent

import (
	"context"
	"sync"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// sharedPools has callers that read one pool live share a read: one is under way at
// a time, and those that come meanwhile are all answered by the next, which begins
// after they came. A burst of acquires, each of which must read its pool after its
// create, so costs a few reads.
type sharedPools struct {
	Pools
	background func(func(context.Context)) // runs a task

	mu    sync.Mutex
	reads map[protocol.PoolName]*poolReads // guarded by mu; of pools that are being read
}

// poolReads are the reads of one pool.
type poolReads struct {
	next *poolRead // guarded by sharedPools.mu; for those that came since the last began; nil if none did
}

// poolRead is one read. Its fields may be read when done is closed.
type poolRead struct {
	done chan struct{}
	pool protocol.Pool
	out  protocol.Outcome
	err  error
}

// ReadPool implements [Pools].
func (s *sharedPools) ReadPool(ctx context.Context, name protocol.PoolName) (protocol.Pool, protocol.Outcome, error) {
	r := s.join(name)
	select {
	case <-r.done:
		return r.pool, r.out, r.err
	case <-ctx.Done():
		return protocol.Pool{}, protocol.Unknown, context.Cause(ctx)
	}
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
		of.next = &poolRead{done: make(chan struct{})}
	}
	return of.next
}

// serve reads a pool until nobody waits for it.
func (s *sharedPools) serve(ctx context.Context, name protocol.PoolName, of *poolReads) {
	for {
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

package store

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"sync/atomic"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// maxBatch bounds how many calls share a commit, and with it how long the first
// of them waits for the functions of the others.
const maxBatch = 256

// A call is one Update under way. Its function runs on its caller's goroutine,
// so that a panic, or a test's FailNow, is the caller's as everywhere else; the
// committer gives it its turn and waits.
type call struct {
	withdrawn context.Context // its caller's: whether the function may still start
	standing  atomic.Int32
	turn      chan *Tx      // to the caller: run the function on this
	ran       chan struct{} // to the committer: it has run
	done      chan struct{} // closed when err is final

	err  error // what the caller is answered
	dead bool  // the function panicked: nobody waits for an answer
}

// The standings of a call.
const (
	queued  int32 = iota // its caller may still withdraw it
	started              // its function runs or has run
	gone                 // its caller has withdrawn it
)

// Update calls fn and makes what it changes durable. When Update returns nil,
// the change is on disk.
//
// If fn returns an error, or panics, nothing of what it did stays and no other
// call is disturbed; Update returns the error as it is, and the panic goes on.
// fn runs on the caller's goroutine, once, or again after a commit that it
// shared with other calls failed: then without anything that it did before.
// While it runs no other Update does: it must not block, nor call the Store.
//
// If ctx ends before fn starts, Update returns its cause and fn does not run.
// Once fn has started ctx is not looked at: a caller that is gone by then finds
// its change recorded.
//
// Errors that wrap ErrFull, ErrReadOnly or ErrClosed say that nothing changed.
// After another error of the store, of the disk for instance, the change may
// have been made or not; nothing is answered from the store before a later
// commit has settled it.
func (s *Store) Update(ctx context.Context, fn func(*Tx) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if s.o.ReadOnly {
		return s.explain(ErrReadOnly)
	}
	c := &call{withdrawn: ctx, turn: make(chan *Tx), ran: make(chan struct{}), done: make(chan struct{})}
	if err := s.enqueue(c); err != nil {
		return s.explain(err)
	}
	withdraw := ctx.Done()
	for {
		select {
		case tx := <-c.turn:
			s.takeTurn(c, tx, fn)
		case <-c.done:
			return c.err
		case <-withdraw:
			if c.standing.CompareAndSwap(queued, gone) {
				return context.Cause(ctx)
			}
			withdraw = nil
		}
	}
}

func (s *Store) enqueue(c *call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return ErrClosed
	}
	s.queue = append(s.queue, c)
	s.wake.Signal()
	return nil
}

// takeTurn runs fn for c.
func (s *Store) takeTurn(c *call, tx *Tx, fn func(*Tx) error) {
	c.dead = true
	defer func() { c.ran <- struct{}{} }()
	err := tx.run(fn)
	c.dead = false
	c.err = s.verdict(tx, err)
}

// commitLoop is the committer: the one goroutine that writes. It takes whatever
// is queued, which is what came while it wrote the last batch.
func (s *Store) commitLoop() {
	// A fault in the mapped file, which somebody has cut off behind our back,
	// is a panic that can be handled, and not the end of the process.
	debug.SetPanicOnFault(true)
	for calls := s.take(); calls != nil; calls = s.take() {
		s.serve(calls)
		// The callers that were just answered are runnable: let them queue what
		// they want next, so that it shares the next commit.
		runtime.Gosched()
	}
	close(s.stopped)
}

// take returns the next batch; nil when the store is being closed and nothing
// is queued.
func (s *Store) take() []*call {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) == 0 {
		if s.closing {
			return nil
		}
		s.wake.Wait()
	}
	n := min(len(s.queue), maxBatch)
	calls := s.queue[:n:n]
	s.queue = s.queue[n:]
	return calls
}

// serve runs and answers calls. If they cannot be committed together, because
// one needs more room than there is or meets damage, each goes alone.
func (s *Store) serve(calls []*call) {
	err := s.attempt(calls)
	if len(calls) > 1 && (isFull(err) || errors.Is(err, ErrCorrupt)) {
		for i := range calls {
			s.serve(calls[i : i+1])
		}
		return
	}
	for _, c := range calls {
		if err != nil {
			c.err = s.explain(err)
		}
		close(c.done)
	}
}

// attempt runs calls in one transaction and commits it. The errors of single
// calls are in them; an error that is returned is that of them all.
func (s *Store) attempt(calls []*call) (err error) {
	if s.broken != nil {
		return s.broken
	}
	bt, err := s.db.Begin(true)
	if err != nil {
		return err
	}
	defer func() {
		if p := recover(); p != nil {
			err = asDamage(p)
		}
		if err != nil {
			s.abandon(bt)
		}
	}()
	full := s.makeRoom(bt)
	b, err := newBatch(bt, s.id)
	if err != nil {
		return err
	}
	for _, c := range calls {
		if s.run(c, b, full); b.failed != nil {
			return b.failed
		}
	}
	number := uint64(bt.ID())
	if b.writes == 0 && number-1 <= s.synced.Load() {
		return bt.Rollback() // nobody changed anything, and all that was read is on disk
	}
	return s.commit(bt, b, number)
}

// run gives c its turn. full is why the store must not grow, if it must not.
func (s *Store) run(c *call, b *batch, full error) {
	if c.dead {
		return
	}
	if c.standing.Load() != started {
		if c.withdrawn.Err() != nil || !c.standing.CompareAndSwap(queued, started) {
			c.err = context.Cause(c.withdrawn)
			return
		}
	}
	tx := b.begin()
	c.turn <- tx
	<-c.ran
	if c.err == nil && full != nil && tx.grown.adds() {
		c.err = s.explain(full)
	}
	if c.err != nil || c.dead {
		tx.rollback()
	}
}

// commit makes the batch durable.
func (s *Store) commit(bt *bolt.Tx, b *batch, number uint64) error {
	if err := b.commitState(); err != nil {
		return err
	}
	s.point("before-commit")
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if err := bt.Commit(); err != nil {
		return err
	}
	s.point("after-commit")
	if err := s.witness.write(s.id, b.st.commit); err != nil {
		return err
	}
	s.synced.Store(number)
	s.point("before-answer")
	return nil
}

// abandon ends a transaction that failed. bbolt may have contradicted itself
// halfway: if it cannot even give up, nothing can be written any more.
func (s *Store) abandon(bt *bolt.Tx) {
	defer func() {
		if p := recover(); p != nil {
			s.broken = asDamage(p)
		}
	}()
	if err := bt.Rollback(); err != nil && !errors.Is(err, bolterrors.ErrTxClosed) {
		s.broken = err
	}
}

func (s *Store) point(name string) {
	if s.o.Fail != nil {
		s.o.Fail(name)
	}
}

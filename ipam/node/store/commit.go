package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/store/disk"
)

// maxBatch bounds how many calls share a commit, and with it how long the first
// of them waits for the functions of the others.
const maxBatch = 256

// A call is one Update under way.
type call struct {
	fn func(*Tx) error
	// withdrawn returns why fn must not start any more, if it must not.
	withdrawn func() error
	standing  atomic.Int32
	done      chan struct{} // closed when err and panicked are final

	err      error
	panicked *Panic
}

// The standings of a call.
const (
	queued  int32 = iota // its caller may still withdraw it
	started              // its function runs or has run
	gone                 // its caller has withdrawn it
	answered
)

// A Panic is what Update panics with where its function panicked.
type Panic struct {
	Value any    // of the function's panic
	Stack []byte // of the goroutine that the function ran on
}

// Error returns the value, with the stack.
func (p *Panic) Error() string { return fmt.Sprintf("%v\n\n%s", p.Value, p.Stack) }

// Unwrap returns the value if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// errExited is what calls end with where a function called runtime.Goexit, as FailNow
// of a test does: its own, and those that were to share its commit.
var errExited = errors.New("the function of an Update ended its goroutine")

// Update calls fn and makes what it changes durable. When Update returns nil,
// the change is on disk.
//
// If fn returns an error, nothing of what it did stays, no other call is
// disturbed, and Update returns the error as it is. A panic of fn does the
// same: Update then panics, with a *Panic, on its caller's goroutine.
//
// The call whose turn it is commits for all that wait: it runs their functions, one after
// the other, on its own goroutine. So fn must not block, nor call the Store, nor end its
// goroutine. It runs once, or again after a commit that it shared with other calls failed:
// then without anything that it did before.
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
		return s.late(context.Cause(ctx))
	}
	if s.o.ReadOnly {
		return s.explain(ErrReadOnly)
	}
	withdrawn := func() error { return context.Cause(ctx) }
	c := &call{fn: fn, withdrawn: withdrawn, done: make(chan struct{})}
	if err := s.enqueue(c); err != nil {
		return s.explain(err)
	}
	for until := ctx; c.standing.Load() != answered; {
		switch s.wait(until, c.done, s.turn) {
		case 0:
		case 1:
			s.lead(c)
		default:
			if c.standing.CompareAndSwap(queued, gone) {
				return s.late(context.Cause(ctx))
			}
			until = context.WithoutCancel(ctx)
		}
	}
	if c.panicked != nil {
		panic(c.panicked)
	}
	return c.err
}

// slow is from when on a commit under way is said to be in the way of others.
const slow = 100 * time.Millisecond

// late adds to the cause that ended a call before its function ran, or while it waited,
// that the disk is in the way, if it is: also of a call that has come too late to wait.
func (s *Store) late(cause error) error {
	began := s.committing.Load()
	if began == nil || time.Since(*began) < slow {
		return cause
	}
	return fmt.Errorf("%w; store %s has been writing what came before for %v: its disk is slow, or hangs",
		cause, s.path, time.Since(*began).Round(time.Millisecond))
}

func (s *Store) enqueue(c *call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return ErrClosed
	}
	s.queue = append(s.queue, c)
	return nil
}

// wait waits until one of two events can be received from, which it receives, or until ctx
// ends. It returns which, counted from 0, or a negative number. An event that is nil does
// not come. Nothing else of a store waits for other calls.
func (s *Store) wait(ctx context.Context, first, second <-chan struct{}) int {
	if s.o.Wait != nil {
		return s.o.Wait(ctx, first, second)
	}
	select {
	case <-first:
		return 0
	case <-second:
		return 1
	case <-ctx.Done():
		return -1
	}
}

// lead commits for all that wait, c among them, and passes the turn, which c has.
func (s *Store) lead(c *call) {
	defer s.pass()
	if c.standing.Load() == answered {
		return // the turn came with the answer
	}
	s.serveQueue()
	// The callers that were just answered are runnable: let them queue what they want
	// next, so that it shares the next commit.
	runtime.Gosched()
}

// serveQueue runs and answers the calls of one commit, and reports whether there were any.
func (s *Store) serveQueue() bool {
	// A fault in the mapped file, which somebody has cut off behind our back,
	// is a panic that can be handled, and not the end of the process.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	calls := s.take()
	if len(calls) == 0 {
		return false
	}
	defer s.answer(calls, errExited) // those that have no answer yet
	s.serve(calls)
	return true
}

// pass gives the turn to another call.
func (s *Store) pass() { s.turn <- struct{}{} }

// take returns the next batch, which is what has queued while the last one was written.
func (s *Store) take() []*call {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.queue), maxBatch)
	calls := s.queue[:n:n]
	s.queue = s.queue[n:]
	return calls
}

// serve runs and answers calls. If they cannot be committed together, because
// one needs more room than there is or meets damage, each goes alone.
func (s *Store) serve(calls []*call) {
	err := s.attemptGrowing(calls)
	if len(calls) > 1 && (isFull(err) || errors.Is(err, ErrCorrupt)) {
		for i := range calls {
			s.answer(calls[i:i+1], s.attemptGrowing(calls[i:i+1]))
		}
		return
	}
	s.answer(calls, err)
}

// answer ends those of calls that have not ended: with err, if there is one, else each
// with its own. A function's panic is its caller's in any case.
func (s *Store) answer(calls []*call, err error) {
	for _, c := range calls {
		if c.standing.Load() == answered {
			continue
		}
		if err != nil {
			c.err = s.explain(err)
		}
		c.standing.Store(answered)
		close(c.done)
	}
}

// attemptGrowing is attempt, on a disk that makes as much room as it takes.
func (s *Store) attemptGrowing(calls []*call) error {
	for {
		if err := s.attempt(calls); !errors.Is(err, disk.ErrAgain) {
			return err
		}
	}
}

// attempt runs calls in one transaction and commits it. The errors of single
// calls are in them; an error that is returned is that of them all.
func (s *Store) attempt(calls []*call) (err error) {
	if s.broken != nil {
		return s.broken
	}
	bt, err := s.disk.Begin(true)
	if errors.Is(err, ErrCorrupt) {
		return s.breakDown(err)
	}
	if err != nil {
		return err
	}
	over := false
	defer func() {
		if p := recover(); p != nil {
			err = asDamage(p)
		}
		if err != nil || !over {
			s.abandon(bt)
		}
	}()
	b, err := newBatch(bt, true, s.id)
	if err != nil {
		return err
	}
	if len(s.decoded) > maxDecoded {
		clear(s.decoded)
	}
	b.decoded = s.decoded
	for _, c := range calls {
		if s.run(c, b, bt.Full()); b.failed != nil {
			return b.failed
		}
	}
	over = true
	number := bt.Number()
	if b.writes == 0 && number-1 <= s.synced.Load() {
		return bt.Rollback() // nobody changed anything, and all that was read is on disk
	}
	return s.commit(bt, b, number)
}

// commit makes the batch durable, and tells what it has changed.
func (s *Store) commit(bt disk.Tx, b *batch, number uint64) (err error) {
	if s.o.Committed != nil {
		defer func() {
			switch {
			case errors.Is(err, disk.ErrAgain): // nothing was written
			case err != nil:
				s.o.Committed(nil)
			case len(b.changes) > 0:
				s.o.Committed(b.changes)
			}
		}()
	}
	if err := b.commitState(); err != nil {
		return err
	}
	began := time.Now()
	s.committing.Store(&began)
	defer s.committing.Store(nil)
	s.point("before-commit")
	if err := bt.Commit(); err != nil {
		return err
	}
	s.point("after-commit")
	if err := s.o.tellWitness(s.id, b.st.commit); err != nil {
		return err
	}
	s.synced.Store(number)
	s.point("before-answer")
	return nil
}

// abandon ends a transaction that failed.
func (s *Store) abandon(bt disk.Tx) {
	if err := bt.Rollback(); err != nil {
		_ = s.breakDown(err) // for the next call
	}
}

// run runs c, if its caller still wants it. full is why the store must not
// grow, if it must not.
func (s *Store) run(c *call, b *batch, full error) {
	if c.standing.Load() != started {
		if c.err = c.withdrawn(); c.err != nil || !c.standing.CompareAndSwap(queued, started) {
			return
		}
	}
	tx := b.begin()
	c.panicked, c.err = tx.runContained(c.fn)
	switch c.err = s.verdict(tx, c.err); {
	case c.err == nil && full != nil && tx.grown.adds():
		c.err = s.explain(full)
	case c.err == nil && c.panicked == nil:
		b.changes = append(b.changes, tx.changes...)
		return
	}
	tx.rollback()
}

// runContained is run, but a panic that run lets pass is returned.
func (tx *Tx) runContained(fn func(*Tx) error) (panicked *Panic, err error) {
	defer func() {
		if p := recover(); p != nil {
			panicked = &Panic{Value: p, Stack: debug.Stack()}
		}
	}()
	return nil, tx.run(fn)
}

func (s *Store) point(name string) {
	if s.o.Fail != nil {
		s.o.Fail(name)
	}
}

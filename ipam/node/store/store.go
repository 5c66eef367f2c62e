package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/store/disk"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Options are how a store is opened. The zero Options are those of a store that
// is read and written and has no witness.
type Options struct {
	// ReadOnly opens an existing file for reading; several processes may at a
	// time. Nothing is written, not even to repair.
	ReadOnly bool

	// Witness, if not nil, follows every commit before its answer, so that Open can
	// tell a store that was put back to an earlier state, or exchanged, while the
	// machine ran: then it returns ErrOlder. See [Store.Witnessed] for when it is
	// missing.
	Witness Witness

	// Wait, if not nil, is how a call waits, for a scheduler of a simulation's own: until one
	// of two events can be received from, which it receives, or until ctx ends. It returns
	// which, counted from 0, or a negative number. An event that is nil does not come.
	Wait func(ctx context.Context, first, second <-chan struct{}) int

	// Committed, if not nil, is told what each commit has made of attachments, in the order of
	// commits, before their calls are answered. It must not block. Where a commit failed it is told
	// nothing: then what there is may have changed or not, as [Store.Update] says.
	Committed func([]Change)

	// Fail, if not nil, is called at the named points of every commit, for
	// crash tests only: "before-commit", "after-commit", "before-answer".
	Fail func(point string)

	// grow is growFile. Tests replace it to run out of space.
	grow func(f *os.File, to int64) error
}

// A Store is an open store. Its methods may be called by several goroutines at
// a time.
type Store struct {
	path string
	o    Options
	id   protocol.StoreID
	disk disk.Disk

	witnessed bool

	// synced is the number of the last bbolt transaction that is on disk and
	// witnessed. bbolt lets readers see a commit while it is still being
	// synced: what they read must not be answered before this number says so.
	synced atomic.Uint64
	// turn has one element while nobody commits. Who takes it may commit, and gives it back.
	turn chan struct{}
	// committing is when the commit under way began; nil is none.
	committing atomic.Pointer[time.Time]

	mu      sync.Mutex // guards the next two fields
	queue   []*call
	closing bool
	dead    chan struct{} // closed when broken is not nil

	// Of the call that has the turn.
	broken  error // why nothing can be written any more; see breakDown
	decoded map[string]decoded
}

// Open opens the store at path, and makes it, and its directory, if there is
// none. The whole file is checked, which takes about a millisecond per thousand
// attachments. If another process has it open, Open returns ErrLocked at once.
func Open(path string, o Options) (*Store, error) {
	return open(path, o, tryLock)
}

// OpenLocal is Open for processes that live for one call: if others have the
// store open, it waits for them until ctx ends.
func OpenLocal(ctx context.Context, path string, o Options) (*Store, error) {
	return open(path, o, func(f *os.File, readOnly bool) error { return waitLock(ctx, f, readOnly) })
}

// ID returns the store's ID: random, made once with the store.
func (s *Store) ID() protocol.StoreID { return s.id }

// Path returns the path that the store was opened by.
func (s *Store) Path() string { return s.path }

// Witnessed reports whether Open found the witness that Options name and the
// store agreed with it. If it is false although the store's Identity is of the
// machine's present boot, the witness was lost, and with it the proof that the
// store is the latest: treat it as ErrOlder. A new store is witnessed before it is there,
// and the first Update after a reboot makes the witness again.
func (s *Store) Witnessed() bool { return s.witnessed }

// Broken is closed when the store has met what only opening it again can mend: nothing is
// written any more, and what it reads may be behind.
func (s *Store) Broken() <-chan struct{} { return s.dead }

// breakDown notes why nothing can be written any more. Its caller has the turn.
func (s *Store) breakDown(err error) error {
	if s.broken == nil {
		close(s.dead)
	}
	s.broken = err
	return err
}

// unending is the context of calls that nothing ends.
var unending = context.Background() //nolint:forbidigo // see above

// Close waits for calls that are under way and closes the store. A second Close
// does nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	first := !s.closing
	s.closing = true
	s.mu.Unlock()
	s.wait(unending, s.turn, nil)
	defer s.pass()
	if !first {
		return nil
	}
	for s.serveQueue() {
	}
	return s.explain(errors.Join(s.disk.Close(), s.o.closeWitness()))
}

// View calls fn with what is on disk now. fn must not call Update, must not
// keep what it reads of a table, and sees no change that happens meanwhile. A
// View that lasts makes the file grow while others write.
//
// Where fn saw a commit that is still being synced, View waits for that.
func (s *Store) View(fn func(*Tx) error) error {
	return s.ViewContext(unending, fn)
}

// ViewContext is View, but if ctx ends while it waits for a commit that fn saw, it
// returns ctx's cause: what fn has read may not be there after a crash, so nothing may
// follow from it.
func (s *Store) ViewContext(ctx context.Context, fn func(*Tx) error) error {
	bt, err := s.disk.Begin(false)
	if err != nil {
		return s.explain(err)
	}
	number := bt.Number()
	if err := s.read(bt, fn); err != nil || number <= s.synced.Load() {
		return err
	}
	if s.wait(ctx, s.turn, nil) != 0 {
		return s.late(context.Cause(ctx))
	}
	defer s.pass()
	if number > s.synced.Load() {
		return s.explain(errors.New("the last commit did not reach the disk: nothing can be answered from it before the next one does"))
	}
	return nil
}

// Peek is View, but it does not wait for a commit that fn saw and that is still being
// synced. What fn has read stays for as long as this process lives, but a crash of the
// machine may take it back: what follows from it must not outlive this process. So it is
// for what is only looked at again in an Update, or said of the present to people, and
// nothing may be answered or given away by it.
func (s *Store) Peek(fn func(*Tx) error) error {
	bt, err := s.disk.Begin(false)
	if err != nil {
		return s.explain(err)
	}
	return s.read(bt, fn)
}

// read runs fn on bt and ends bt, also if fn panics.
func (s *Store) read(bt disk.Tx, fn func(*Tx) error) error {
	defer bt.Rollback() //nolint:errcheck // of a transaction that only read
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	b, err := newBatch(bt, false, s.id)
	if err != nil {
		return s.explain(err)
	}
	tx := b.begin()
	err = tx.run(fn)
	return s.verdict(tx, err)
}

// verdict returns what a call ends with whose function returned err: an error
// of the function's own as it is, one of the store's with the file and the
// remedy.
func (s *Store) verdict(tx *Tx, err error) error {
	switch {
	case tx.err == nil:
		return err
	case errors.Is(err, tx.err):
		return s.explain(err)
	default:
		return s.explain(tx.err)
	}
}

// explain adds to an error the file and what to do about it.
func (s *Store) explain(err error) error { return explain(s.path, err) }

func explain(path string, err error) error {
	var (
		condition error // that err does not wrap yet
		remedy    string
	)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, disk.ErrClosed):
		return fmt.Errorf("store %s: %w", path, ErrClosed)
	case errors.Is(err, ErrLocked):
		remedy = "another process has it open: stop that one first (a second agent on this node?)"
	case errors.Is(err, ErrCorrupt), errors.Is(err, ErrOlder):
		remedy = "move the file away and start again: a new store is made"
	case isFull(err):
		condition, remedy = ErrFull, "make room on its file system"
	case isReadOnly(err):
		condition, remedy = ErrReadOnly, "make the file, and its file system, writable for this process"
	}
	switch {
	case remedy == "":
		return fmt.Errorf("store %s: %w", path, err)
	case condition != nil && !errors.Is(err, condition):
		return fmt.Errorf("store %s: %w: %w: %s", path, condition, err, remedy)
	default:
		return fmt.Errorf("store %s: %w: %s", path, err, remedy)
	}
}

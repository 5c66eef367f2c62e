package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tenure-ipam/tenure/ipam/atomicfile"
	"github.com/tenure-ipam/tenure/ipam/pause"
)

// ErrBusy is wrapped by the errors of locks that somebody else held for too long.
var ErrBusy = errors.New("another call is at work")

// A busyError is the error of a lock that somebody else held for too long.
type busyError struct {
	Path string
	// Holders are the processes that have it, for people to read; empty if they are not
	// known.
	Holders string
	Err     error // what ended the wait
}

// Error says which lock it is, and who has it.
func (e *busyError) Error() string {
	text := fmt.Sprintf("journal: lock %s: %v: %v", e.Path, ErrBusy, e.Err)
	if e.Holders != "" {
		text += "; it is held by " + e.Holders
	}
	return text
}

// Unwrap returns [ErrBusy] and what ended the wait.
func (e *busyError) Unwrap() []error { return []error{ErrBusy, e.Err} }

// The files in locks that are no container's. A container's ID begins with a letter
// or a digit.
const (
	lockAll  = ".all"
	lockTurn = ".turn"
)

// A Lock is the right to work on a container, or on all of them. The kernel takes it
// back when the process ends, and whoever inherited its file.
type Lock struct {
	path   string // of own
	own    *os.File
	shared *os.File // nil for a lock on all
}

func (d Dir) locks() string { return filepath.Join(d.Path, "locks") }

// Lock waits until nobody works on the container or on all of them, or ctx ends. The
// error then wraps [ErrBusy].
func (d Dir) Lock(ctx context.Context, containerID string) (*Lock, error) {
	if containerID == "" || containerID[0] == '.' || filepath.Base(containerID) != containerID {
		return nil, fmt.Errorf("journal: container ID %q names no file", containerID)
	}
	// Whoever wants all of them stands at the turn, so that a stream of calls for
	// single containers does not keep it waiting.
	turn, err := d.flock(ctx, lockTurn, syscall.LOCK_SH)
	if err != nil {
		return nil, err
	}
	shared, err := d.flock(ctx, lockAll, syscall.LOCK_SH)
	if err := errors.Join(err, turn.Close()); err != nil {
		return nil, err
	}
	own, err := d.flock(ctx, containerID, syscall.LOCK_EX)
	if err != nil {
		return nil, errors.Join(err, shared.Close())
	}
	return &Lock{path: own.Name(), own: own, shared: shared}, nil
}

// LockAll waits until nobody works on any container, or ctx ends. The error then
// wraps [ErrBusy].
func (d Dir) LockAll(ctx context.Context) (*Lock, error) {
	turn, err := d.flock(ctx, lockTurn, syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	all, err := d.flock(ctx, lockAll, syscall.LOCK_EX)
	if err := errors.Join(err, turn.Close()); err != nil {
		return nil, err
	}
	return &Lock{path: all.Name(), own: all}, nil
}

// LockAmong locks one container for a caller that holds the lock on all. It waits for programs
// that have outlived the call which started them.
func (d Dir) LockAmong(ctx context.Context, all *Lock, containerID string) (*Lock, error) {
	if all.shared != nil {
		return nil, errors.New("journal: the lock is not on all containers")
	}
	own, err := d.flock(ctx, containerID, syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	return &Lock{path: own.Name(), own: own}, nil
}

// File returns what a program inherits that is started under the lock. While the program has it,
// nobody else gets the lock, even if its parent is killed: nobody would undo what a delegate does
// late.
func (l *Lock) File() *os.File { return l.own }

// Forget gives the lock of a container back and removes its file: the container is
// gone. Others may be waiting for it; they see that the file is another one.
func (l *Lock) Forget() error { return errors.Join(atomicfile.Remove(l.path), l.Release()) }

// Release gives the lock back, also from those who inherited it and live on: they hold
// the lock where their parent is killed, and no longer where it has seen to its end what
// it was locked for.
func (l *Lock) Release() error {
	err := unlock(l.own)
	if l.shared != nil {
		err = errors.Join(err, l.shared.Close()) // which nobody inherits
	}
	return err
}

// unlock gives back a lock that others may have inherited.
func unlock(f *os.File) error {
	err := flock(f, syscall.LOCK_UN)
	if err != nil {
		err = fmt.Errorf("journal: unlock %s: %w", f.Name(), err)
	}
	return errors.Join(err, f.Close())
}

// flock opens the file name of the locks and locks it.
func (d Dir) flock(ctx context.Context, name string, how int) (*os.File, error) {
	path := filepath.Join(d.locks(), name)
	for nap := time.Millisecond; ; nap = min(2*nap, 50*time.Millisecond) {
		f, err := d.openLock(path)
		if err != nil {
			return nil, fmt.Errorf("journal: %w", err)
		}
		switch err = flock(f, how|syscall.LOCK_NB); {
		case err == nil && same(f, path):
			return f, nil
		case err != nil && !errors.Is(err, syscall.EWOULDBLOCK):
			return nil, fmt.Errorf("journal: lock %s: %w", path, errors.Join(err, f.Close()))
		}
		slept := pause.For(ctx, nap)
		var by string
		if !slept && errors.Is(ctx.Err(), context.DeadlineExceeded) { // and not a mere try
			by = Holders(f)
		}
		if err := f.Close(); err != nil {
			return nil, fmt.Errorf("journal: %w", err)
		}
		if !slept {
			return nil, &busyError{Path: path, Holders: by, Err: context.Cause(ctx)}
		}
	}
}

func (d Dir) openLock(path string) (*os.File, error) {
	const flags = os.O_RDWR | os.O_CREATE
	f, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = atomicfile.MakeDir(d.locks()); err == nil {
			f, err = os.OpenFile(path, flags, 0o600)
		}
	}
	if errors.Is(err, syscall.EROFS) { // a lock takes no writing
		if f, readErr := os.Open(path); readErr == nil {
			return f, nil
		}
	}
	return f, err
}

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if err != syscall.EINTR {
			return err
		}
	}
}

// same reports whether f is still what path names: a lock on a file that was
// removed is worth nothing.
func same(f *os.File, path string) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && os.SameFile(mine, now)
}

package store

import (
	"context"
	"errors"
	"os"
	"syscall"
)

// The lock is the one that bbolt takes too, on the very file that bbolt is then
// given: nobody who opens the file through bbolt gets past it, and bbolt's own
// attempt succeeds at once instead of polling every 50 ms.

// tryLock takes the lock, or returns ErrLocked when another process has it.
func tryLock(f *os.File, readOnly bool) error {
	err := flock(f, how(readOnly)|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

// waitLock queues for the lock in the kernel until ctx ends. A thread that waits
// there cannot be called back: when ctx ends first, it keeps a descriptor of its
// own until the kernel grants the lock.
func waitLock(ctx context.Context, f *os.File, readOnly bool) error {
	err := tryLock(f, readOnly)
	if !errors.Is(err, ErrLocked) {
		return err
	}
	// A duplicate shares the lock with f, and gives it back when both are closed.
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		return os.NewSyscallError("dup", err)
	}
	own := os.NewFile(uintptr(fd), f.Name())
	granted := make(chan error, 1)
	go func() {
		defer own.Close() // it is only a lock
		granted <- flock(own, how(readOnly))
	}()
	select {
	case err := <-granted:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func how(readOnly bool) int {
	if readOnly {
		return syscall.LOCK_SH
	}
	return syscall.LOCK_EX
}

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("flock", err)
		}
	}
}

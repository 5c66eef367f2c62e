package store

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
)

// Outcomes that a caller is expected to tell apart. The errors that wrap them
// name the file and say what to do.
var (
	// ErrLocked is returned by Open when another process has the store open.
	ErrLocked = errors.New("store is locked")

	// ErrNewerSchema is returned by Open when a later version of this program
	// wrote the store.
	ErrNewerSchema = errors.New("store has a newer schema")

	// ErrCorrupt is returned when the file is not what was written: by Open,
	// and by any later call that meets the damage. Nothing read in the same
	// call may be used. The remedy is to set the file aside and start a new
	// store; what the node's pods have is then read back, and the leases of the old
	// one are frozen (docs/contributing/protocol.md).
	ErrCorrupt = errors.New("store is damaged")

	// ErrOlder is returned by Open when the file is whole but is not the one
	// that was last in use, or is an earlier state of it: see Options.Witness.
	// The remedy is that of ErrCorrupt.
	ErrOlder = errors.New("store is older than what it answered")

	// ErrFull is returned by Update when the disk is full and the change would
	// make the store grow. Changes that delete more than they add still work,
	// from space kept for them; so does everything once there is room again.
	ErrFull = errors.New("no space for the store")

	// ErrReadOnly is returned by Update, and by every write in a View, when the
	// store was opened to be read, or the file or its file system does not let
	// it be written.
	ErrReadOnly = errors.New("store is read-only")

	// ErrClosed is returned by every call after Close.
	ErrClosed = errors.New("store is closed")
)

// corrupt returns err as damage of the file.
func corrupt(err error) error {
	if err == nil || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNewerSchema) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}

// damage is the panic that carries ErrCorrupt out of a call that has no error
// to return (the methods of allocator.Table). It never leaves the package.
type damage struct{ err error }

// asDamage turns the value of a recovered panic, which came from bbolt or from
// memory that the file is mapped to, into an error.
func asDamage(p any) error {
	switch p := p.(type) {
	case damage:
		return p.err
	case error:
		return corrupt(p)
	default:
		return corrupt(fmt.Errorf("%v", p))
	}
}

// isFull reports whether err says that there is no room to write: the device's,
// a quota's, or the limit on the size of a file.
func isFull(err error) bool {
	return errors.Is(err, ErrFull) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// isReadOnly reports whether err says that the file may not be written.
func isReadOnly(err error) bool {
	return errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM)
}

// asFault returns the error of a panic that says that the file is damaged: one
// of ours, or an access to memory that the file no longer reaches. It is nil for
// every other panic.
func asFault(p any) error {
	if d, ok := p.(damage); ok {
		return d.err
	}
	if fault, ok := p.(interface {
		runtime.Error
		Addr() uintptr
	}); ok {
		return corrupt(fault)
	}
	return nil
}

// Package quiet makes system calls that wait, for programs that live for milliseconds.
// While one of package syscall lasts, the runtime of Go keeps the caller's processor (its
// P) for it, and a thread of the runtime wakes up every 20 µs, for the first milliseconds,
// to see whether somebody else should have it. In a plugin that waits for the agent that is
// up to a third of all its processor time, on the processors that the agent needs.
//
// A call of this package gives the processor up before it waits, as the runtime does in its
// own long waits, and that thread sleeps as well. Where the wait is short, as a file's read
// is, that costs more than it saves.
package quiet

import (
	"syscall"
	"unsafe"
)

// Read is [syscall.Read].
func Read(fd int, p []byte) (int, error) {
	if len(p) == 0 {
		return syscall.Read(fd, p)
	}
	n, errno := call(syscall.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), 0)
	if errno != 0 {
		return -1, errno
	}
	synced(fd)
	return int(n), nil
}

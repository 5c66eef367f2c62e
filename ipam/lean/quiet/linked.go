//go:build !plainruntime

package quiet

import (
	"syscall"
	_ "unsafe" // for go:linkname
)

// The runtime lets other modules have these two (go.dev/issue/67401). Without a body they
// need a file of assembly beside them, which is empty.

//go:linkname entersyscallblock runtime.entersyscallblock
func entersyscallblock()

//go:linkname exitsyscall runtime.exitsyscall
func exitsyscall()

// call makes a system call of four arguments. Between the two calls of the runtime the stack
// must not grow, nor may anything be recorded for the race detector.
//
//go:uintptrescapes
//go:nosplit
//go:norace
func call(trap, a1, a2, a3, a4 uintptr) (uintptr, syscall.Errno) {
	entersyscallblock()
	r, _, errno := syscall.RawSyscall6(trap, a1, a2, a3, a4, 0, 0)
	exitsyscall()
	return r, errno
}

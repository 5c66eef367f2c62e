//go:build plainruntime

package quiet

import "syscall"

// call makes a system call of four arguments, as any program does: for a version of Go whose
// runtime does not let other modules have what linked.go takes.
//
//go:uintptrescapes
func call(trap, a1, a2, a3, a4 uintptr) (uintptr, syscall.Errno) {
	r, _, errno := syscall.Syscall6(trap, a1, a2, a3, a4, 0, 0)
	return r, errno
}

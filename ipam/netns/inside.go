package netns

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Inside calls do on a thread in the network namespace that the open file ns is of: there
// /proc/sys/net and new sockets are the namespace's. The thread is not unlocked, and so ends with
// its goroutine: it serves nobody else.
func Inside(ns int, do func() error) error {
	ended := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Setns(ns, unix.CLONE_NEWNET)
		if err == nil {
			err = do()
		}
		ended <- err
	}()
	return <-ended
}

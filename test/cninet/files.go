package cninet

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tenure-ipam/tenure/test/sandbox"
)

// Files is a view of the file system: the sandbox's, with some directories in the
// places of others. So several nodes on one machine have their files at the paths
// where every node has them. The zero Files is the sandbox's own view.
type Files struct {
	ns *os.File // a mount namespace, which lasts as long as the file is open
}

// MakeFiles returns a view in which each key of inPlaceOf, a directory that exists,
// is its value, likewise. Network namespaces made later appear in it as well.
func MakeFiles(inPlaceOf map[string]string) (f Files, err error) {
	if !sandbox.Inside() {
		return Files{}, errors.New("cninet: mounts are made in a sandbox only, so that none is left: see sandbox.Main")
	}
	err = onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("make a mount namespace: %w", err)
		}
		for target, source := range inPlaceOf {
			if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("mount %s on %s: %w", source, target, err)
			}
		}
		f.ns, err = os.Open("/proc/thread-self/ns/mnt")
		return err
	})
	return f, err
}

// Do runs fn with this view, on a thread of its own: goroutines that fn starts do not
// have it, processes do. Relative paths mean nothing there.
func (f Files) Do(fn func() error) error {
	return onThread(func() error {
		if err := f.enter(); err != nil {
			return err
		}
		return fn()
	})
}

// enter gives the view to a thread that nobody uses afterwards.
func (f Files) enter() error {
	if f.ns == nil {
		return nil
	}
	// Threads of a process share one root and one working directory, which the
	// kernel wants to change.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("part from the process's directories: %w", err)
	}
	if err := unix.Setns(int(f.ns.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter a mount namespace: %w", err)
	}
	return nil
}

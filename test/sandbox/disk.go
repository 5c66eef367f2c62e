package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// DiskRoot is where sandboxes have their directories: on a real disk, where /tmp
// often is not.
const DiskRoot = "/var/tmp"

const diskPrefix = "tenure-sandbox-"

// disk is a directory that the process outside the sandbox holds by a lock, so
// that another can tell one in use from one that a killed sandbox has left.
type disk struct {
	path string
	lock *os.File
}

// newDisk makes a directory below root, and removes those that nobody holds.
// Root is locked meanwhile: another's sweep must not find a directory between
// its making and its locking.
func newDisk(root string) (*disk, error) {
	turn, err := lockDir(root, unix.LOCK_EX)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", root, err)
	}
	defer turn.Close()
	if err := sweep(root); err != nil {
		return nil, err
	}
	path, err := os.MkdirTemp(root, diskPrefix)
	if err != nil {
		return nil, fmt.Errorf("make a directory on disk: %w", err)
	}
	lock, err := lockDir(path, unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &disk{path: path, lock: lock}, nil
}

// remove deletes the directory; what resists is left to the next sweep.
func (d *disk) remove() {
	_ = os.RemoveAll(d.path)
	d.lock.Close()
}

// Sweep removes the directories on disk that killed sandboxes have left.
func Sweep() error {
	turn, err := lockDir(DiskRoot, unix.LOCK_EX)
	if err != nil {
		return fmt.Errorf("lock %s: %w", DiskRoot, err)
	}
	defer turn.Close()
	return sweep(DiskRoot)
}

// sweep removes the directories below root that no living sandbox holds.
func sweep(root string) error {
	left, err := filepath.Glob(filepath.Join(root, diskPrefix+"*"))
	if err != nil {
		return fmt.Errorf("look for left directories: %w", err)
	}
	for _, path := range left {
		lock, err := lockDir(path, unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("lock %s: %w", path, err)
		}
		err = os.RemoveAll(path)
		lock.Close()
		if err != nil {
			return fmt.Errorf("remove what a killed sandbox left: %w", err)
		}
	}
	return nil
}

// lockDir opens the directory path and locks it as flock(2) does with how;
// closing the file unlocks it.
func lockDir(path string, how int) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

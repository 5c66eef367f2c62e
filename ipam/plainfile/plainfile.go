// Package plainfile opens files of programs that live for milliseconds. Package os
// offers each file that it opens to the runtime's poller, which no file on a disk can
// use: four system calls for each, and six more and a thread for the first one.
package plainfile

import (
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Open is [os.OpenFile] for a file on a disk, or one of /proc: reads and writes of the
// file block a thread.
func Open(name string, flag int, perm fs.FileMode) (*os.File, error) {
	for {
		fd, err := syscall.Open(name, flag|syscall.O_CLOEXEC, uint32(perm.Perm()))
		switch err {
		case nil:
			return os.NewFile(uintptr(fd), name), nil
		case syscall.EINTR:
		default:
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

// Read is [os.ReadFile] for such a file.
func Read(name string) ([]byte, error) {
	f, err := Open(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() // it is only read
	return io.ReadAll(f)
}

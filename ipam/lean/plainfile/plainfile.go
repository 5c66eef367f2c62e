// Package plainfile opens files of programs that live for milliseconds. Package os
// offers each file that it opens to the runtime's poller, which no file on a disk can
// use: four system calls for each, and six more and a thread for the first one.
package plainfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Open opens a file on a disk, or one of /proc, as [os.OpenFile] does. Reads and writes of the
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

// DirFS returns what [os.DirFS] returns, but its files are opened by [Open]. Package os itself
// keeps directories from the poller.
func DirFS(dir string) fs.FS {
	return dirFS{os.DirFS(dir).(dirs), dir} // which it is documented to be
}

// dirs is what does not poll of what [os.DirFS] returns.
type dirs interface {
	fs.ReadDirFS
	fs.StatFS
}

type dirFS struct {
	dirs
	dir string
}

// Open implements [fs.FS].
func (d dirFS) Open(name string) (fs.File, error) {
	path, err := d.path(name)
	if err != nil {
		return nil, err
	}
	f, err := Open(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err // not f: a nil *os.File is no nil fs.File
	}
	return f, nil
}

// ReadFile implements [fs.ReadFileFS].
func (d dirFS) ReadFile(name string) ([]byte, error) {
	path, err := d.path(name)
	if err != nil {
		return nil, err
	}
	return Read(path)
}

// path returns the path of a name that an [fs.FS] takes.
func (d dirFS) path(name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	return filepath.Join(d.dir, name), nil
}

// Write writes such a file as [os.WriteFile] does.
func Write(name string, text []byte, perm fs.FileMode) error {
	f, err := Open(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// Read reads such a file as [os.ReadFile] does.
func Read(name string) ([]byte, error) {
	f, err := Open(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() // it is only read
	return io.ReadAll(f)
}

package plainfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"
)

// TestOpen does what package os does, and leaves the file to nobody else.
func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if _, err := Open(path, os.O_RDONLY, 0); !errors.Is(err, syscall.ENOENT) || err.Error() != "open "+path+": no such file or directory" {
		t.Errorf("a file that is not there: %v", err)
	}
	f, err := Open(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags %#x, %v; want a file that no other program inherits", flags, err)
	}
	if info, err := f.Stat(); err != nil || info.Mode() != 0o600 || f.Name() != path {
		t.Errorf("%s: %v, %v; want the file with the mode asked for", f.Name(), info, err)
	}
	if _, err := Open(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); !errors.Is(err, os.ErrExist) {
		t.Errorf("a file that is there already: %v; want ErrExist", err)
	}
}

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, want := range [][]byte{{}, []byte("x"), bytes.Repeat([]byte("long"), 1<<16)} {
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes, %v; want %d", len(got), err, len(want))
		}
	}
	if _, err := Read(filepath.Dir(path)); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("a directory: %v; want EISDIR", err)
	}
	if _, err := Read(path + ".none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v; want ErrNotExist", err)
	}
}

// TestDirFS is what package os has, to the bytes and by the errors that callers tell apart.
func TestDirFS(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "d/b"} {
		if err := Write(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files := DirFS(dir)
	if err := fstest.TestFS(files, "a", "d/b"); err != nil {
		t.Error(err)
	}
	if text, err := fs.ReadFile(files, "d/b"); err != nil || string(text) != "d/b" {
		t.Errorf("ReadFile: %q, %v", text, err)
	}
	if _, err := fs.ReadFile(files, "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v; want ErrNotExist", err)
	}
	if f, err := files.Open("none"); f != nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open of no file: %v, %v; want nil and ErrNotExist", f, err)
	}
	if _, err := fs.ReadFile(files, "../d/b"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a file elsewhere: %v; want ErrInvalid", err)
	}
}

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, want := range []string{"long", "x", ""} {
		if err := Write(path, []byte(want), 0o640); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode()&^0o640 != 0 {
		t.Errorf("%v, %v; want the mode asked for", info, err)
	}
	if err := Write(filepath.Join(path, "below"), nil, 0o600); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("below a file: %v; want ENOTDIR", err)
	}
}

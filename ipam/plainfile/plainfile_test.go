package plainfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

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

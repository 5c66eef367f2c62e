package quiet

import (
	"errors"
	"runtime"
	"syscall"
	"testing"
)

// TestRead: a read waits, and others run and collect garbage meanwhile, on as few
// processors as there may be; what it reads, and how it fails, is what package syscall has.
func TestRead(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fds[0])
	wrote := make(chan error, 1)
	go func() {
		for range 3 {
			runtime.GC() // stops whoever runs, and must not wait for who reads
		}
		_, err := syscall.Write(fds[1], []byte("hello"))
		wrote <- errors.Join(err, syscall.Close(fds[1]))
	}()
	p := make([]byte, 16)
	if n, err := Read(fds[0], p); err != nil || string(p[:n]) != "hello" {
		t.Errorf("got %q, %v", p[:max(n, 0)], err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	if n, err := Read(fds[0], p); n != 0 || err != nil {
		t.Errorf("at the end: %d, %v", n, err)
	}
	if n, err := Read(fds[0], nil); n != 0 || err != nil {
		t.Errorf("into nothing: %d, %v", n, err)
	}
	if n, err := Read(-1, p); n != -1 || err != syscall.EBADF {
		t.Errorf("no file: %d, %v; want -1, EBADF", n, err)
	}
}

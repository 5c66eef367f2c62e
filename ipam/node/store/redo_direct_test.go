package store

import (
	"testing"

	"golang.org/x/sys/unix"
)

// isDirect reports whether writes to the log go past the kernel's pages of it.
func isDirect(t *testing.T, r *redo) bool {
	t.Helper()
	flags, err := unix.FcntlInt(r.f.Fd(), unix.F_GETFL, 0)
	if err != nil {
		t.Fatal(err)
	}
	return flags&unix.O_DIRECT != 0
}

// TestRedoDirect: the log is written directly, of a file system that can, and like any file
// where a write is refused for that; no commit is lost on the way.
func TestRedoDirect(t *testing.T) {
	s := newStore(t, Options{Redo: true})
	if !isDirect(t, s.redo) {
		t.Skipf("%s lies in a file system that has no direct writes", s.Path())
	}
	put := func(n int) {
		t.Helper()
		update(t, s, func(tx *Tx) error { return tx.PutAttachment(claimed(n)) })
		taken(t, s)
	}
	put(1)
	if !isDirect(t, s.redo) {
		t.Error("the disk has refused a direct write")
	}
	s.redo.buf = make([]byte, 2*redoPage)[1:] // nothing is under way; no device takes pages from there
	put(2)
	if isDirect(t, s.redo) || s.redo.failed {
		t.Errorf("after a direct write was refused: direct %t, failed %t", isDirect(t, s.redo), s.redo.failed)
	}
	put(3)
	h, ok, err := readHistory(s.Path())
	if err != nil || !ok || len(h.commits) != 3 {
		t.Errorf("the log has %d commits, %t, %v; want 3", len(h.commits), ok, err)
	}
}

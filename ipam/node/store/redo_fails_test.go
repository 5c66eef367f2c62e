package store

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestRedoFails has the disk refuse one record of the log. The commits after it are
// durable all the same, although the log lacks one.
func TestRedoFails(t *testing.T) {
	s := newStore(t, Options{Redo: true})
	c := &powerCut{t: t, s: s, rng: rand.New(rand.NewPCG(5, 5))}
	m := newModel()
	put := func(n int) (model, error) {
		next := m.clone()
		a := claimed(n)
		next.counter++
		a.Generation = next.counter
		next.Attachments[a.Key.String()] = a
		return next, s.Update(t.Context(), func(tx *Tx) error { return tx.PutAttachment(claimed(n)) })
	}
	var err error
	if m, err = put(1); err != nil {
		t.Fatal(err)
	}
	c.watch()
	refusing, err := os.Open(RedoPath(s.Path()))
	if err != nil {
		t.Fatal(err)
	}
	defer refusing.Close() // only read
	good := s.redo.f
	s.redo.f = refusing // nothing is under way
	if err := s.View(func(*Tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	refused, err := put(2)
	if err == nil {
		t.Fatal("a change that the disk refused is answered")
	}
	s.redo.f = good
	if err := s.View(func(*Tx) error { return nil }); err == nil {
		t.Error("the store is read while nobody knows whether the change is there")
	}
	c.check("refused", c.file(), c.log, m, refused)
	for n := 3; n < 6; n++ {
		if m, err = put(n); err != nil {
			t.Fatal(err)
		}
		c.check(fmt.Sprint("change ", n), load(t, s.Path()), nil, m) // synced each time
	}
	if _, err := os.Stat(RedoPath(s.Path())); err == nil || s.redo != nil {
		t.Errorf("after it the log is still there: %v", err)
	}
}

// refuse is a disk that takes no sync.
func refuse(*os.File) error { return syscall.EIO }

// TestRedoHeadFails has the disk refuse the head of a log that begins anew: the log is
// given up, and what is answered afterwards is in the file.
func TestRedoHeadFails(t *testing.T) {
	for _, full := range []bool{false, true} {
		s := newStore(t, Options{Redo: true})
		c := &powerCut{t: t, s: s, rng: rand.New(rand.NewPCG(2, 2))}
		put := func(n int) {
			update(t, s, func(tx *Tx) error { return tx.PutAttachment(claimed(n)) })
			taken(t, s)
		}
		put(1)
		put(2)
		s.redo.sync = refuse // nothing is under way
		if full {
			s.redo.end = redoSize
			put(3)
		} else if err := s.settle(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(RedoPath(s.Path())); s.redo != nil || err == nil {
			t.Fatalf("the log is still there: %v", err)
		}
		put(4)
		got, err := c.open(load(t, s.Path()), nil, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(read(t, got).Attachments); n != map[bool]int{false: 3, true: 4}[full] {
			t.Errorf("%d attachments are in the file", n)
		}
		if err := got.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestRedoGhost has the disk refuse a change, and opens the store anew, from the same
// commit: the record of the change, which is in the log all the same, is not of this one.
func TestRedoGhost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := Open(path, Options{Redo: true})
	if err != nil {
		t.Fatal(err)
	}
	first := s.redo
	first.sync = refuse // nothing is under way
	if err := s.Update(t.Context(), func(tx *Tx) error { return tx.PutAttachment(claimed(1)) }); !errors.Is(err, syscall.EIO) {
		t.Fatalf("Update = %v", err)
	}
	first.sync = datasync
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, path, Options{Redo: true})
	c := &powerCut{t: t, s: s}
	update(t, s, func(tx *Tx) error { return tx.DeleteAttachment(claimed(1).Key) }) // nothing is there
	got, err := c.open(load(t, path), load(t, RedoPath(path)), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close() // only read
	if n := len(read(t, got).Attachments); n != 0 {
		t.Error("the change that was refused is back")
	}
}

// TestRedoOutlived opens a file that went on without its log, and was damaged then: the
// log, which could not be removed, is not taken for the rest of it.
func TestRedoOutlived(t *testing.T) {
	s := newStore(t, Options{Redo: true})
	put := func(n int) {
		update(t, s, func(tx *Tx) error { return tx.PutAttachment(claimed(n)) })
		taken(t, s)
	}
	kept, err := s.db.Begin(false) // so that the base stays whole, as it may by chance
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Rollback() //nolint:errcheck // it only read
	put(1)
	put(2)
	log := load(t, RedoPath(s.Path()))
	s.redo.sync = refuse
	if err := s.settle(); err != nil {
		t.Fatal(err)
	}
	for n := 3; n < 6; n++ {
		put(n)
	}
	file := load(t, s.Path())
	c := &powerCut{t: t, s: s}
	for at := 2 * redoPage; at < inUse(t, file); at += redoPage {
		damaged := slices.Clone(file)
		for i := range 64 {
			damaged[at+100+i] ^= 0x5a
		}
		got, err := c.open(damaged, log, Options{Redo: true})
		if errors.Is(err, ErrCorrupt) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if n := len(read(t, got).Attachments); n != 5 {
			t.Errorf("with page %d damaged it has %d attachments of 5, and says nothing", at/redoPage, n)
		}
		if err := got.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestRedoUnsynced has a sync of the file fail while the log has what it lacks: nothing is
// written any more, and opening finds all of it.
func TestRedoUnsynced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := Open(path, Options{Redo: true})
	if err != nil {
		t.Fatal(err)
	}
	update(t, s, func(tx *Tx) error { return tx.PutAttachment(claimed(1)) })
	taken(t, s)
	select {
	case <-s.Broken():
		t.Error("it is broken before")
	default:
	}
	if err := s.unsynced(syscall.EIO); err == nil || s.Update(t.Context(), func(tx *Tx) error { return tx.PutAttachment(claimed(2)) }) == nil {
		t.Error("it goes on")
	}
	<-s.Broken()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	h, ok, err := readHistory(path)
	if err != nil || !ok || len(h.commits) != 1 {
		t.Fatalf("the log says %+v, %v, %v", h, ok, err)
	}
	s = reopen(t, path, Options{Redo: true})
	if got := read(t, s).Attachments; len(got) != 1 {
		t.Errorf("opened again it has %v", got)
	}
}

// TestRedoUnsyncedGrowth has the sync of a file fail that is made larger: it was one of all
// that is in it.
func TestRedoUnsyncedGrowth(t *testing.T) {
	fails := false
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := Open(path, Options{Redo: true, grow: func(f *os.File, from, to int64) error {
		if fails {
			return &syncError{syscall.EIO}
		}
		return growFile(f, from, to)
	}})
	if err != nil {
		t.Fatal(err)
	}
	update(t, s, func(tx *Tx) error { return tx.PutAttachment(claimed(1)) })
	taken(t, s)
	fails = true // nothing is under way
	a := claimed(2)
	a.Netns = string(make([]byte, 4<<20))
	if err := s.Update(t.Context(), func(tx *Tx) error { return tx.PutAttachment(a) }); err == nil || !strings.Contains(err.Error(), syscall.EIO.Error()) {
		t.Errorf("Update = %v", err)
	}
	<-s.Broken()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, path, Options{Redo: true})
	if got := read(t, s).Attachments; len(got) != 1 {
		t.Errorf("opened again it has %v", got)
	}
}

// TestRedoRemoved removes the log of an open store: it goes on without.
func TestRedoRemoved(t *testing.T) {
	s := newStore(t, Options{Redo: true})
	update(t, s, func(tx *Tx) error { return tx.PutAttachment(claimed(1)) })
	taken(t, s)
	if err := os.Remove(RedoPath(s.Path())); err != nil {
		t.Fatal(err)
	}
	update(t, s, func(tx *Tx) error { return tx.PutAttachment(claimed(2)) })
	if s.redo != nil {
		t.Error("it still writes to a log that nobody will find")
	}
}

// TestRedoAhead has bbolt refuse a commit that was answered already. Nothing is read and
// nothing written any more, and opening finds the commit.
func TestRedoAhead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	var s *Store
	refuse := false
	s, err := Open(path, Options{Redo: true, Fail: func(point string) {
		if point == "before-answer" && refuse {
			s.db.MaxSize = 1
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	update(t, s, func(tx *Tx) error { return tx.PutAttachment(claimed(1)) })
	taken(t, s)
	refuse = true // nothing is under way
	a := claimed(2)
	a.Netns = string(bytes.Repeat([]byte{'n'}, 60_000))
	update(t, s, func(tx *Tx) error { return tx.PutAttachment(a) })
	for what, err := range map[string]error{
		"View":   s.View(func(*Tx) error { return nil }),
		"Peek":   s.Peek(func(*Tx) error { return nil }),
		"Update": s.Update(t.Context(), func(tx *Tx) error { return tx.PutAttachment(claimed(3)) }),
	} {
		if err == nil || errors.Is(err, ErrCorrupt) {
			t.Errorf("%s goes on without the commit: %v", what, err)
		}
	}
	if size, err := sizeOf(s.f); err != nil || size >= mapped {
		t.Errorf("the file has grown to %d bytes, %v", size, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, path, Options{Redo: true})
	if got := read(t, s).Attachments; len(got) != 2 {
		t.Errorf("opened again it has %v", got)
	}
}

// TestRedoWithoutRoom opens a store where no log can be made: it works all the same.
func TestRedoWithoutRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	if err := os.Mkdir(RedoPath(path), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := Open(path, Options{})
	if !errors.Is(err, ErrCorrupt) {
		t.Fatalf("a directory in place of the log: %v", err)
	}
	if err := os.Remove(RedoPath(path)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/full", RedoPath(path)); err != nil {
		t.Fatal(err)
	}
	s := reopen(t, path, Options{Redo: true})
	if s.Unlogged() == nil {
		t.Error("nobody says that there is no log")
	}
	update(t, s, func(tx *Tx) error { return tx.PutAttachment(claimed(1)) })
}

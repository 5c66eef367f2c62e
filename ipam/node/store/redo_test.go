package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
)

// TestRedoManyLeaves makes batches of which each change lies on a page of its own, until
// the file has no room for one: then it grows, and nothing that was answered is lost.
func TestRedoManyLeaves(t *testing.T) {
	const n, batch = 8000, 120
	s, err := Open(filepath.Join(t.TempDir(), "store.db"), Options{Redo: true}) // Check would miss the uses' records
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < n; at += 500 {
		update(t, s, func(tx *Tx) error {
			for i := at; i < at+500; i++ {
				a := claimed(i)
				a.Use = fmt.Sprintf("u.%d", i*7919%n)
				if err := tx.PutAttachment(a); err != nil {
					return err
				}
			}
			return nil
		})
	}
	ids := rand.New(rand.NewPCG(1, 2)).Perm(n)
	for len(ids) > 2*batch {
		now := ids[:batch]
		ids = ids[batch:]
		update(t, s, func(tx *Tx) error {
			for _, id := range now {
				if err := tx.DeleteAttachment(claimed(id).Key); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if got := read(t, s).Attachments; len(got) != len(ids) || s.redo == nil {
		t.Errorf("%d attachments are left; want %d", len(got), len(ids))
	}
	if err := errors.Join(sound(s), s.Close()); err != nil {
		t.Error(err)
	}
}

// TestRedoAside opens a store whose log is not its own, older, cut off, or damaged.
func TestRedoAside(t *testing.T) {
	s := newStore(t, Options{Redo: true})
	put := func(n int) {
		update(t, s, func(tx *Tx) error { return tx.PutAttachment(claimed(n)) })
		taken(t, s)
	}
	put(1)
	put(2)
	other := newStore(t, Options{Redo: true})
	c := &powerCut{t: t, s: s, rng: rand.New(rand.NewPCG(1, 1))}
	atTwo, logAtTwo := load(t, s.Path()), load(t, RedoPath(s.Path()))
	put(3)
	put(4)
	file, log := load(t, s.Path()), load(t, RedoPath(s.Path()))
	records := 0
	for at := redoPage; at < len(log) && log[at+3] != 0; at += redoPage {
		records++
	}
	if records != 4 {
		t.Fatalf("the log has %d records", records)
	}
	flipped := func(log []byte, at int) []byte {
		log = slices.Clone(log)
		log[at] ^= 4
		return log
	}
	s.redo.end = redoSize
	put(5) // a new base
	put(6)
	rebased := load(t, RedoPath(s.Path()))
	atSix := load(t, s.Path())
	tornFile := slices.Clone(file)
	copy(tornFile[:2*redoPage], make([]byte, 2*redoPage)) // of which only the log knows the meta pages
	tests := []struct {
		name      string
		file, log []byte
		want      int // attachments
		fails     error
	}{
		{"no damage", file, log, 4, nil},
		{"torn", tornFile, log, 4, nil},
		{"no log", file, nil, 4, nil},
		{"another store's log", file, load(t, RedoPath(other.Path())), 4, nil},
		{"a log that was put back to an earlier state", file, logAtTwo, 4, nil},
		{"a log that was put back behind a base", atSix, log, 6, nil},
		{"a file that was put back: the log has the rest", atTwo, log, 4, nil},
		{"a file that was put back behind the base", atTwo, rebased, 0, ErrOlder},
		{"the head damaged", file, flipped(log, 30), 0, ErrCorrupt},
		{"the head of a later version", file, flipped(log, 12), 0, ErrNewerSchema},
		{"the head damaged, and torn", tornFile, flipped(log, 30), 0, ErrCorrupt},
		{"a record damaged", file, flipped(log, 3*redoPage+40), 4, nil},
		{"a record damaged, and the file put back", atTwo, flipped(log, 3*redoPage+40), 0, ErrCorrupt},
		{"a record damaged, and torn", tornFile, flipped(log, 3*redoPage+40), 0, ErrCorrupt},
		{"cut off", file, log[:redoPage+100], 4, nil},
		{"empty", file, []byte{}, 4, nil},
		{"short", file, log[:20], 0, ErrCorrupt},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c.t = t
			got, err := c.open(test.file, test.log, Options{Redo: true})
			if !errors.Is(err, test.fails) {
				t.Fatalf("Open = %v; want %v", err, test.fails)
			}
			if err != nil {
				return
			}
			defer got.Close() // checked
			if n := len(read(t, got).Attachments); n != test.want || got.Check() != nil {
				t.Errorf("it has %d attachments; want %d; check: %v", n, test.want, got.Check())
			}
		})
	}
}

// TestRedoReadOnly opens a store to be read: what a power cut left is not mended then,
// and not passed off as whole.
func TestRedoReadOnly(t *testing.T) {
	s := newStore(t, Options{Redo: true})
	before := load(t, s.Path())
	update(t, s, func(tx *Tx) error { return tx.PutAttachment(claimed(1)) })
	taken(t, s)
	c := &powerCut{t: t, s: s}
	log := load(t, RedoPath(s.Path()))
	if _, err := c.open(before, log, Options{ReadOnly: true}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("a store that is behind its log opens to be read: %v", err)
	}
	got, err := c.open(load(t, s.Path()), log, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Close(); err != nil {
		t.Error(err)
	}
}

// TestRedoClosed closes a store: its file is all there is.
func TestRedoClosed(t *testing.T) {
	s := newStore(t, Options{Redo: true})
	update(t, s, func(tx *Tx) error { return tx.PutAttachment(claimed(1)) })
	if h, ok, err := readHistory(s.Path()); err != nil || !ok || len(h.commits) != 1 {
		t.Fatalf("the log says %+v, %v", h, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if h, ok, err := readHistory(s.Path()); err != nil || ok {
		t.Errorf("after Close the log says %+v, %v", h, err)
	}
}

// TestRedoLarge grows the file beyond what bbolt has mapped: to map it anew bbolt waits
// for all readers, and the log's must not be among them.
func TestRedoLarge(t *testing.T) {
	s := newStore(t, Options{Redo: true})
	update(t, s, func(tx *Tx) error { return tx.PutAttachment(claimed(1)) })
	if err := s.grow(mapped); err != nil { // nothing is under way
		t.Fatal(err)
	}
	update(t, s, func(tx *Tx) error { return tx.PutAttachment(claimed(2)) })
	if s.redo != nil {
		t.Error("the log is still there")
	}
	if h, ok, err := readHistory(s.Path()); err != nil || ok {
		t.Errorf("the log says %+v, %v", h, err)
	}
}

// FuzzRedo reads logs of any content, and changes of any content.
func FuzzRedo(f *testing.F) {
	put := &bucket{top: 2}
	table := &bucket{top: len(topBuckets) - 1, pool: "net"}
	f.Add(appendChange(nil, changePut, put, []byte("key"), []byte("value")))
	f.Add(appendChange(appendChange(nil, changeCreate, table, nil, nil), changePut, table, []byte("k"), []byte("v")))
	f.Add(appendChange(nil, changeDrop, table, nil, nil))
	f.Add(appendChange(nil, changeDelete, put, []byte("key"), nil))
	f.Add([]byte{9, 200, 0, 0})
	path := filepath.Join(f.TempDir(), "store.db")
	s, err := Open(path, Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = s.Close() })
	f.Fuzz(func(t *testing.T, changes []byte) {
		if _, _, ok, _ := parseBase(changes); ok {
			t.Log("a base")
		}
		if _, size, ok := parseCommit(changes, 0); ok && size < recordHead {
			t.Errorf("a record of %d bytes", size)
		}
		bt, err := s.db.Begin(true)
		if err != nil {
			t.Fatal(err)
		}
		defer bt.Rollback() //nolint:errcheck // nothing of it stays
		for rest := changes; len(rest) > 0; {
			next, err := redoChange(bt, rest)
			if err != nil {
				break
			}
			if len(next) >= len(rest) {
				t.Fatal("a change of no length")
			}
			rest = next
		}
	})
}

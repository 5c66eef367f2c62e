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

// taken waits until bbolt has what was answered.
func taken(t *testing.T, s *Store) {
	t.Helper()
	view(t, s, func(*Tx) error { return nil })
}

// powerCut is a machine that may lose its power: what was written to the store's file since
// it was last synced, page by page, and the log as it was before and after a commit.
type powerCut struct {
	t        *testing.T
	s        *Store
	rng      *rand.Rand
	versions [][][]byte // of each page, those that the disk may have
	whole    []byte     // the file, as it was last written
	log      []byte
	before   []byte // the log, before the commit under way
}

// watch notes what the last commit wrote. Where the log begins anew, the file was synced.
func (c *powerCut) watch() {
	c.t.Helper()
	taken(c.t, c.s)
	now, log := load(c.t, c.s.Path()), load(c.t, RedoPath(c.s.Path()))
	switch {
	case c.log != nil && bytes.Equal(c.log[:redoPage], log[:redoPage]):
	case c.log == nil || c.s.redo.empty():
		c.versions = nil // synced with this commit
	default:
		c.versions = nil // synced before this commit
		c.add(c.whole)
	}
	c.add(now)
	c.before, c.whole, c.log = c.log, now, log
}

func (c *powerCut) add(file []byte) {
	for i := 0; i*redoPage < len(file); i++ {
		page := file[i*redoPage : (i+1)*redoPage]
		if i == len(c.versions) {
			c.versions = append(c.versions, nil)
		}
		if v := c.versions[i]; len(v) == 0 || !bytes.Equal(v[len(v)-1], page) {
			c.versions[i] = append(v, slices.Clone(page))
		}
	}
}

// file returns one of the files that the disk may have.
func (c *powerCut) file() []byte {
	var file []byte
	lateness := c.rng.IntN(4)
	for _, v := range c.versions {
		i := c.rng.IntN(len(v))
		switch {
		case lateness == 0 && c.rng.IntN(8) != 0: // the disk was quick
			i = len(v) - 1
		case lateness == 1 && c.rng.IntN(8) != 0: // it had hardly begun
			i = 0
		}
		file = append(file, v[i]...)
	}
	return file
}

// torn returns one of the logs that the disk may have while the last commit is under way:
// sectors come in any order.
func (c *powerCut) torn() []byte {
	log := slices.Clone(c.log)
	for at := 0; at < len(log); at += 512 {
		if c.rng.IntN(3) == 0 {
			copy(log[at:at+512], c.before[at:])
		}
	}
	return log
}

// open opens a store of a file and a log.
func (c *powerCut) open(file, log []byte, o Options) (*Store, error) {
	path := filepath.Join(c.t.TempDir(), "store.db")
	if err := errors.Join(os.WriteFile(path, file, 0o600), os.WriteFile(RedoPath(path), log, 0o600)); err != nil {
		c.t.Fatal(err)
	}
	return Open(path, o)
}

// same reports whether a store says what one of the models does.
func (c *powerCut) same(s *Store, models ...model) bool {
	got := read(c.t, s)
	return slices.ContainsFunc(models, func(m model) bool {
		want := m.contents
		want.Identity.Store = s.ID()
		return diff(want, got) == ""
	})
}

// check opens what a power cut leaves, and finds one of the models.
func (c *powerCut) check(what string, file, log []byte, models ...model) {
	c.t.Helper()
	if len(load(c.t, c.s.Path())) != len(file) {
		c.t.Fatalf("%s: the file has %d bytes", what, len(file))
	}
	s, err := c.open(file, log, Options{Redo: true})
	if err != nil {
		c.t.Fatalf("%s: %v", what, err)
	}
	if err := errors.Join(sound(s), s.Unlogged()); err != nil || !c.same(s, models...) {
		c.t.Fatalf("%s: after the power cut the store is %+v; check: %v", what, read(c.t, s), err)
	}
	// Another cut, of the opening, before the log begins anew.
	opened := load(c.t, s.Path())
	again := slices.Clone(file)
	for at := 0; at < len(file); at += redoPage {
		if c.rng.IntN(2) == 0 {
			copy(again[at:at+redoPage], opened[at:])
		}
	}
	if err := s.Close(); err != nil {
		c.t.Fatalf("%s: %v", what, err)
	}
	if s, err = c.open(again, log, Options{}); err != nil {
		c.t.Fatalf("%s, and again: %v", what, err)
	}
	defer s.Close() // checked below
	if err := sound(s); err != nil || !c.same(s, models...) {
		c.t.Fatalf("%s, and again: the store is %+v; check: %v", what, read(c.t, s), err)
	}
}

// sound reads the store's file: what a model says is not always what Check accepts.
func sound(s *Store) error {
	_, err := scan(s.f)
	return err
}

// TestPowerCut makes random changes, and has the power fail after and during them: of all
// that was written to the file since it was synced, the disk may have any page of any
// time. What was answered is there.
func TestPowerCut(t *testing.T) {
	seeds := uint64(5)
	if testing.Short() {
		seeds = 3
	}
	bases := 0
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 1))
		s, err := Open(filepath.Join(t.TempDir(), "store.db"), Options{Redo: true})
		if err != nil {
			t.Fatal(err)
		}
		c := &powerCut{t: t, s: s, rng: rng}
		c.watch()
		m := newModel()
		for call := range 80 {
			what := fmt.Sprintf("seed %d call %d", seed, call)
			next, fails := m.clone(), rng.IntN(6) == 0
			err := s.Update(t.Context(), func(tx *Tx) error {
				for range 1 + rng.IntN(8) {
					if err := next.step(rng, tx); err != nil {
						return err
					}
				}
				if fails {
					return os.ErrInvalid
				}
				return nil
			})
			if fails != (err != nil) {
				t.Fatalf("%s: %v", what, err)
			}
			earlier := m
			if !fails {
				m = next
			}
			if rng.IntN(40) == 0 { // as if the log were full
				s.redo.end = redoSize
			}
			head := slices.Clone(c.log[:redoPage])
			c.watch()
			if !bytes.Equal(head, c.log[:redoPage]) {
				bases++
			}
			if rng.IntN(3) == 0 {
				c.check(what, c.file(), c.log, m)
			}
			if rng.IntN(3) == 0 && bytes.Equal(c.before[:redoPage], c.log[:redoPage]) {
				c.check(what+", under way", c.file(), c.torn(), earlier, m)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if bases < 5 {
		t.Errorf("the log began anew %d times: the test proves little", bases)
	}
}

// TestRedoFull fills the log, with changes of all sizes, and some that it has no room for.
func TestRedoFull(t *testing.T) {
	s := newStore(t, Options{Redo: true})
	c := &powerCut{t: t, s: s, rng: rand.New(rand.NewPCG(7, 7))}
	c.watch()
	m := newModel()
	begun := 0
	for call := range 160 {
		size := []int{10, 3000, 20_000, redoSize / 16}[call%4]
		if call == 101 {
			size = redoSize
		}
		a := claimed(call % 7)
		a.Netns = string(bytes.Repeat([]byte{'n'}, size))
		update(t, s, func(tx *Tx) error { return tx.PutAttachment(a) })
		m.counter++
		a.Generation = m.counter
		m.Attachments[a.Key.String()] = a
		head := c.log[:redoPage]
		c.watch()
		if !bytes.Equal(head, c.log[:redoPage]) {
			begun++
		}
		if call%50 == 49 || call == 101 || call == 102 {
			c.check(fmt.Sprint("call ", call), c.file(), c.log, m)
		}
	}
	if begun < 4 {
		t.Errorf("the log began anew %d times", begun)
	}
}

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

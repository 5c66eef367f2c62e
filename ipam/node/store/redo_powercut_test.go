package store

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
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

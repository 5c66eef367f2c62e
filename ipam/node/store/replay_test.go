package store

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// redoFixture returns what the version before this one wrote: a store's file when its redo log
// began, the file after 44 commits more, and the log of these.
func redoFixture(t testing.TB) (base, end, log []byte) {
	t.Helper()
	for name, dst := range map[string]*[]byte{"base.db": &base, "end.db": &end, "end.redo": &log} {
		r, err := gzip.NewReader(bytes.NewReader(load(t, filepath.Join("testdata", "redo", name+".gz"))))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		*dst = append(b, make([]byte, 2<<20-len(b))...)
	}
	return base, end, log
}

// openRedo opens a store that has a file and a redo log.
func openRedo(t *testing.T, file, log []byte, o Options) (*Store, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store.db")
	if err := errors.Join(os.WriteFile(path, file, 0o600), os.WriteFile(RedoPath(path), log, 0o600)); err != nil {
		t.Fatal(err)
	}
	s, err := Open(path, o)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = s.Close() }) // only read
	if _, err := os.Stat(RedoPath(path)); !o.ReadOnly && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the log is still there: %v", err)
	}
	return s, nil
}

// TestReplay opens what a power cut has left of a store with a redo log: any mix of the pages that
// were written since the log began. All that was answered is there.
func TestReplay(t *testing.T) {
	base, end, log := redoFixture(t)
	s, err := openRedo(t, end, nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := read(t, s)
	if len(want.Attachments) != 43 || len(want.Rights) != 2 || want.Tables["vlan-prod"] == nil {
		t.Fatalf("the store has %+v", want)
	}
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		file := slices.Clone(base)
		for at := 0; at < len(file); at += redoPage {
			if uint64(rng.IntN(39)) < seed { // none of the first, all of the last
				copy(file[at:at+redoPage], end[at:])
			}
		}
		s, err := openRedo(t, file, log, Options{})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if d := diff(want, read(t, s)); d != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, d)
		}
		if err := s.Check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		put(t, s, 200)
	}
}

func put(t *testing.T, s *Store, n int) {
	t.Helper()
	update(t, s, func(tx *Tx) error { return tx.PutAttachment(claimed(n)) })
}

// TestReplayAside opens a store whose redo log is not its own, older, cut off, or damaged.
func TestReplayAside(t *testing.T) {
	base, end, log := redoFixture(t)
	other, _ := image(t, 12)
	torn := slices.Clone(end)
	clear(torn[:2*redoPage]) // only the log knows the meta pages
	flipped := func(at int) []byte {
		log := slices.Clone(log)
		log[at] ^= 4
		return log
	}
	s, err := openRedo(t, end, nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, 200)
	later := load(t, s.Path())
	for _, test := range []struct {
		name      string
		file, log []byte
		want      int // attachments
		fails     error
	}{
		{"torn", torn, log, 43, nil},
		{"no log", end, nil, 43, nil},
		{"a closed log", end, make([]byte, len(log)), 43, nil},
		{"another store's log", other, log, 12, nil},
		{"a file that has gone on", later, log, 44, nil},
		{"a file of another store, torn", append(make([]byte, 2*redoPage), other[2*redoPage:]...), log, 0, ErrOlder},
		{"the head damaged", end, flipped(30), 0, ErrCorrupt},
		{"a record damaged", end, flipped(3*redoPage + 40), 43, nil},
		{"a record damaged, and the file behind", base, flipped(3*redoPage + 40), 0, ErrCorrupt},
		{"a record damaged, and torn", torn, flipped(3*redoPage + 40), 0, ErrCorrupt},
		{"the end cut off", base, cutAt(log, 42*redoPage), 40, nil},
		{"short", end, log[:20], 0, ErrCorrupt},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := openRedo(t, test.file, test.log, Options{})
			if !errors.Is(err, test.fails) {
				t.Fatalf("Open = %v; want %v", err, test.fails)
			}
			if err != nil {
				return
			}
			if n := len(read(t, s).Attachments); n != test.want || s.Check() != nil {
				t.Errorf("it has %d attachments; want %d; check: %v", n, test.want, s.Check())
			}
		})
	}
}

// cutAt returns log without what comes at an offset or later.
func cutAt(log []byte, at int) []byte {
	log = slices.Clone(log)
	clear(log[at:])
	return log
}

// TestReplayReadOnly opens a store to be read: what a power cut left is not mended then, and not
// passed off as whole.
func TestReplayReadOnly(t *testing.T) {
	base, end, log := redoFixture(t)
	if _, err := openRedo(t, base, log, Options{ReadOnly: true}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("a store that is behind its log opens to be read: %v", err)
	}
	if _, err := openRedo(t, end, log, Options{ReadOnly: true}); err != nil {
		t.Error(err)
	}
}

// TestReplayAgain: a crash while a log is replayed, or before it is removed, loses nothing.
func TestReplayAgain(t *testing.T) {
	base, _, log := redoFixture(t)
	path := filepath.Join(t.TempDir(), "store.db")
	for name, b := range map[string][]byte{path: base, RedoPath(path): log, path + ".replayed": base[:9999]} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := reopen(t, path, Options{})
	put(t, s, 200)
	if err := errors.Join(s.Close(), os.WriteFile(RedoPath(path), log, 0o600)); err != nil {
		t.Fatal(err)
	}
	if n := len(read(t, reopen(t, path, Options{})).Attachments); n != 44 {
		t.Errorf("it has %d attachments; want 44", n)
	}
	if left, err := filepath.Glob(path + ".*"); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// FuzzReplay reads logs of any content, and changes of any content.
func FuzzReplay(f *testing.F) {
	_, _, log := redoFixture(f)
	l, err := parseRedo(log)
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range l.commits[:3] {
		f.Add(c.changes)
	}
	f.Add(log[:redoPage])
	f.Add([]byte{9, 200, 0, 0})
	s, err := Open(filepath.Join(f.TempDir(), "store.db"), Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = s.Close() })
	f.Fuzz(func(t *testing.T, changes []byte) {
		_, _ = parseRedo(changes)
		_, _ = parseRedo(append(slices.Clone(log[:redoPage]), changes...))
		if _, size, ok := parseRedoCommit(changes, 0); ok && size < redoRecord {
			t.Errorf("a record of %d bytes", size)
		}
		bt, err := s.disk.(*boltFile).db.Begin(true)
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

package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOlder opens files that are whole, and not the latest.
func TestOlder(t *testing.T) {
	dir := t.TempDir()
	path, o := filepath.Join(dir, "store.db"), Options{Witness: WitnessFile(filepath.Join(dir, "run", "witness"))}
	if err := os.Mkdir(filepath.Dir(o.Witness.String()), 0o700); err != nil {
		t.Fatal(err)
	}
	add := func(n int) {
		t.Helper()
		s, err := Open(path, o)
		if err != nil {
			t.Fatal(err)
		}
		update(t, s, func(tx *Tx) error { return tx.PutAttachment(claimed(n)) })
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	put := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(why string) {
		t.Helper()
		_, err := Open(path, o)
		if !errors.Is(err, ErrOlder) {
			t.Fatalf("%s: Open = %v; want ErrOlder", why, err)
		}
		for _, want := range []string{path, o.Witness.String(), "move the file away"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error %q does not say %q", why, err, want)
			}
		}
	}
	witnessed := func(want bool) {
		t.Helper()
		s := reopen(t, path, o)
		if s.Witnessed() != want {
			t.Errorf("Witnessed = %v; want %v", s.Witnessed(), want)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}

	witnessed(true) // new
	unused := load(t, path)
	add(1)
	witnessed(true)
	earlier := load(t, path)
	add(2)
	latest := load(t, path)
	put(earlier)
	refused("put back")
	put(latest)
	witnessed(true)

	other, _ := image(t, 1)
	put(other)
	refused("exchanged")

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	witnessed(true) // a new store in its place
	for _, b := range [][]byte{unused, earlier, latest} {
		put(b)
		refused("put back before the new one was used")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	add(1)
	witnessed(true)

	if err := os.Remove(o.Witness.String()); err != nil { // a reboot
		t.Fatal(err)
	}
	witnessed(false)

	if err := os.WriteFile(o.Witness.String(), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("a witness that cannot be read")
}

// TestWitnessFails loses the witness's file system: what cannot be witnessed is
// not answered, by an Update or by a View, until it can be.
func TestWitnessFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	o := Options{Witness: WitnessFile(filepath.Join(dir, "witness"))}
	if _, err := Open(filepath.Join(t.TempDir(), "store.db"), o); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("Open of a new store = %v; want an error with the witness's path", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, o)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	put := func(n int) error {
		return s.Update(t.Context(), func(tx *Tx) error { return tx.PutAttachment(claimed(n)) })
	}
	if err := put(1); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("Update = %v; want an error with the witness's path", err)
	}
	reads := func() error { _, err := tryRead(s); return err }
	if err := reads(); err == nil {
		t.Error("a View answers what was not witnessed")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Update(t.Context(), func(tx *Tx) error { return nil }); err != nil {
		t.Errorf("Update that settles = %v", err)
	}
	if err := reads(); err != nil {
		t.Errorf("View after an Update that settles = %v", err)
	}
}

package store

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestRedoGivenUp: why a redo log is given up while the store is open can be heard of at
// once, and is not only the error of the call that met it.
func TestRedoGivenUp(t *testing.T) {
	put := func(s *Store, n int) error {
		return s.Update(t.Context(), func(tx *Tx) error { return tx.PutAttachment(claimed(n)) })
	}
	for _, tt := range []struct {
		name   string
		spoil  func(*testing.T, *Store) // while nothing is under way
		fails  bool                     // the next call
		saying string
	}{
		{"a record that cannot be written", func(t *testing.T, s *Store) {
			only, err := os.Open(RedoPath(s.Path()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = only.Close() }) // only read
			s.redo.f = only
		}, true, RedoPath("")},
		{"a record that cannot be synced", func(_ *testing.T, s *Store) { s.redo.sync = refuse }, true, syscall.EIO.Error()},
		{"a witness that cannot be written", func(t *testing.T, s *Store) {
			if err := s.witness.f.Close(); err != nil {
				t.Fatal(err)
			}
		}, true, "witness"},
		{"a head that cannot be synced", func(_ *testing.T, s *Store) { s.redo.end, s.redo.sync = redoSize, refuse }, false, syscall.EIO.Error()},
		{"a log that was removed", func(t *testing.T, s *Store) {
			if err := os.Remove(RedoPath(s.Path())); err != nil {
				t.Fatal(err)
			}
		}, false, "removed"},
		{"a file that has become too large", func(t *testing.T, s *Store) {
			if err := s.grow(mapped); err != nil {
				t.Fatal(err)
			}
		}, false, "64 MiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := Open(filepath.Join(dir, "store.db"), Options{Redo: true, Witness: filepath.Join(dir, "witness")})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() }) // what was spoilt may not close well
			if err := put(s, 1); err != nil {
				t.Fatal(err)
			}
			taken(t, s)
			if s.Unlogged() != nil {
				t.Fatalf("it has no log from the start: %v", s.Unlogged())
			}
			tt.spoil(t, s)
			if err := put(s, 2); (err != nil) != tt.fails {
				t.Fatalf("Update = %v; want an error: %v", err, tt.fails)
			}
			if why := s.Unlogged(); why == nil || !strings.Contains(why.Error(), tt.saying) {
				t.Errorf("it says %v; want what tells of %q", why, tt.saying)
			}
		})
	}
}

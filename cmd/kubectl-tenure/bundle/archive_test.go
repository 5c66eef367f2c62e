package bundle

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestFileIsWholeOrNotThere: until a bundle is finished nothing has its name, and what has it
// already is left alone.
func TestFileIsWholeOrNotThere(t *testing.T) {
	dir := t.TempDir()
	final := filepath.Join(dir, "b.tar.gz")
	there := func() (names string) {
		all, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			names += e.Name() + " "
		}
		return names
	}
	begin := func() *file {
		f, err := createFile(final)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("mine"); err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := begin()
	if got := there(); strings.Contains(got, "b.tar.gz") {
		t.Errorf("before the end there is %s", got)
	}
	f.discard()
	if got := there(); got != "" {
		t.Errorf("of one that was given up there is %s", got)
	}
	f = begin()
	if err := os.WriteFile(final, []byte("another's"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.finish(); !errors.Is(err, os.ErrExist) {
		t.Errorf("one that came meanwhile: %v", err)
	}
	if text, err := os.ReadFile(final); string(text) != "another's" || there() != "b.tar.gz " {
		t.Errorf("it is %q (%v), there is %s", text, err, there())
	}
	if _, err := createFile(final); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("one that was there: %v", err)
	}
	if _, err := createFile(dir); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("a directory: %v", err)
	}
	if err := os.Remove(final); err != nil {
		t.Fatal(err)
	}
	f = begin()
	f.final = filepath.Join(dir, "gone", "b.tar.gz")
	if err := f.finish(); err == nil || there() != "" {
		t.Errorf("one that cannot have its name: %v, there is %s", err, there())
	}
	f = begin()
	if err := f.finish(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(final)
	if err != nil || info.Mode().Perm() != 0o600 || there() != "b.tar.gz " {
		t.Errorf("%v (%v), there is %s", info.Mode(), err, there())
	}
}

// TestNames: whatever objects are called, files lie in the bundle's own directory.
func TestNames(t *testing.T) {
	var packed bytes.Buffer
	a := newArchive(&packed, "tenure-bundle-x", time.Now())
	for name, good := range map[string]bool{"README": true, "logs/tenured-x.tenured.log": true, "../x": false, "/etc/x": false, "logs/../../x": false, "": false} {
		if err := a.add(name, []byte("x")); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(unpack(t, &packed)) {
		if line != "x" && !strings.HasPrefix(strings.TrimPrefix(line, "x"), "tenure-bundle-x/") {
			t.Errorf("there is %q", line)
		}
	}
}

package atomicfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestSealOpen(t *testing.T) {
	for _, body := range []string{"", "x", `{"a":"b c"}`} {
		line := Seal([]byte(body))
		if got, err := Open(line); err != nil || string(got) != body {
			t.Errorf("Open(Seal(%q)): %q, %v", body, got, err)
		}
		for i := range line {
			bad := bytes.Clone(line)
			bad[i] ^= 1
			if got, err := Open(bad); err == nil {
				t.Errorf("a bit of byte %d of %q is flipped: got %q; want an error", i, line, got)
			}
			if got, err := Open(line[:i]); err == nil {
				t.Errorf("%q: got %q; want an error", line[:i], got)
			}
		}
	}
}

// TestSealStays: a version of Tenure reads the lines of the one before.
func TestSealStays(t *testing.T) {
	if got := string(Seal([]byte("123456789"))); got != "cbf43926 123456789\n" {
		t.Errorf("got %q; want CRC-32's check value", got)
	}
}

// TestMakeDirSyncsAllThatItMakes: a directory whose own name is lost in a crash takes with
// it what lies in it.
func TestMakeDirSyncsAllThatItMakes(t *testing.T) {
	top := t.TempDir()
	var synced []string
	note := func(dir string) error {
		synced = append(synced, strings.TrimPrefix(dir, top))
		return nil
	}
	for range 2 {
		if err := makeDir(filepath.Join(top, "a", "b", "c"), note); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(synced, " "); got != " /a /a/b" {
		t.Errorf("synced %q; want the directory of each that was made, once", got)
	}
	if info, err := os.Stat(filepath.Join(top, "a", "b", "c")); err != nil || info.Mode() != os.ModeDir|0o700 {
		t.Errorf("it is %v, %v; want a directory for root alone", info, err)
	}
	link := filepath.Join(top, "link")
	if err := os.Symlink("nothing", link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{link, filepath.Join(link, "a")} {
		if err := MakeDir(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("MakeDir of %s: %v; want ErrNotExist", dir, err)
		}
	}
}

// TestCreate replaces a file in one step, and leaves the old one where it fails.
func TestCreate(t *testing.T) {
	dir := t.TempDir()
	final, temp := filepath.Join(dir, "f"), filepath.Join(dir, "f.tmp")
	for _, text := range []string{"one", "two"} {
		var steps []string
		err := Create(final, temp, []byte(text), func(s string) { steps = append(steps, s) })
		if got, rerr := os.ReadFile(final); err != nil || rerr != nil || string(got) != text {
			t.Errorf("Create: %v; got %q, %v; want %q", err, got, rerr, text)
		}
		if got := strings.Join(steps, " "); got != "created written renamed synced" {
			t.Errorf("steps: %s", got)
		}
	}
	if err := Create(filepath.Join(dir, "none", "f"), temp, []byte("three"), func(string) {}); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("no such directory: %v; want ENOENT", err)
	}
	if names, err := Names(dir); err != nil || len(names) != 1 {
		t.Errorf("directory has %q, %v; want the file alone", names, err)
	}
}

// TestCreateNew makes a file that was not there, in the steps of Create, takes more text
// before the syncs, and leaves nothing where it fails.
func TestCreateNew(t *testing.T) {
	dir := t.TempDir()
	final, temp := filepath.Join(dir, "f"), filepath.Join(dir, "f.tmp")
	var steps []string
	note := func(s string) {
		if _, err := os.Stat(final); err == nil != (s == "renamed" || s == "synced") {
			t.Errorf("%s: the file: %v; want it there when it is renamed", s, err)
		}
		steps = append(steps, s)
	}
	f, err := CreateNew(final, temp, []byte("one"), note)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(", two"); err != nil {
		t.Error(err)
	}
	if err := errors.Join(SyncNew(f, final, note), f.Close()); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(final); err != nil || string(got) != "one, two" {
		t.Errorf("it has %q, %v", got, err)
	}
	if got := strings.Join(steps, " "); got != "created written renamed synced" {
		t.Errorf("steps: %s", got)
	}
	if _, err := CreateNew(filepath.Join(dir, "none", "f"), temp, []byte("two"), func(string) {}); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("no such directory: %v; want ENOENT", err)
	}
	if names, err := Names(dir); err != nil || len(names) != 1 {
		t.Errorf("directory has %q, %v; want the first file", names, err)
	}
	gone := filepath.Join(dir, "gone")
	if err := os.Mkdir(gone, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err = CreateNew(filepath.Join(gone, "f"), filepath.Join(gone, "f.tmp"), []byte("three"), func(string) {})
	if err == nil {
		err = os.Rename(gone, gone+".away")
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := SyncNew(f, filepath.Join(gone, "f"), func(string) {}); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("the directory is not there to be synced: %v; want ENOENT", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func TestSweep(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	for name, age := range map[string]time.Duration{"old.tmp": 2 * time.Hour, "new.tmp": time.Minute, "old.del": 2 * time.Hour} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if err := Sweep(dir, ".tmp", now.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"old.tmp": false, "new.tmp": true, "old.del": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v; want it there: %v", name, err, want)
		}
	}
	if err := Sweep(filepath.Join(dir, "none"), ".tmp", now); err != nil {
		t.Errorf("no directory: %v", err)
	}
}

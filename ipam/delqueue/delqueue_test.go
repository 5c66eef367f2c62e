package delqueue

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenure-ipam/tenure/ipam/atomicfile"
)

var noID = cmpopts.IgnoreFields(Entry{}, "ID")

func entry(n int) Entry {
	return Entry{
		Network: "net", ContainerID: fmt.Sprintf("c%d", n), IfName: "eth0", Netns: "/run/netns/x",
		Time: time.Date(2026, 1, 2, 3, 4, n, 0, time.UTC),
	}
}

func write(t *testing.T, dir string, e Entry) string {
	t.Helper()
	id, err := Write(dir, e)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func list1(t *testing.T, dir string) []Entry {
	t.Helper()
	entries, damaged, err := List(dir)
	if err != nil || len(damaged) > 0 {
		t.Fatalf("List: damaged %q, %v; want neither", damaged, err)
	}
	return entries
}

func TestWriteListRemove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "journal")
	if got := list1(t, dir); got != nil {
		t.Errorf("no directory: got %v; want no entries", got)
	}
	for _, n := range []int{2, 0, 1, 1} { // a DEL may be repeated
		write(t, dir, entry(n))
	}
	got := list1(t, dir)
	if d := cmp.Diff([]Entry{entry(0), entry(1), entry(1), entry(2)}, got, noID); d != "" {
		t.Errorf("List (-want +got):\n%s", d)
	}
	if err := Remove(dir, got[0], got[3], got[3]); err != nil {
		t.Errorf("Remove, one of them twice: %v", err)
	}
	if d := cmp.Diff([]Entry{entry(1), entry(1)}, list1(t, dir), noID); d != "" {
		t.Errorf("after Remove (-want +got):\n%s", d)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory: got %v, %v; want mode 0700", info.Mode(), err)
	}
}

func TestOfKey(t *testing.T) {
	dir := t.TempDir()
	base := Entry{Network: "n", ContainerID: "ab", IfName: "c"}
	others := []Entry{
		{Network: "n", ContainerID: "a", IfName: "bc"},
		{Network: "na", ContainerID: "b", IfName: "c"},
		{Network: "n", ContainerID: "ab", IfName: "d"},
	}
	for _, e := range append([]Entry{base, base}, others...) {
		write(t, dir, e)
	}
	for _, tt := range []struct {
		key  Entry
		want int
	}{{base, 2}, {others[0], 1}, {others[1], 1}, {others[2], 1}, {Entry{Network: "x"}, 0}} {
		got, damaged, err := OfKey(dir, tt.key.Network, tt.key.ContainerID, tt.key.IfName)
		if err != nil || len(damaged) > 0 || len(got) != tt.want {
			t.Errorf("OfKey(%+v): %d entries, damaged %q, %v; want %d entries", tt.key, len(got), damaged, err, tt.want)
		}
		for _, e := range got {
			if d := cmp.Diff(tt.key, e, noID); d != "" {
				t.Errorf("OfKey (-want +got):\n%s", d)
			}
		}
	}
}

// TestDamagedEntryIsSetAside damages an entry in every way that a disk and an
// editor know: it is reported once by List, and never lost.
func TestDamagedEntryIsSetAside(t *testing.T) {
	good, err := entry(1).encode()
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 1
	for name, text := range map[string][]byte{
		"empty": {}, "cut": good[:len(good)-5], "no newline": good[:len(good)-1], "one bit": flipped,
		"zeros": make([]byte, len(good)), "no checksum": good[9:], "short checksum": append([]byte("1 "), good[9:]...),
		"not JSON":   atomicfile.Seal([]byte("what")),
		"wrong type": atomicfile.Seal([]byte(`{"time":1}`)),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, entry(0))
			bad := write(t, dir, entry(1))
			if err := os.WriteFile(filepath.Join(dir, bad), text, 0o600); err != nil {
				t.Fatal(err)
			}
			aside := filepath.Join(dir, bad) + ".damaged"

			entries, damaged, err := List(dir)
			if err != nil || len(entries) != 1 || len(damaged) != 1 || damaged[0] != aside {
				t.Errorf("first List: %d entries, damaged %q, %v; want the other entry and %s", len(entries), damaged, err, aside)
			}
			if kept, err := os.ReadFile(aside); err != nil || !bytes.Equal(kept, text) {
				t.Errorf("set aside: %q, %v; want the very bytes", kept, err)
			}
			if got := list1(t, dir); len(got) != 1 {
				t.Errorf("second List: %d entries; want the other one", len(got))
			}
			if got, err := Damaged(dir); err != nil || len(got) != 1 || got[0] != aside {
				t.Errorf("Damaged: %q, %v; want %s", got, err, aside)
			}
		})
	}
}

func TestConcurrentWritersAndReader(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	const writers, each = 8, 20
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if _, err := Write(dir, entry(w*each+i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	seen := map[string]bool{}
	drain := func() {
		for _, e := range list1(t, dir) {
			seen[e.ContainerID] = true
			if err := Remove(dir, e); err != nil {
				t.Error(err)
			}
		}
	}
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		drain()
	}
	if len(seen) != writers*each {
		t.Errorf("the reader saw %d entries; want %d", len(seen), writers*each)
	}
}

func TestSweep(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, entry(0))
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	for name, age := range map[string]time.Duration{"old.1.tmp": 2 * time.Hour, "new.1.tmp": time.Minute, "old.1.del.damaged": 2 * time.Hour} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if err := Sweep(dir, now.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"old.1.tmp": false, "new.1.tmp": true, "old.1.del.damaged": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v; want it there: %v", name, err, want)
		}
	}
	if got := list1(t, dir); len(got) != 1 {
		t.Errorf("%d entries after Sweep; want 1", len(got))
	}
}

func TestRemoveRefusesPaths(t *testing.T) {
	dir := t.TempDir()
	for _, id := range []string{"", "../x", "/etc/passwd", "a/b"} {
		if err := Remove(dir, Entry{ID: id}); err == nil || !strings.Contains(err.Error(), "not the ID") {
			t.Errorf("Remove of %q: %v; want it refused", id, err)
		}
	}
}

// TestUnwritable: where the journal cannot be written, Write says so and
// leaves nothing behind.
func TestUnwritable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(filepath.Join(file, "journal"), entry(0)); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("below a file: %v; want ENOTDIR", err)
	}
	if _, err := Write("/dev/full/journal", entry(0)); err == nil {
		t.Error("below a device: success; want an error")
	}
}

// dieAt names the environment variable by which a test tells a copy of itself
// at which step to die.
const dieAt = "JOURNAL_TEST_DIE_AT"

// TestHelperWriter is not a test: TestKilled runs it as the process to kill.
func TestHelperWriter(t *testing.T) {
	step, ok := os.LookupEnv(dieAt)
	if !ok {
		return
	}
	reached = func(s string) {
		if s == step {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	dir := os.Getenv("JOURNAL_TEST_DIR")
	if _, err := Write(dir, entry(7)); err != nil {
		t.Fatal(err)
	}
	if err := Remove(dir, list1(t, dir)...); err != nil {
		t.Fatal(err)
	}
}

// TestKilled kills a writer between any two steps: what is in the journal
// afterwards is whole or absent, never damaged, and other writers go on.
func TestKilled(t *testing.T) {
	for step, want := range map[string]int{"created": 0, "written": 0, "renamed": 1, "synced": 1, "removed": 0, "never": 0} {
		t.Run(step, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "journal")
			cmd := exec.Command(os.Args[0], "-test.run=^TestHelperWriter$")
			cmd.Env = append(os.Environ(), dieAt+"="+step, "JOURNAL_TEST_DIR="+dir)
			out, err := cmd.CombinedOutput()
			if killed := err != nil && err.Error() == "signal: killed"; killed != (step != "never") {
				t.Fatalf("writer: %v\n%s", err, out)
			}
			if got := list1(t, dir); len(got) != want {
				t.Errorf("%d entries; want %d", len(got), want)
			}
			if err := Sweep(dir, time.Now().Add(time.Hour)); err != nil {
				t.Error(err)
			}
			write(t, dir, entry(8))
			if got := list1(t, dir); len(got) != want+1 {
				t.Errorf("%d entries after another writer; want %d", len(got), want+1)
			}
			names, err := atomicfile.Names(dir)
			if err != nil || len(names) != want+1 {
				t.Errorf("directory has %q, %v; want nothing but entries", names, err)
			}
		})
	}
}

// FuzzDecode: whatever a file holds, decode neither panics nor takes damage for
// an entry: what it accepts has the checksum that its JSON has.
func FuzzDecode(f *testing.F) {
	good, err := entry(1).encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:20])
	f.Add([]byte("00000000 \n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := decode(text)
		if err != nil {
			return
		}
		again, err := e.encode()
		if err != nil {
			return // a time that JSON cannot say
		}
		back, err := decode(again)
		if err != nil {
			t.Fatalf("reading back %+v: %v", e, err)
		}
		if d := cmp.Diff(e, back); d != "" {
			t.Fatalf("round trip (-first +second):\n%s", d)
		}
	})
}

func BenchmarkOfKeyEmpty(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		if _, _, err := OfKey(dir, "net", "c1", "eth0"); err != nil {
			b.Fatal(err)
		}
	}
}

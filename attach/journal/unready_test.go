package journal

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestUnready: the reason survives a new process, and ends with the empty one. A file that is
// damaged is an error, which the next reason mends.
func TestUnready(t *testing.T) {
	dir := Dir{Path: filepath.Join(t.TempDir(), "state")}
	has := func(want string) {
		t.Helper()
		if got, err := dir.Unready(); err != nil || got != want {
			t.Errorf("Unready returns %q, %v; want %q", got, err, want)
		}
	}
	set := func(why string) {
		t.Helper()
		if err := dir.SetUnready(why); err != nil {
			t.Fatal(err)
		}
		has(why)
	}
	has("")
	set("")
	set("no default network")
	set("another reason")
	if err := os.WriteFile(dir.unreadyFile(), []byte("00000000 no\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Unready(); !isDamaged(err) {
		t.Errorf("Unready returns %v; want that the file is damaged", err)
	}
	set("")
	set("once more")
}

func isDamaged(err error) bool {
	_, ok := errors.AsType[*DamagedError](err)
	return ok
}

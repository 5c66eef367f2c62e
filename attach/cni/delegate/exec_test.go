package delegate

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tenure-ipam/tenure/attach/journal"
)

// TestChildrenOfAKilledPlugin (N75): a plugin that a signal ends has left what it started. That
// must not go on when the attachment is undone, or the lock given back.
func TestChildrenOfAKilledPlugin(t *testing.T) {
	for _, tt := range []struct {
		name, end string
		lives     bool
	}{
		{"killed", "kill -KILL $$", false},
		{"failed", "exit 1", true}, // of its own will: what goes on is its affair
	} {
		t.Run(tt.name, func(t *testing.T) {
			plugin := filepath.Join(t.TempDir(), "plugin")
			// The child tells when it runs, and holds the lock as its parent does.
			script := "#!/bin/sh\nmkfifo $0.began\n{ echo >$0.began; exec sleep 1000; } &\nread x <$0.began\necho $! >&2\n" + tt.end + "\n"
			check(t, os.WriteFile(plugin, []byte(script), 0o700)) //nolint:gosec // it is to be run
			state := journal.Dir{Path: t.TempDir()}
			lock, err := state.Lock(t.Context(), "c1")
			check(t, err)
			probe, err := os.Open(lock.File().Name())
			check(t, err)
			var said bytes.Buffer
			x := &executor{stderr: &said, inherit: []*os.File{lock.File()}}
			if _, err = x.exec(t.Context(), plugin, nil, os.Environ()); err == nil {
				t.Errorf("%v; want its failure", err)
			}
			check(t, lock.File().Close()) // which leaves the lock to whoever inherited it
			err = syscall.Flock(int(probe.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
			if lives := err == syscall.EWOULDBLOCK; lives != tt.lives {
				t.Errorf("the child lives: %v (%v); want %v", lives, err, tt.lives)
			}
			check(t, probe.Close())
			if tt.lives {
				kill(t, strings.TrimSpace(said.String()))
			}
		})
	}
}

func kill(t *testing.T, pid string) {
	t.Helper()
	process, err := strconv.Atoi(pid)
	check(t, err)
	check(t, syscall.Kill(process, syscall.SIGKILL))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

package plugin_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/delqueue"
)

// noAgent is a network whose agent is not there.
func noAgent(t *testing.T) (n *network, socket, journalDir string) {
	t.Helper()
	dir := t.TempDir()
	socket, journalDir = filepath.Join(dir, "agent.sock"), filepath.Join(dir, "state", "journal")
	return newNetwork(t, keys{"pool": "p", "socket": socket, "journalDir": journalDir}), socket, journalDir
}

// wantWarned checks for a success that tells the runtime's log something.
func (o outcome) wantWarned(t *testing.T, text string) {
	t.Helper()
	if o.exit != 0 || o.stdout != "" || !strings.Contains(o.stderr, text) {
		t.Errorf("exit %d, stdout %q, stderr %q; want success and a warning with %q", o.exit, o.stdout, o.stderr, text)
	}
}

// wantJournalled checks that the journal has one DEL, of the container.
func wantJournalled(t *testing.T, dir, container string) {
	t.Helper()
	entries, damaged, err := delqueue.List(dir)
	if err != nil || len(damaged) > 0 || len(entries) != 1 {
		t.Fatalf("journal: %v, damaged %q, %v; want one entry", entries, damaged, err)
	}
	if e := entries[0]; e.Network != "net" || e.ContainerID != container || e.IfName != "eth0" || e.Time.IsZero() {
		t.Errorf("entry %+v; want the DEL of %s", e, container)
	}
}

// TestNoAgent: every verb answers what its caller can act on, at once.
func TestNoAgent(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, socket string){
		"no socket": func(*testing.T, string) {},
		"socket of an agent that is gone": func(t *testing.T, socket string) {
			ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
			if err != nil {
				t.Fatal(err)
			}
			ln.SetUnlinkOnClose(false)
			if err := ln.Close(); err != nil {
				t.Fatal(err)
			}
		},
		"an agent that hangs up": func(t *testing.T, socket string) {
			ln, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { ln.Close() })
			go func() {
				for {
					c, err := ln.Accept()
					if err != nil {
						return
					}
					c.Close()
				}
			}()
		},
	} {
		t.Run(name, func(t *testing.T) {
			n, socket, dir := noAgent(t)
			prepare(t, socket)
			listed := n.with(keys{"cni.dev/valid-attachments": []any{}, "prevResult": keys{"ips": []any{}}})
			for verb, code := range map[string]int{"ADD": 11, "CHECK": 11, "STATUS": 50, "GC": 11} {
				listed.call(verb, "c1").run(t).wantError(t, code, socket)
			}
			n.call("DEL", "c1").run(t).wantWarned(t, "journalled in "+dir)
			wantJournalled(t, dir, "c1")
		})
	}
}

// TestJournalCannotBeWritten: a DEL succeeds all the same, since one that
// fails holds up the node; the agent's collection of garbage frees the addresses.
func TestJournalCannotBeWritten(t *testing.T) {
	t.Run("no directory", func(t *testing.T) {
		n, _, dir := noAgent(t)
		if err := os.WriteFile(filepath.Dir(dir), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		n.call("DEL", "c1").run(t).wantWarned(t, "DEL is lost")
	})
	t.Run("disk full", func(t *testing.T) {
		n, _, dir := noAgent(t)
		fillDisk(t, dir, "16k")
		n.call("DEL", "c1").run(t).wantWarned(t, "no space left on device")
		if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
			t.Errorf("the directory has %v, %v; want nothing of the DEL", names, err)
		}
	})
}

// fillDisk mounts a file system of that size at dir and fills it. It returns the
// file that takes up the room.
func fillDisk(t *testing.T, dir, size string) (ballast string) {
	t.Helper()
	mountDisk(t, dir, size)
	ballast = filepath.Join(dir, "ballast")
	fill(t, ballast)
	return ballast
}

func mountDisk(t *testing.T, dir, size string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
}

// fill writes to path until there is no room.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for page := make([]byte, 4096); err == nil; {
		_, err = f.Write(page)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// TestJournalledDEL: a DEL that finds no agent is applied when there is one
// again, and never to an attachment that was made after it.
func TestJournalledDEL(t *testing.T) {
	n := agentNetwork(t, "10.0.0.0/24")
	n.attach("c1", "c2")
	n.down()
	for _, c := range []string{"c1", "c2"} {
		n.call("DEL", c).run(t).wantWarned(t, "journalled")
	}
	n.up()
	n.add("c2") // hot-plugged again, perhaps before the agent has gone through its journal
	eventually(t, 20*time.Second, func() error {
		dir, ok := n.ipam["journalDir"].(string)
		entries, _, err := delqueue.List(dir)
		if !ok || err != nil || len(entries) > 0 {
			return errors.Join(errors.New("the journal is not empty"), err)
		}
		return nil
	})
	if got := n.has("c1", "c2"); got != "c2" {
		t.Errorf("%q has an address; want c2 alone", got)
	}
}

package attach_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestDetachedOnAFullDisk (D9): that nothing can be noted any more keeps no DEL from its
// end. A limit of the size of files stands for the disk.
func TestDetachedOnAFullDisk(t *testing.T) {
	n := newNode(t)
	const padding = 64 << 10
	n.define("ns", "a", n.recorder("net-a", map[string]any{"padding": strings.Repeat("x", padding)}))
	n.selects("p", "a,a,a,a")
	n.ok("ADD", pod("p"))
	n.records()
	del := n.command(t.Context(), "DEL", pod("p"))
	var stderr strings.Builder
	// In units of 512 or 1024 bytes: more than a network's configuration, less than the journal.
	del.Path, del.Args, del.Stderr = "/bin/sh", []string{"sh", "-c", "ulimit -f 200 && exec " + tenureAttach}, &stderr
	if out, err := del.Output(); err != nil {
		t.Fatalf("DEL: %v\n%s\n%s", err, out, stderr.String())
	}
	if !strings.Contains(stderr.String(), "could not be noted") {
		t.Errorf("stderr: %q; want what could not be noted", stderr.String())
	}
	n.called("DEL net-a net4", "DEL net-a net3", "DEL net-a net2", "DEL net-a net1", "DEL default eth0")
	n.clean()
}

// TestDetachedAgainWithoutInodes (D9): a DEL of what is detached needs no file for its lock.
func TestDetachedAgainWithoutInodes(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.path("state"), 0o700))
	must(t, syscall.Mount("tmpfs", n.path("state"), "tmpfs", 0, "nr_inodes=64"))
	t.Cleanup(func() { must(t, syscall.Unmount(n.path("state"), syscall.MNT_DETACH)) })
	n.ok("ADD", pod("p"))
	n.ok("ADD", pod("q"))
	n.ok("DEL", pod("p"))
	n.called("ADD default eth0", "ADD default eth0", "DEL default eth0")
	var err error
	for i := 0; err == nil; i++ {
		err = os.WriteFile(n.path("state", fmt.Sprintf("ballast%d", i)), nil, 0o600)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	n.ok("DEL", pod("p"))
	n.called()
	must(t, os.Remove(n.path("state", "locks", "c-q")))
	must(t, os.WriteFile(n.path("state", "ballast"), nil, 0o600))
	n.fails("DEL", pod("q"), "no space left") // it is not detached
	must(t, os.Remove(n.path("state", "ballast")))
	n.ok("DEL", pod("q"))
	n.called("DEL default eth0")
}

// TestDetachedOnAReadOnlyDisk: a DEL undoes what the journal says, though neither that nor
// the lock can be written. What it could not remove is undone again when the disk takes writes.
func TestDetachedOnAReadOnlyDisk(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.path("state"), 0o700))
	must(t, syscall.Mount("tmpfs", n.path("state"), "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, syscall.Unmount(n.path("state"), syscall.MNT_DETACH)) })
	n.define("ns", "a", n.recorder("net-a", nil))
	n.selects("p", "a")
	n.ok("ADD", pod("p"))
	n.ok("ADD", pod("q"))
	n.ok("DEL", pod("q"))
	n.records()
	must(t, syscall.Mount("", n.path("state"), "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	del := n.command(t.Context(), "DEL", pod("p"))
	var stderr strings.Builder
	del.Stderr = &stderr
	if out, err := del.Output(); err != nil {
		t.Errorf("DEL: %v\n%s\n%s", err, out, stderr.String())
	}
	if !strings.Contains(stderr.String(), "could not be noted") || !strings.Contains(stderr.String(), "read-only file system") {
		t.Errorf("stderr: %q; want what could not be noted, and why", stderr.String())
	}
	n.called("DEL net-a net1", "DEL default eth0")
	n.ok("DEL", pod("q")) // it is detached
	n.called()
	n.fails("ADD", pod("r"), "read-only file system")
	must(t, syscall.Mount("", n.path("state"), "", syscall.MS_REMOUNT, ""))
	n.ok("DEL", pod("p"))
	n.called("DEL net-a net1", "DEL default eth0")
	n.clean()
}

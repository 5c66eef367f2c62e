package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/test/process"
	"github.com/tenure-ipam/tenure/test/sandbox"
)

func TestMain(m *testing.M) {
	os.Exit(Main(m.Run))
}

// TestNodeIsItsOwn: what a node's programs see and set is the node's, and what is on
// its disk it has after the next boot too.
func TestNodeIsItsOwn(t *testing.T) {
	// What the machine has of CNI is none of the node's.
	if err := (mount{source: "opt", target: optDir, fstype: "tmpfs"}).do(); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"/opt/cni/bin/machines", "/opt/seen"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	n := &Node{Name: "node-x", dir: filepath.Join(sandbox.Disk(), "node-x")}
	n.Containerd, n.Kubelet, n.Proxy = &process.Process{}, &process.Process{}, &process.Process{}
	if err := n.powerOn(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.PowerOff(); err != nil {
			t.Error(err)
		}
		roots, err := hierarchies()
		if err != nil {
			t.Error(err)
		}
		for _, root := range roots {
			if left, err := os.Stat(filepath.Join(root, cgroup(n.Name))); err == nil {
				t.Errorf("cgroup %s is left in %s", left.Name(), root)
			}
		}
	})
	shell := func(script string) string {
		t.Helper()
		out, err := n.Run(t.Context(), "/bin/sh", "-c", script)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	if got := shell("hostname"); got != n.Name {
		t.Errorf("the node's name is %q", got)
	}
	if got := shell("cd /opt; echo * cni/*"); got != "cni seen cni/*" {
		t.Errorf("in /opt is %q; want what the machine has there, without its plugins", got)
	}
	if got := shell("echo $$; ls -d /proc/[0-9]*"); !strings.Contains(got, "/proc/1\n") || strings.Count(got, "/proc/") > 5 {
		t.Errorf("processes:\n%s\nwant the node's alone", got)
	}
	const kept = "/etc/kept /opt/kept /var/lib/kept /var/log/kept"
	before, err := os.ReadFile("/proc/sys/kernel/panic")
	if err != nil {
		t.Fatal(err)
	}
	boot := shell("echo 123 >/proc/sys/kernel/panic; touch /run/gone " + kept + "; cat /proc/sys/kernel/random/boot_id")
	if after, err := os.ReadFile("/proc/sys/kernel/panic"); err != nil || string(after) != string(before) {
		t.Errorf("the machine's parameter is %q, %v; want %q, as before", after, err, before)
	}
	if err := n.PowerOff(); err != nil {
		t.Fatal(err)
	}
	if err := n.powerOn(); err != nil {
		t.Fatal(err)
	}
	if got := shell("ls " + kept + " | wc -l; ls /run/gone 2>/dev/null; cat /proc/sys/kernel/random/boot_id"); !strings.HasPrefix(got, "4\n") || strings.Contains(got, "gone") || strings.Contains(got, boot) {
		t.Errorf("after a boot: %q; want 4 files kept, /run empty, and another boot than %q", got, boot)
	}
}

// TestSweep: cgroups are removed when their sandbox is gone, and by no other name.
func TestSweep(t *testing.T) {
	for name, want := range map[string]bool{
		cgroup("node-x"): true,
		cgroupMark + "tenure-sandbox-0" + cgroupNode + "node-x":                  false,
		cgroupMark + filepath.Base(sandbox.Disk()) + "0" + cgroupNode + "node-x": false,
		cgroupMark + "another": true,
	} {
		if used, err := inUse(name); err != nil || used != want {
			t.Errorf("%s in use: %t, %v; want %t", name, used, err, want)
		}
	}
}

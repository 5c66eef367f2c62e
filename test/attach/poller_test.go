package attach_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestAddStartsNoPoller: of a node as it is installed, with the default network on its
// disk. What the runtime's poller has is a descriptor.
func TestAddStartsNoPoller(t *testing.T) {
	n := newNode(t)
	n.onDisk("10-default.conflist", n.recorder("default", map[string]any{"ips": []string{"10.1.0.5/24"}}))
	n.config["defaultNetwork"] = n.path("conf")
	n.define("ns", "a", n.able("a", map[string]any{"device": `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:01:02.3"}}`}, "CNIDeviceInfoFile"))
	n.define("ns", "b", n.recorder("b", map[string]any{"until": n.path("go")}))
	n.selects("p", "a,b")
	add := n.command(t.Context(), "ADD", pod("p"))
	must(t, add.Start())
	n.delegates(4) // the last one waits
	dir := fmt.Sprintf("/proc/%d/fd", add.Process.Pid)
	fds, err := os.ReadDir(dir)
	must(t, err)
	for _, fd := range fds {
		if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err != nil || to == "anon_inode:[eventpoll]" {
			t.Errorf("descriptor %s is %s, %v; want no poller", fd.Name(), to, err)
		}
	}
	must(t, os.WriteFile(n.path("go"), nil, 0o600))
	must(t, add.Wait())
	n.ok("DEL", pod("p"))
	n.clean()
}

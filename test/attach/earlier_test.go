package attach_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// keepResult has the runtime's cache have what a network attached to a container.
func (n *node) keepResult(network, container string, config any) (path string) {
	n.t.Helper()
	path = n.path("results", network+"-"+container+"-eth0")
	must(n.t, os.MkdirAll(filepath.Dir(path), 0o755))
	record := map[string]any{
		"kind": "cniCacheV1", "containerId": container, "ifName": "eth0", "networkName": network, "netns": "/run/netns/x",
		"config": encoded(n.t, config), "cniArgs": [][2]string{{"K8S_POD_NAME", "p"}},
		"result": map[string]any{"cniVersion": "1.1.0", "ips": []any{map[string]any{"address": "10.1.0.7/24"}}},
	}
	must(n.t, os.WriteFile(path, encoded(n.t, record), 0o600))
	return path
}

// TestDELUndoesWhatTheRuntimeAttachedBefore: a pod that ran when the meta-plugin was
// installed is detached from its default network, as the runtime has it in its cache,
// once; another pod's record, and what the runtime has by the meta-plugin's own name,
// are left alone.
func TestDELUndoesWhatTheRuntimeAttachedBefore(t *testing.T) {
	n := newNode(t)
	keep := func(network, container string) string {
		return n.keepResult(network, container, n.recorder(network, nil))
	}
	gone := keep("earlier", "c-p")
	left := []string{keep("tenure", "c-p"), keep("earlier", "c-q")}
	n.selects("p", "")
	n.ok("DEL", pod("p"))
	call := n.called("DEL earlier eth0")[0]
	if got := string(encoded(t, call.at("prevResult", "ips"))); got != `[{"address":"10.1.0.7/24"}]` {
		t.Errorf("the earlier network's plugin is given %s; want that of its result", got)
	}
	if _, err := os.Stat(gone); !os.IsNotExist(err) {
		t.Errorf("the record of what was undone is still there: %v", err)
	}
	for _, path := range left {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	n.ok("DEL", pod("p"))
	n.called()
}

// TestDeviceFilesAloneAreRemoved (N64): with an attachment that a record has, its file of device
// information is removed, if it is one by its place. A record may name any file.
func TestDeviceFilesAloneAreRemoved(t *testing.T) {
	const dir = "/var/run/k8s.cni.cncf.io/devinfo/cni"
	must(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
	n := newNode(t)
	must(t, os.WriteFile(n.path("precious"), nil, 0o600))
	must(t, os.Symlink(n.dir, filepath.Join(dir, "elsewhere")))
	must(t, os.WriteFile(filepath.Join(dir, "sub", "precious"), nil, 0o600))
	up := strings.Repeat("../", strings.Count(dir, "/"))
	for path, gone := range map[string]string{
		filepath.Join(dir, "p-device.json"): filepath.Join(dir, "p-device.json"), dir + "/./q-device.json": filepath.Join(dir, "q-device.json"),
		n.path("precious"): "", dir + "/" + up + n.path("precious"): "", filepath.Join(dir, "elsewhere", "precious"): "", filepath.Join(dir, "sub", "precious"): "",
		"precious": "", dir: "", dir + "/": "",
	} {
		if gone != "" {
			must(t, os.WriteFile(path, nil, 0o600))
		}
		record := n.keepResult("earlier", "c-p", n.recorder("earlier", nil))
		var members map[string]any
		text, err := os.ReadFile(record)
		must(t, err)
		must(t, json.Unmarshal(text, &members))
		members["capabilityArgs"] = map[string]any{"CNIDeviceInfoFile": path}
		must(t, os.WriteFile(record, encoded(t, members), 0o600))
		o := n.ok("DEL", pod("p"))
		n.called("DEL earlier eth0")
		if said := strings.Contains(o.stderr, "is no file of device information"); said != (gone == "") {
			t.Errorf("%s: stderr %q; want to be told: %t", path, o.stderr, gone == "")
		}
		if _, err := os.Lstat(gone); gone != "" && !os.IsNotExist(err) {
			t.Errorf("%s: %v; want it removed", path, err)
		}
		for _, kept := range []string{n.path("precious"), filepath.Join(dir, "sub", "precious"), filepath.Join(dir, "elsewhere")} {
			if _, err := os.Lstat(kept); err != nil {
				t.Fatalf("after a record with %s: %v", path, err)
			}
		}
	}
	must(t, os.RemoveAll(filepath.Dir(dir)))
}

// TestRenamedConfigurationIsNotCalled (N45): what the meta-plugin attached when its
// configuration had another name is in the runtime's cache, too. It is undone by the journal,
// and no DEL has the meta-plugin call itself, which would wait for its own lock.
func TestRenamedConfigurationIsNotCalled(t *testing.T) {
	n := newNode(t)
	n.selects("p", "")
	n.ok("ADD", pod("p"))
	record := n.keepResult("tenure", "c-p", map[string]any{"cniVersion": "1.1.0", "name": "tenure", "plugins": []any{n.config}})
	n.config["name"] = "renamed"
	n.records()
	for range 3 { // as the kubelet and the runtime do
		n.ok("DEL", pod("p"))
	}
	n.called("DEL default eth0")
	if _, err := os.Stat(record); !os.IsNotExist(err) {
		t.Errorf("the runtime's record of what is undone is still there: %v", err)
	}
	n.clean()
}

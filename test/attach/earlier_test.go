package attach_test

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDELUndoesWhatTheRuntimeAttachedBefore: a pod that ran when the meta-plugin was
// installed is detached from its default network, as the runtime has it in its cache,
// once; another pod's record, and what the runtime has by the meta-plugin's own name,
// are left alone.
func TestDELUndoesWhatTheRuntimeAttachedBefore(t *testing.T) {
	n := newNode(t)
	keep := func(network, container string) string {
		path := n.path("results", network+"-"+container+"-eth0")
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		record := map[string]any{
			"kind": "cniCacheV1", "containerId": container, "ifName": "eth0", "networkName": network, "netns": "/run/netns/x",
			"config": encoded(t, n.recorder(network, nil)), "cniArgs": [][2]string{{"K8S_POD_NAME", "p"}},
			"result": map[string]any{"cniVersion": "1.1.0", "ips": []any{map[string]any{"address": "10.1.0.7/24"}}},
		}
		must(t, os.WriteFile(path, encoded(t, record), 0o600))
		return path
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

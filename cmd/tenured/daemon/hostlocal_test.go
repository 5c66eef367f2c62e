package daemon

import (
	"os"
	"path/filepath"
	"testing"
)

// TestHostLocalFilesOutOfSight: a directory that the agent does not have is not empty. It knows
// what the node has below its directory of the CNI, and where it sees the dataDir itself.
func TestHostLocalFilesOutOfSight(t *testing.T) {
	dir := t.TempDir()
	at := func(path string) string { return filepath.Join(dir, path) }
	for _, made := range []string{"cni/networks/net", "mounted", "away/net"} {
		if err := os.MkdirAll(at(made), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(at("cni/networks/net/10.0.0.5"), []byte("c\nnet1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/nowhere/data", at("cni/linked")); err != nil {
		t.Fatal(err)
	}
	h := host{HostLocalDir: at("cni/networks")}
	for _, tt := range []struct {
		name, network, dataDir string
		files                  int
		unseen                 bool
	}{
		{"the default directory", "net", "", 1, false},
		{"no pod of the network ran here", "other", "", 0, false},
		{"a directory of its own below that of the CNI, not made yet", "net", at("cni/own"), 0, false},
		{"a directory that is mounted", "net", at("mounted"), 0, false},
		{"a directory elsewhere", "net", "/nowhere/networks", 0, true},
		{"a link to elsewhere", "net", at("cni/linked"), 0, true},
	} {
		files, err := h.HostLocal(tt.network, tt.dataDir)
		if len(files) != tt.files || (err != nil) != tt.unseen {
			t.Errorf("%s: %d files, error %v; want %d, unseen %v", tt.name, len(files), err, tt.files, tt.unseen)
		}
	}
}

package plan

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestFilesThatAreNone: a pipe or a device among the configurations is passed over, and
// named; to open it would wait for its writer for ever.
func TestFilesThatAreNone(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	err := errors.Join(
		syscall.Mkfifo(file("10-pipe.conflist"), 0o600), os.Symlink("/dev/zero", file("20-device.conflist")),
		os.WriteFile(file("30-large.conflist"), make([]byte, maxFile+1), 0o600),
		os.WriteFile(file("40-list.conflist"), []byte(`{"name": "x", "plugins": [{"type": "t"}]}`), 0o600),
		os.WriteFile(file("50-list.conflist"), []byte(`{"name": "y", "plugins": [{"type": "t"}]}`), 0o600),
		os.Mkdir(file("y"), 0o700), syscall.Mkfifo(file("y/10.conf"), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	f := Files{Root: os.DirFS("/"), ConfDir: dir}
	if list, err := f.Lookup("x"); err != nil || !strings.Contains(string(list), `"x"`) {
		t.Errorf("Lookup: %s, %v; want the list", list, err)
	}
	if list, err := f.Read(dir); err != nil || !strings.Contains(string(list), `"x"`) {
		t.Errorf("Read of the directory: %s, %v; want the list", list, err)
	}
	if _, err := f.Read(file("10-pipe.conflist")); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("Read of a pipe: %v; want that it is none", err)
	}
	_, err = f.Lookup("none")
	if !errors.Is(err, ErrNotFound) {
		t.Fatalf("Lookup of none: %v; want ErrNotFound", err)
	}
	for _, text := range []string{
		"10-pipe.conflist: it is no regular file", "20-device.conflist: it is no regular file", "30-large.conflist: it has 1048577 bytes", "y/10.conf: it is no regular file",
	} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("Lookup of none: %v; want it to say %q", err, text)
		}
	}
}

// TestMultusIsNoDefaultNetwork: a configuration of Multus in the runtime's directory is passed
// over wherever it sorts, and named where there is no other.
func TestMultusIsNoDefaultNetwork(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("00-tenure.conflist", `{"name": "tenure", "plugins": [{"type": "tenure-attach"}]}`)
	write("01-multus.conflist", `{"name": "multus-cni-network", "plugins": [{"type": "multus-shim"}]}`)
	write("02-multus.conf", `{"name": "old-multus", "type": "multus"}`)
	f := Files{Root: os.DirFS("/"), ConfDir: dir}
	_, err := f.Read(dir)
	if !errors.Is(err, ErrNotFound) {
		t.Fatalf("Read: %v; want ErrNotFound", err)
	}
	for _, text := range []string{"multus-cni-network is run by multus-shim", "old-multus is run by multus,"} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("Read: %v; want it to say %q", err, text)
		}
	}
	write("10-bridge.conflist", `{"name": "cluster", "plugins": [{"type": "bridge"}]}`)
	if list, err := f.Read(dir); err != nil || !strings.Contains(string(list), `"cluster"`) {
		t.Errorf("Read: %s, %v; want the cluster's own network", list, err)
	}
}

package netns

import (
	"os"
	"path/filepath"
	"testing"
)

func TestID(t *testing.T) {
	self := ID("/proc/self/ns/net")
	if self == "" || self != ID("/proc/self/ns/net") {
		t.Errorf("of this process: got %q; want one identity, always the same", self)
	}
	if other := ID("/proc/self/ns/mnt"); other == self || other == "" {
		t.Errorf("of another namespace: got %q; want it different from %q", other, self)
	}
	for _, path := range []string{"", "/no/such/file"} {
		if got := ID(path); got != "" {
			t.Errorf("ID(%q) = %q; want none", path, got)
		}
	}
}

func TestGone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ns")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	id := ID(path)
	for _, tt := range []struct {
		name, path, id string
		want           bool
	}{
		{"there", path, id, false},
		{"another at its path", path, "0:1", true},
		{"nothing at its path", filepath.Join(dir, "none"), id, true},
		{"its path is below a file", filepath.Join(path, "ns"), id, true},
		{"no path", "", id, false},
		{"no identity", path, "", false},
		{"no identity and nothing at its path", filepath.Join(dir, "none"), "", false},
		{"a loop of links", loop(t, dir), id, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Gone(tt.path, tt.id); got != tt.want {
				t.Errorf("Gone(%q, %q) = %v; want %v", tt.path, tt.id, got, tt.want)
			}
		})
	}
}

// loop returns a path that no stat can follow.
func loop(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "loop")
	if err := os.Symlink(path, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSurelyGone: what this process may not see as the host does is not gone.
func TestSurelyGone(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, path, id string
		seesHost, want bool
	}{
		{"nothing at its path", filepath.Join(dir, "none"), "4:1", false, true},
		{"its directory is not there", filepath.Join(dir, "none", "ns"), "4:1", true, false},
		{"a file in its place", file, "4:1", true, false},
		{"there", "/proc/self/ns/net", ID("/proc/self/ns/net"), true, false},
		{"another one at its path", "/proc/self/ns/net", "4:1", true, true},
		{"a process that is gone", "/proc/0/ns/net", "4:1", true, true},
		{"a process of another namespace", "/proc/0/ns/net", "4:1", false, false},
		{"no identity", filepath.Join(dir, "none"), "", true, false},
		{"no path", "", "4:1", true, false},
	} {
		if got := SurelyGone(tt.path, tt.id, tt.seesHost); got != tt.want {
			t.Errorf("%s: %v; want %v", tt.name, got, tt.want)
		}
	}
}

func TestOfProcesses(t *testing.T) {
	all, err := OfProcesses()
	if self := ID("/proc/self/ns/net"); err == nil && !all[self] {
		t.Errorf("%v; want %s, that of this process, among them", all, self)
	}
}

package security_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/tenure-ipam/tenure/test/fleet"
)

// TestFilesOfTheHost: what the agent makes on the host, socket, lock, store and its
// counter, is root's alone, and nothing of it has the token.
func TestFilesOfTheHost(t *testing.T) {
	rc := boundTo(t, "tenured", podOn(t, system, "tenured-h", "node-h", "tenured"))
	n := fleet.New(t, rc).Start("node-h")
	dir := filepath.Dir(n.Socket())
	seen := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		seen[filepath.Base(path)] = true
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v; want nothing for others than its owner", d.Name(), info.Mode())
		}
		if !info.Mode().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(rc.BearerToken)) {
			t.Errorf("%s has the agent's token", d.Name())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"agent.sock", "agent.sock.lock", "store.db"} {
		if !seen[name] {
			t.Errorf("there is no %s in %v: the test looks in the wrong place", name, seen)
		}
	}
}

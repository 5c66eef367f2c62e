// Package suites_test runs the suites of the reference CNI plugins twice, with host-local and with
// Tenure in local mode in its place. A spec that passes with host-local has to pass with Tenure.
// What a machine lacks (kernels without dummy interfaces fail all specs of macvlan) fails with
// both, and is reported.
//
// `make test-suites` builds the suites, which are of another module: test/rig/suites.
package suites_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/test/programs"
	"github.com/tenure-ipam/tenure/test/sandbox"
)

// Where things are.
var (
	built   string // the suites and all plugins, but for Tenure
	ours    string // Tenure, and the program in host-local's place
	sources string // of the reference plugins
)

func TestMain(m *testing.M) {
	os.Exit(sandbox.Main(sandbox.Options{}, func() int {
		if err := find(); err != nil {
			fmt.Fprintln(os.Stderr, "suites:", err)
			return 1
		}
		return m.Run()
	}))
}

// find sets the variables of this package.
func find() error {
	root, err := programs.Root()
	if err != nil {
		return err
	}
	built = filepath.Join(root, "bin", "suites")
	ours = filepath.Join(built, "tenure")
	if _, err := os.Stat(ours); err != nil {
		return fmt.Errorf("%w; make test-suites builds it", err)
	}
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/containernetworking/plugins")
	list.Dir = filepath.Join(root, "test", "rig", "suites")
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("find the sources of the reference plugins: %w", err)
	}
	sources = strings.TrimSpace(string(out))
	return nil
}

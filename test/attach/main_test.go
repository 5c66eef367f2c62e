// Package attach_test proves the meta-plugin tenure-attach as runtimes meet it: the
// program is built once and run as a process, row by row of the multi-network
// checklist, with delegates that record how they are called, and with real ones in
// real network namespaces. The agent's side of the socket is a real server that
// answers the facts of each test.
package attach_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tenure-ipam/tenure/test/programs"
	"github.com/tenure-ipam/tenure/test/sandbox"
)

var (
	// tenureAttach is the path of the program under test.
	tenureAttach string
	// pluginDirs are where delegates are: the recorder, and the reference plugins.
	pluginDirs []string
)

func TestMain(m *testing.M) {
	if os.Getenv(envChange) != "" {
		os.Exit(changeProcess())
	}
	os.Exit(sandbox.Main(sandbox.Options{}, func() int {
		code, err := run(context.Background(), m)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}))
}

func run(ctx context.Context, m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "attach")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if tenureAttach, err = programs.Build(ctx, dir, "tenure-attach"); err != nil {
		return 0, err
	}
	recorder := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, "recorder"), programs.Module+"/test/recorder")
	if out, err := recorder.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build the recorder: %w\n%s", err, out)
	}
	rig, err := programs.RigDir()
	if err != nil {
		return 0, err
	}
	pluginDirs = []string{dir, rig}
	defer func() { err = errors.Join(err, theCluster.stop()) }()
	return m.Run(), nil
}

package delegate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

const (
	// holdOn is how long a plugin's output is read after the plugin has ended, in
	// case it left a process behind that keeps the pipe open.
	holdOn = 2 * time.Second

	// busyTries is how often a plugin is tried that is just being installed, and
	// busyPause the time between.
	busyTries = 50
	busyPause = 100 * time.Millisecond
)

// executor runs plugins for the CNI library. Unlike the library's own it passes
// their standard error on whatever the outcome, takes an empty answer to ADD for a
// result that says nothing (NPWG 5.1.1), and has them inherit a lock.
type executor struct {
	version.PluginDecoder
	stderr  io.Writer
	inherit []*os.File
}

// FindInPath finds a plugin's program.
func (x *executor) FindInPath(plugin string, paths []string) (string, error) {
	return invoke.FindInPath(plugin, paths)
}

// ExecPlugin runs a plugin and returns what it answers.
func (x *executor) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	for try := 1; ; try++ {
		cmd := exec.CommandContext(ctx, path)
		cmd.Env, cmd.Stdin, cmd.Stdout = environ, bytes.NewReader(stdin), &stdout
		cmd.Stderr = io.MultiWriter(&stderr, x.stderr)
		cmd.ExtraFiles, cmd.WaitDelay = x.inherit, holdOn
		err := cmd.Run()
		switch {
		case err == nil, errors.Is(err, exec.ErrWaitDelay):
			if slices.Contains(environ, "CNI_COMMAND=ADD") && len(bytes.TrimSpace(stdout.Bytes())) == 0 {
				return []byte("{}"), nil
			}
			return stdout.Bytes(), nil
		case errors.Is(err, syscall.ETXTBSY) && try < busyTries && pause(ctx, busyPause):
		default:
			return nil, answered(err, stdout.Bytes(), stderr.Bytes())
		}
	}
}

// pause waits for d. It reports whether ctx still goes on.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// answered returns the error that a failing plugin answered, or what can be told
// of one that did not.
func answered(err error, stdout, stderr []byte) *types.Error {
	var e types.Error
	stdout, stderr = bytes.TrimSpace(stdout), bytes.TrimSpace(stderr)
	switch {
	case len(stdout) > 0 && json.Unmarshal(stdout, &e) == nil && (e.Code != 0 || e.Msg != ""):
		return &e
	case len(stdout) > 0:
		return &types.Error{Code: types.ErrInternal, Msg: fmt.Sprintf("the plugin failed (%v) and answered %q, which is no CNI error", err, stdout)}
	case len(stderr) > 0:
		return &types.Error{Code: types.ErrInternal, Msg: fmt.Sprintf("the plugin failed (%v) without an answer; it said %q", err, stderr)}
	default:
		return &types.Error{Code: types.ErrInternal, Msg: fmt.Sprintf("the plugin failed (%v) and said nothing", err)}
	}
}

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
	"golang.org/x/sys/unix"

	"github.com/tenure-ipam/tenure/ipam/pause"
)

// busyTries is how often a plugin is tried that is just being installed, and busyPause
// the time between.
const (
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
	for try := 1; ; try++ {
		stdout, stderr, err := x.run(ctx, path, stdin, environ)
		if len(stderr) > 0 {
			_, _ = x.stderr.Write(stderr) // for information only
		}
		switch {
		case err == nil:
			if slices.Contains(environ, "CNI_COMMAND=ADD") && len(bytes.TrimSpace(stdout)) == 0 {
				return []byte("{}"), nil
			}
			return stdout, nil
		case errors.Is(err, syscall.ETXTBSY) && try < busyTries && pause.For(ctx, busyPause):
		default:
			return nil, answered(err, stdout, stderr)
		}
	}
}

// run runs a program with its standard streams in memory: not pipes, which would have
// to be served meanwhile, and which a process that the plugin leaves behind would
// keep open.
func (x *executor) run(ctx context.Context, path string, stdin []byte, environ []string) (stdout, stderr []byte, err error) {
	var files [3]*os.File
	defer func() {
		for _, f := range files {
			_ = f.Close() // memory, or nil
		}
	}()
	for i, name := range []string{"stdin", "stdout", "stderr"} {
		if files[i], err = inMemory(name); err != nil {
			return nil, nil, err
		}
	}
	if _, err := files[0].WriteAt(stdin, 0); err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, path)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = environ, files[0], files[1], files[2], x.inherit
	err = cmd.Run()
	stdout, outErr := content(files[1])
	stderr, errErr := content(files[2])
	return stdout, stderr, errors.Join(err, outErr, errErr)
}

// inMemory returns a new file that is on no disk.
func inMemory(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memory for the plugin's %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// content returns all that is in f, wherever it stands.
func content(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return nil, err
	}
	text := make([]byte, info.Size())
	_, err = f.ReadAt(text, 0)
	return text, err
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

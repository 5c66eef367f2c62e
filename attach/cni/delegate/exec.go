package delegate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/tenure-ipam/tenure/ipam/pause"
)

// busyTries is how often a plugin is tried that is just being installed, and busyPause
// the time between.
const (
	busyTries = 50
	busyPause = 100 * time.Millisecond
)

// executor runs plugins. It passes their standard error on whatever the outcome, and
// has them inherit a lock.
type executor struct {
	stderr  io.Writer
	inherit []*os.File
	// meanwhile, unless it is nil, is called while a plugin runs.
	meanwhile func()
	// limit is after how long a plugin is killed; 0: never.
	limit time.Duration
}

// exec runs a plugin and returns its answer. The end of ctx ends the wait for a plugin that is
// being installed. It does not stop a plugin that runs: nobody could tell what the plugin had done
// until then.
func (x *executor) exec(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	for try := 1; ; try++ {
		stdout, stderr, err := x.run(path, stdin, environ)
		if errors.Is(err, syscall.ETXTBSY) && try < busyTries && pause.For(ctx, busyPause) {
			continue
		}
		return x.outcome(stdout, stderr, err)
	}
}

// outcome returns what a plugin answered, or how it failed, and passes its standard error
// on.
func (x *executor) outcome(stdout, stderr []byte, err error) ([]byte, error) {
	if len(stderr) > 0 {
		_, _ = x.stderr.Write(stderr) // for information only
	}
	if err != nil {
		return nil, answered(err, stdout, stderr)
	}
	return stdout, nil
}

// run runs a program with its standard input in memory.
func (x *executor) run(path string, stdin []byte, environ []string) (stdout, stderr []byte, err error) {
	in, err := inMemory("stdin")
	if err != nil {
		return nil, nil, err
	}
	defer in.Close() // memory
	if _, err := in.WriteAt(stdin, 0); err != nil {
		return nil, nil, err
	}
	p, err := x.start(path, in, environ)
	if err != nil {
		return nil, nil, err
	}
	return x.wait(p)
}

// A process is a plugin that runs.
type process struct {
	path string
	pid  int
	out  [2]*os.File // its standard output and error
}

// start starts a program. Its output goes to memory: not pipes, which would have to be
// served meanwhile, and which a process that the plugin leaves behind would keep open.
//
// Package os/exec does the same and more, at twice the cost: it first runs a process
// of its own to see how it can wait.
//
// The program leads a process group. If a signal ends it, a process that it has started, mostly an
// IPAM plugin, may still run. That is killed too, since nobody would undo what it does later.
func (x *executor) start(path string, stdin *os.File, environ []string) (*process, error) {
	p := &process{path: path}
	for i, name := range []string{"stdout", "stderr"} {
		var err error
		if p.out[i], err = inMemory(name); err != nil {
			p.close()
			return nil, err
		}
	}
	files := append([]*os.File{stdin, p.out[0], p.out[1]}, x.inherit...)
	attr := &syscall.ProcAttr{Env: environ, Sys: &syscall.SysProcAttr{Setpgid: true}}
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // for endGroup, which can do without
	for _, f := range files {
		attr.Files = append(attr.Files, f.Fd())
	}
	var err error
	p.pid, err = syscall.ForkExec(path, []string{path}, attr)
	runtime.KeepAlive(files)
	if err != nil {
		p.close()
		return nil, &fs.PathError{Op: "start", Path: path, Err: err}
	}
	return p, nil
}

// wait waits for a program's end, and returns what it wrote. A thread waits in the
// kernel, since nothing else is to be done then.
func (x *executor) wait(p *process) (stdout, stderr []byte, err error) {
	if x.limit > 0 {
		stop := p.killAfter(x.limit)
		defer stop()
	}
	if x.meanwhile != nil {
		x.meanwhile()
	}
	defer p.close()
	err = p.ended()
	stdout, outErr := content(p.out[0])
	stderr, errErr := content(p.out[1])
	return stdout, stderr, errors.Join(err, outErr, errErr)
}

// killAfter has a program killed that runs for too long. stop is called when it has ended.
func (p *process) killAfter(limit time.Duration) (stop func()) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return func() {} // as before Linux 5.3: it ends by itself, or never
	}
	late := time.AfterFunc(limit, func() {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // or it has just ended
		_ = unix.Close(fd)
	})
	return func() {
		if late.Stop() {
			_ = unix.Close(fd)
		}
	}
}

func (p *process) ended() (err error) {
	var status syscall.WaitStatus
	for err = syscall.EINTR; err == syscall.EINTR; {
		_, err = syscall.Wait4(p.pid, &status, 0, nil)
	}
	switch {
	case err != nil:
		return fmt.Errorf("wait for %s: %w", p.path, err)
	case status.Signaled():
		return errors.Join(fmt.Errorf("signal: %v", status.Signal()), endGroup(p.pid))
	case status.ExitStatus() != 0:
		return fmt.Errorf("exit status %d", status.ExitStatus())
	}
	return nil
}

// close gives back the memory of the program's output.
func (p *process) close() {
	for _, f := range p.out {
		_ = f.Close() // memory, or nil
	}
}

// endGroup kills the processes of a group whose leader has just been waited for, and waits
// until they have ended: children of one that has ended come to this process.
func endGroup(pgid int) error {
	if err := syscall.Kill(-pgid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("end what it has started: %w", err)
	}
	for {
		if _, err := syscall.Wait4(-pgid, nil, 0, nil); err != nil && err != syscall.EINTR {
			return nil // there is none left
		}
	}
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

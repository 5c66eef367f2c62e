package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// process is one component: a program that is started, killed and started
// again with the same arguments.
type process struct {
	name, path string
	args       []string
	log        string                          // file that standard output and error are appended to
	ready      func(ctx context.Context) error // nil once the component serves

	cmd   *exec.Cmd     // nil while it does not run
	ended chan struct{} // closed when cmd has ended
}

// start runs the program and returns when it is ready. It is a no-op if it runs.
func (p *process) start(ctx context.Context) error {
	if p.cmd != nil {
		select {
		case <-p.ended:
			p.cmd = nil
		default:
			return nil
		}
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.path, p.args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd, p.ended = cmd, make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
		close(p.ended)
	}()
	if err := p.waitReady(ctx); err != nil {
		return errors.Join(err, p.stop())
	}
	return nil
}

// waitReady asks the component until it is ready, has ended, or ctx or
// readyTimeout ends.
func (p *process) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready after %v", readyTimeout))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := p.ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s ends with %v while it starts; its log ends with\n%s", p.name, p.cmd.ProcessState, p.logTail())
		case <-ctx.Done():
			return fmt.Errorf("%s: %w; its last answer: %w; its log ends with\n%s", p.name, context.Cause(ctx), err, p.logTail())
		case <-tick.C:
		}
	}
}

// stop kills the program and waits for its end. Killing is what a crash does,
// it works on a paused process, and it does not wait for watchers to leave.
func (p *process) stop() error {
	if p.cmd == nil {
		return nil
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.ended
	p.cmd = nil
	return nil
}

// pause stops the process and waits until every thread of it has stopped: until
// then it may still answer.
func (p *process) pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	deadline := time.Now().Add(readyTimeout)
	for {
		stopped, err := p.stopped()
		if err != nil {
			return fmt.Errorf("look at %s: %w", p.name, err)
		}
		if stopped {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s has not stopped within %v", p.name, readyTimeout)
		}
		time.Sleep(time.Millisecond) // the kernel tells nobody when it is done
	}
}

// stopped reports whether every thread of the process is stopped.
func (p *process) stopped() (bool, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
	if err != nil {
		return false, err
	}
	for _, task := range tasks {
		stat, err := os.ReadFile(task)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended meanwhile
		}
		if err != nil {
			return false, err
		}
		// The state follows the name, which stands in parentheses.
		_, rest, _ := strings.Cut(string(stat), ") ")
		if !strings.HasPrefix(rest, "T") {
			return false, nil
		}
	}
	return len(tasks) > 0, nil
}

func (p *process) resume() error { return p.signal(syscall.SIGCONT) }

func (p *process) signal(s syscall.Signal) error {
	if p.cmd == nil {
		return fmt.Errorf("%s does not run", p.name)
	}
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("send %v to %s: %w", s, p.name, err)
	}
	return nil
}

// logTail returns the last lines of the log, or what prevents reading them.
func (p *process) logTail() string {
	const lines = 25
	b, err := os.ReadFile(p.log)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

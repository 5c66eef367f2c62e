package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/tenure-ipam/tenure/test/cninet"
)

// A program is one of Tenure's that runs all the time: the controller, a node's
// agent.
type program struct {
	name, path string
	args       []string
	files      cninet.Files // what it sees of the file system
	log        string       // file of its standard output and error
	listen     string       // host:port of its /readyz

	cmd   *exec.Cmd     // nil while it does not run
	ended chan struct{} // closed when cmd has ended
}

// How long programs may take.
const (
	patience    = time.Minute // for whatever should happen by itself, on a busy machine
	stopTimeout = 10 * time.Second
	pollEvery   = 30 * time.Millisecond
)

// start starts the program and returns when it says that it is ready.
func (p *program) start(ctx context.Context) error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.path, p.args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := p.files.Do(cmd.Start); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	ended := make(chan struct{})
	p.cmd, p.ended = cmd, ended
	go func() {
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
		close(ended)
	}()
	return await(ctx, patience, func(ctx context.Context) (string, error) {
		select {
		case <-ended:
			return "", fmt.Errorf("%s has ended: %v", p.name, cmd.ProcessState)
		default:
			return p.unready(ctx), nil
		}
	})
}

// unready returns why the program is not ready, "" if it is.
func (p *program) unready(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.listen+"/readyz", nil)
	if err != nil {
		return err.Error()
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "does not answer yet"
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "is not ready yet: " + resp.Status
	}
	return ""
}

// stop ends the program as kubelet does, and reports if it does not end well. It
// is a no-op if the program does not run.
func (p *program) stop() error {
	if p.cmd == nil {
		return nil
	}
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.ended:
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("%s does not end within %v of SIGTERM", p.name, stopTimeout), p.kill())
	}
	state := p.cmd.ProcessState
	p.cmd = nil
	if !state.Success() {
		return fmt.Errorf("%s ends with %v", p.name, state)
	}
	return nil
}

// kill ends the program as a crash does.
func (p *program) kill() error {
	err := p.signal(syscall.SIGKILL)
	<-p.ended
	p.cmd = nil
	return err
}

func (p *program) signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to %s: %w", sig, p.name, err)
	}
	return nil
}

// tail returns the last lines of a log.
func tail(log string) string {
	const lines = 10
	text, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// await calls look until it reports nothing missing. An error ends the wait, and
// so does limit, with what was missing last.
func await(ctx context.Context, limit time.Duration, look func(context.Context) (missing string, err error)) error {
	deadline, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	last := "nothing is known"
	for {
		missing, err := look(deadline)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case deadline.Err() != nil:
			return fmt.Errorf("not within %v: %s", limit, last)
		case err != nil || missing == "":
			return err
		}
		last = missing
		select {
		case <-tick.C:
		case <-deadline.Done():
		}
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
)

// A process is one of Tenure's programs that run all the time.
type process struct {
	path   string
	args   []string
	log    string // file of its standard output and error
	health string // host:port of its /readyz
	socket string // of an agent, which is ready when it serves there; empty of others

	cmd   *exec.Cmd
	ended chan error // has its exit when it has ended
}

// start starts the program and returns when it says that it is ready.
func (p *process) start(ctx context.Context) error {
	log, err := os.Create(p.log)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command(p.path, p.args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		p.cmd = nil
		return fmt.Errorf("start %s (make build makes it): %w", p.path, err)
	}
	p.ended = make(chan error, 1)
	go func() { p.ended <- p.cmd.Wait() }()
	return await(ctx, func() (string, error) {
		select {
		case err := <-p.ended:
			p.ended <- err
			return "", fmt.Errorf("%s has ended: %w", p.path, err)
		default:
			return p.unready(ctx), nil
		}
	})
}

// probeConfig is that of a network which an agent is asked about, to see whether it serves.
const probeConfig = `{"cniVersion":"1.1.0","name":"probe","type":"probe","ipam":{"type":"tenure","pool":"probe"}}`

// unready returns why the program is not ready, "" if it is.
func (p *process) unready(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if p.socket != "" {
		resp, err := agentapi.Call(ctx, p.socket, agentapi.Request{Verb: agentapi.Status, Config: []byte(probeConfig)})
		if err == nil && resp.Error != nil {
			err = resp.Error
		}
		if err != nil {
			return err.Error()
		}
		return ""
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.health+"/readyz", nil)
	if err != nil {
		return err.Error()
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return p.path + " does not answer"
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return p.path + " is not ready"
	}
	return ""
}

// stop ends the program as kubelet does. It is a no-op if it does not run.
func (p *process) stop() error {
	if p.cmd == nil {
		return nil
	}
	defer func() { p.cmd = nil }()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case err := <-p.ended:
		return err
	case <-time.After(startTimeout):
		return errors.Join(fmt.Errorf("%s does not end on SIGTERM", p.path), p.cmd.Process.Kill())
	}
}

// tail returns the end of the program's log.
func (p *process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}

// await calls look until nothing is missing, an error ends the wait, or startTimeout
// is over.
func await(ctx context.Context, look func() (missing string, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		missing, err := look()
		if err != nil || missing == "" {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", missing, context.Cause(ctx))
		}
	}
}

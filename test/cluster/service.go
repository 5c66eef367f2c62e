package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A Service is a program that runs on a node all the time.
type Service struct {
	name  string
	node  *Node
	args  []string
	ready func(context.Context) error // nil once it serves

	cmd   *exec.Cmd     // nil while it does not run
	ended chan struct{} // closed when cmd has ended
}

// patience bounds whatever should happen by itself on a busy machine.
const patience = 2 * time.Minute

func (s *Service) log() string { return filepath.Join(s.node.dir, s.name+".log") }

// Start starts the service and returns when it serves. It is a no-op if the service
// runs.
func (s *Service) Start(ctx context.Context) error {
	if s.cmd != nil {
		select {
		case <-s.ended:
		default:
			return nil
		}
	}
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := s.node.Command(context.WithoutCancel(ctx), s.name, s.args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := s.node.Do(cmd.Start); err != nil {
		return fmt.Errorf("start %s on %s: %w", s.name, s.node.Name, err)
	}
	ended := make(chan struct{})
	s.cmd, s.ended = cmd, ended
	go func() {
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
		close(ended)
	}()
	err = await(ctx, patience, func(ctx context.Context) error {
		select {
		case <-ended:
			return final{fmt.Errorf("it has ended: %v", cmd.ProcessState)}
		default:
			return s.ready(ctx)
		}
	})
	if err != nil {
		return fmt.Errorf("%s on %s: %w; its log ends with\n%s", s.name, s.node.Name, err, tail(s.log()))
	}
	return nil
}

// Kill ends the service as a crash does; what it has started lives on. It is a no-op
// if the service does not run.
func (s *Service) Kill() error {
	if s.cmd == nil {
		return nil
	}
	if err := s.cmd.Process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s on %s: %w", s.name, s.node.Name, err)
	}
	s.wait()
	return nil
}

// Restart kills the service and starts it again.
func (s *Service) Restart(ctx context.Context) error {
	return errors.Join(s.Kill(), s.Start(ctx))
}

// wait waits for the end of a service that is being killed.
func (s *Service) wait() {
	if s.cmd != nil {
		<-s.ended
		s.cmd = nil
	}
}

// final is an error that waiting does not mend.
type final struct{ error }

// await calls look until it finds nothing wrong, or something final, or limit or ctx
// ends; then it returns what was wrong last.
func await(ctx context.Context, limit time.Duration, look func(context.Context) error) error {
	deadline, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := look(deadline)
		if err == nil {
			return nil
		}
		if f, ok := errors.AsType[final](err); ok {
			return f.error
		}
		if deadline.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-tick.C:
		case <-deadline.Done():
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("not within %v: %w", limit, last)
		}
	}
}

// tail returns the last lines of a file.
func tail(path string) string {
	const lines = 15
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

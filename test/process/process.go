// Package process runs programs for tests, the demo and the benchmark, and waits for
// what they do. A program that runs in a sandbox ends with it, whatever happens.
package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Patience bounds whatever should happen by itself, on a busy machine.
const Patience = 2 * time.Minute

// A Process is a program that is started, ended and started again with the same
// arguments. Its methods must not be called concurrently.
type Process struct {
	Name string // for messages; empty is Path
	Path string
	Args []string
	Env  []string // nil is this process's own
	Log  string   // file that standard output and error are appended to

	// Ready returns nil once the program serves. Nil: it does at once.
	Ready func(context.Context) error
	// Exec, if set, starts the program in the place of cmd.Start.
	Exec func(cmd *exec.Cmd) error

	cmd *exec.Cmd // nil while it does not run
	run *Task
}

// String is what messages call the program.
func (p *Process) String() string {
	if p.Name == "" {
		return p.Path
	}
	return p.Name
}

// Start starts the program and returns when it is ready; if it does not get ready it is
// killed. It is a no-op if it runs.
func (p *Process) Start(ctx context.Context) error {
	if p.Running() {
		return nil
	}
	if err := p.Launch(); err != nil {
		return err
	}
	if p.Ready == nil {
		return nil
	}
	if err := p.await(ctx, p.Ready); err != nil {
		return errors.Join(fmt.Errorf("%w; its log ends with\n%s", err, p.Tail()), p.Kill())
	}
	return nil
}

// Launch starts the program, which must not run, and does not wait.
func (p *Process) Launch() error {
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = p.Env, log, log
	start := p.Exec
	if start == nil {
		start = (*exec.Cmd).Start
	}
	if err := start(cmd); err != nil {
		return fmt.Errorf("start %v: %w", p, err)
	}
	p.cmd, p.run = cmd, newTask(nil, cmd.Wait)
	return nil
}

// await waits until look finds nothing wrong with the program, or it has ended.
func (p *Process) await(ctx context.Context, look func(context.Context) error) error {
	err := Await(ctx, Patience, func(ctx context.Context) error {
		if !p.Running() {
			return Final(fmt.Errorf("it has ended: %v", p.cmd.ProcessState))
		}
		return look(ctx)
	})
	if err != nil {
		return fmt.Errorf("%v: %w", p, err)
	}
	return nil
}

// Running reports whether the program has been started and not ended.
func (p *Process) Running() bool { return p.cmd != nil && p.run.Running() }

// Stop ends the program as the kubelet does, and waits for it. How it ends is the error,
// an [*exec.ExitError], if it does not end well. It is a no-op if it does not run.
func (p *Process) Stop() error {
	if p.cmd == nil {
		return nil
	}
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.run.ended:
	case <-time.After(Patience):
		return errors.Join(fmt.Errorf("%v does not end within %v of SIGTERM", p, Patience), p.Kill())
	}
	p.cmd = nil
	if p.run.err != nil {
		return fmt.Errorf("%v: %w", p, p.run.err)
	}
	return nil
}

// Kill ends the program as a crash does, and waits for it. It works on one that is
// paused. It is a no-op if it does not run.
func (p *Process) Kill() error {
	if p.cmd == nil {
		return nil
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	p.Wait()
	return nil
}

// Restart kills the program and starts it again.
func (p *Process) Restart(ctx context.Context) error { return errors.Join(p.Kill(), p.Start(ctx)) }

// Wait waits for the end of a program that somebody kills.
func (p *Process) Wait() {
	if p.cmd != nil {
		<-p.run.ended
		p.cmd = nil
	}
}

// Pause freezes the program, and waits until every thread of it has stopped: until then
// it may still answer.
func (p *Process) Pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return p.await(context.Background(), func(context.Context) error { return p.stopped() })
}

// Resume undoes Pause.
func (p *Process) Resume() error { return p.signal(syscall.SIGCONT) }

// stopped returns an error while a thread of the program is not stopped.
func (p *Process) stopped() error {
	tasks, err := filepath.Glob(p.proc("task/*/stat"))
	if err != nil {
		return err
	}
	for _, task := range tasks {
		stat, err := os.ReadFile(task)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended meanwhile
		}
		if err != nil {
			return err
		}
		// The state follows the name, which stands in parentheses.
		if _, rest, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(rest, "T") {
			return errors.New("it has not stopped")
		}
	}
	return nil
}

func (p *Process) signal(s syscall.Signal) error {
	if p.cmd == nil {
		return fmt.Errorf("%v does not run", p)
	}
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to %v: %w", s, p, err)
	}
	return nil
}

// proc returns the path of one of the kernel's files on the program, which must run.
func (p *Process) proc(file string) string {
	return filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), file)
}

// Memory returns a line of the program's /proc/PID/status, such as VmRSS, in bytes.
func (p *Process) Memory(key string) (int64, error) {
	text, err := os.ReadFile(p.proc("status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("%v has no %s", p, key)
}

// CPUTime returns the processor time that the program's threads have used.
func (p *Process) CPUTime() (sum time.Duration, err error) {
	tasks, err := filepath.Glob(p.proc("task/*/schedstat"))
	if err != nil {
		return 0, err
	}
	for _, path := range tasks {
		text, err := os.ReadFile(path)
		if err != nil {
			return 0, err
		}
		first, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

// Tail returns the last lines of the program's log, or what prevents reading them.
func (p *Process) Tail() string { return Tail(p.Log) }

// Tail returns the last lines of a file, or what prevents reading them.
func Tail(path string) string {
	const lines = 20
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Answers returns what [Process.Ready] is of a program that is ready when a GET of url
// answers 200. Each GET has a second: a program that starts may accept and not answer.
func Answers(c *http.Client, url string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := c.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("GET %s answers %s: %s", url, resp.Status, body)
		}
		return err
	}
}

// FirstLine starts a program, and returns the first line that it prints.
func FirstLine(cmd *exec.Cmd) (string, error) {
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%s ends without a line: %w", cmd, err)
	}
	return strings.TrimSpace(line), nil
}

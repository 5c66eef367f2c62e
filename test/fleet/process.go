package fleet

import (
	"errors"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// Program says how to run one of Tenure's programs as processes of their own, which
// can be killed.
type Program struct {
	Path       string
	Kubeconfig string
	// Start, if set, starts the process in the place of cmd.Start. If it does so on another
	// thread than its caller's, it keeps that one until the process has ended.
	Start func(cmd *exec.Cmd) error
}

// child is a running process.
type child struct {
	cmd  *exec.Cmd
	done chan error
}

// run starts a program that logs into a file of the name.
func (f *Fleet) run(name string, p Program, args ...string) *child {
	f.t.Helper()
	log := f.logFile(name)
	cmd := exec.Command(p.Path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	// It ends with this process too, however that ends. The kernel goes by the thread
	// that has started it, which is kept until the child has ended.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	start := p.Start
	if start == nil {
		start = (*exec.Cmd).Start
	}
	c := &child{cmd: cmd, done: make(chan error, 1)}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := start(cmd)
		started <- err
		if err == nil {
			c.done <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		f.t.Fatal(err)
	}
	return c
}

func (c *child) terminate() { _ = c.cmd.Process.Signal(syscall.SIGTERM) } // it may have ended

func (c *child) kill() { _ = c.cmd.Process.Kill() } // it may have ended

// LaunchProcess starts the agent of a node as a process of the program tenured,
// without waiting for it.
func (f *Fleet) LaunchProcess(p Program, name string) *Node {
	f.t.Helper()
	n := f.node(name)
	c, a := n.cfg, n.cfg.Agent
	args := []string{
		"--node", name, "--kubeconfig", p.Kubeconfig, "--store", c.Store, "--socket", c.Socket,
		"--journal", a.JournalDir, "--netns-dirs", strings.Join(c.NetnsDirs, ","), "--cni-results", strings.Join(c.ResultDirs, ","), "--listen", c.Listen, "--machine-id", a.Machine, "--idle", a.Idle.String(), "--fence", a.Fence.String(),
		"--wait", a.Wait.String(), "--publish-every", a.PublishEvery.String(), "--sweep-every", a.SweepEvery.String(), "--keep-request", a.KeepRequest.String(), "--debug",
	}
	if r := c.Ready; r.Source != "" {
		args = append(args, "--cni-conf", r.Source, "--cni-conf-dir", r.Dir, "--cni-conf-name", r.Name)
	}
	proc := f.run(name, p, args...)
	n.done, n.stop, n.kill = proc.done, proc.terminate, proc.kill
	return n
}

// terminated reports whether a process ended by SIGTERM itself: it had only just begun, and
// did not listen yet.
func terminated(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGTERM
}

// Kill ends a node's process as kill -9 does.
func (n *Node) Kill() {
	n.fleet.t.Helper()
	n.kill()
	var exit *exec.ExitError
	if err := <-n.done; err != nil && !errors.As(err, &exit) {
		n.fleet.t.Errorf("agent of %s: %v", n.Name, err)
	}
	n.stop, n.kill = nil, nil
}

// Controller is a running cluster controller.
type Controller struct {
	fleet *Fleet
	name  string
	proc  *child
}

// LaunchController starts a process of the program tenure-controller, without
// waiting for it. args are further arguments. It ends with the test.
func (f *Fleet) LaunchController(p Program, name string, args ...string) *Controller {
	f.t.Helper()
	c := &Controller{fleet: f, name: name}
	c.proc = f.run(name, p, append([]string{"--kubeconfig", p.Kubeconfig, "--health", "", "--metrics", "", "--debug"}, args...)...)
	f.t.Cleanup(c.Kill)
	return c
}

// Kill ends the controller as kill -9 does, if it runs.
func (c *Controller) Kill() {
	if c.proc == nil {
		return
	}
	c.proc.kill()
	<-c.proc.done //nolint:errcheck // it was killed: how it ends is of no interest
	c.proc = nil
}

// Running reports whether the controller has not ended by itself or by Kill.
func (c *Controller) Running() bool {
	if c.proc == nil {
		return false
	}
	select {
	case err := <-c.proc.done:
		c.proc.done <- err // for Kill
		return false
	default:
		return true
	}
}

// Log returns what the controller has logged.
func (c *Controller) Log() string { return readLog(filepath.Join(c.fleet.logs(), c.name+".log")) }

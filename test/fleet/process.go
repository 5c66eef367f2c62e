package fleet

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Program says how to run agents as processes of their own, which can be killed.
type Program struct {
	Path       string // of tenured
	Kubeconfig string
}

// LaunchProcess starts the agent of a node as a process, without waiting for it.
func (f *Fleet) LaunchProcess(p Program, name string) *Node {
	f.t.Helper()
	f.mu.Lock()
	n, ok := f.nodes[name]
	if !ok {
		n = &Node{Name: name, fleet: f, cfg: f.config(name)}
		f.nodes[name] = n
	}
	f.mu.Unlock()
	c := n.cfg
	log := logFile(f.t, filepath.Join(f.dir, name+".log"))
	cmd := exec.Command(p.Path, "--node", name, "--kubeconfig", p.Kubeconfig, "--store", c.Store, "--socket", c.Socket,
		"--journal", c.Agent.JournalDir, "--netns-dirs", strings.Join(c.NetnsDirs, ","), "--cni-results", strings.Join(c.ResultDirs, ","), "--listen", "", "--machine-id", c.Agent.Machine, "--idle", c.Agent.Idle.String(), "--fence", c.Agent.Fence.String())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	n.done = make(chan error, 1)
	go func() { n.done <- cmd.Wait() }()
	n.stop = func() { _ = cmd.Process.Signal(syscall.SIGTERM) } // it may have ended
	n.kill = func() { _ = cmd.Process.Kill() }
	return n
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

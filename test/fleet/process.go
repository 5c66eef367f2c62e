package fleet

import (
	"context"
	"errors"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/process"
	"github.com/tenure-ipam/tenure/test/programs"
)

// Program says how to run one of Tenure's programs as processes of their own, which
// can be killed.
type Program struct {
	Path       string
	Kubeconfig string
	Exec       func(cmd *exec.Cmd) error // see [process.Process]
}

// Build builds one of Tenure's programs. It reaches the API server as an administrator.
func Build(t testing.TB, cp *controlplane.ControlPlane, name string) Program {
	t.Helper()
	dir := t.TempDir()
	p := Program{Kubeconfig: filepath.Join(dir, "kubeconfig")}
	err := cp.Kubeconfig(p.Kubeconfig)
	if err == nil {
		p.Path, err = programs.Build(t.Context(), dir, name)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Agent returns a node's agent as a process of the program tenured that does not run yet.
// A path that c leaves empty is the program's default.
func (p Program) Agent(c daemon.Config, log string, further ...string) *process.Process {
	a, r := c.Agent, c.Ready
	args := append([]string{
		"--node", string(a.Node), "--kubeconfig", p.Kubeconfig, "--machine-id", a.Machine, "--listen", c.Listen,
		"--idle", a.Idle.String(), "--fence", a.Fence.String(), "--wait", a.Wait.String(), "--publish-every", a.PublishEvery.String(),
		"--sweep-every", a.SweepEvery.String(), "--keep-request", a.KeepRequest.String(),
	}, further...)
	for _, f := range [][2]string{
		{"--store", c.Store}, {"--socket", c.Socket}, {"--journal", a.JournalDir}, {"--netns-dirs", strings.Join(c.NetnsDirs, ",")},
		{"--cni-results", strings.Join(c.ResultDirs, ",")}, {"--dra-socket", c.DRASocket}, {"--cni-conf", r.Source}, {"--cni-conf-dir", r.Dir}, {"--cni-conf-name", r.Name},
	} {
		if f[1] != "" {
			args = append(args, f[0], f[1])
		}
	}
	return &process.Process{Name: "tenured on " + string(a.Node), Path: p.Path, Args: args, Log: log, Ready: serving(c.Socket), Exec: p.Exec}
}

// Controller returns a process of the program tenure-controller that does not run yet. It
// is ready when it says so at the address health, which may be empty.
func (p Program) Controller(health, log string, further ...string) *process.Process {
	c := &process.Process{
		Name: "tenure-controller", Path: p.Path, Log: log, Exec: p.Exec,
		Args: append([]string{"--kubeconfig", p.Kubeconfig, "--health", health, "--metrics", ""}, further...),
	}
	if health != "" {
		c.Ready = Ready(health)
	}
	return c
}

// serving returns a probe of an agent that serves on a socket.
func serving(socket string) func(context.Context) error {
	conf := []byte(`{"cniVersion":"1.1.0","name":"probe","type":"probe","ipam":{"type":"tenure","pool":"probe"}}`)
	return func(ctx context.Context) error {
		resp, err := agentapi.Once(ctx, 5*time.Second, socket, agentapi.Request{Verb: agentapi.Status, Config: conf})
		if err == nil && resp.Error != nil {
			err = resp.Error
		}
		return err
	}
}

// Ready returns a probe of a program that says at an address whether it is ready, as the
// kubelet asks it.
func Ready(address string) func(context.Context) error {
	return process.Answers(http.DefaultClient, "http://"+address+"/readyz")
}

// LaunchProcess starts the agent of a node as a process of the program tenured,
// without waiting for it.
func (f *Fleet) LaunchProcess(p Program, name string) *Node {
	f.t.Helper()
	n := f.node(name)
	proc := p.Agent(n.cfg, f.log(name), "--debug")
	if err := proc.Launch(); err != nil {
		f.t.Fatal(err)
	}
	n.run = proc
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
	n.fleet.Kill(n.run.(*process.Process))
	n.run = nil
}

// LaunchController starts a process of the program tenure-controller, without
// waiting for it. args are further arguments. It ends with the test.
func (f *Fleet) LaunchController(p Program, name string, args ...string) *process.Process {
	f.t.Helper()
	c := p.Controller("", f.log(name), append(args, "--debug")...)
	if err := c.Launch(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { f.Kill(c) })
	return c
}

// Kill ends a process as kill -9 does, if it runs.
func (f *Fleet) Kill(p *process.Process) {
	f.t.Helper()
	if err := p.Kill(); err != nil {
		f.t.Error(err)
	}
}

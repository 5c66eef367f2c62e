package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tenure-ipam/tenure/test/cninet"
	"github.com/tenure-ipam/tenure/test/process"
	"github.com/tenure-ipam/tenure/test/programs"
)

// A Node is a machine of the cluster. Its methods must not be called concurrently
// with those that change whether it, or the same service, runs.
type Node struct {
	Name string

	index int      // from 1
	ips   []string // of its kubelet, one of each family
	dir   string
	net   cninet.NS
	rig   string // directory of the programs

	init       *exec.Cmd // nil while the node is off
	namespaces []*os.File

	Containerd, Kubelet, Proxy *process.Process
}

// services returns what runs on the node.
func (n *Node) services() []*process.Process {
	return []*process.Process{n.Containerd, n.Kubelet, n.Proxy}
}

// The namespaces of a node, in the order in which a thread enters them: with the
// mount namespace the view of /proc changes.
var namespaces = []struct {
	name string
	flag int
}{
	{"net", unix.CLONE_NEWNET}, {"uts", unix.CLONE_NEWUTS}, {"ipc", unix.CLONE_NEWIPC}, {"pid", unix.CLONE_NEWPID}, {"mnt", unix.CLONE_NEWNS},
}

// powerOn boots the node: nothing runs on it yet but init. What it had on disk it has
// again. It is a no-op if the node is on.
func (n *Node) powerOn() error {
	if n.init != nil {
		return nil
	}
	for _, dir := range []string{"etc", "etc.work", "opt", "opt.work", "lib", "log"} {
		if err := os.MkdirAll(filepath.Join(n.dir, dir), 0o755); err != nil {
			return err
		}
	}
	if err := hideMachines(n.dir); err != nil {
		return err
	}
	if err := makeCgroup(cgroup(n.Name)); err != nil {
		return err
	}
	said, handshake, err := os.Pipe()
	if err != nil {
		return err
	}
	defer said.Close()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...) // it has to get to Main again
	cmd.Env = append(os.Environ(), envNode+"="+n.dir)
	cmd.ExtraFiles = []*os.File{handshake}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC}
	err = n.net.Do(cmd.Start)
	handshake.Close()
	if err != nil {
		return fmt.Errorf("boot %s: %w", n.Name, err)
	}
	n.init = cmd
	if text, err := io.ReadAll(said); err != nil || string(text) != "ready" {
		return errors.Join(fmt.Errorf("boot %s: its init ends at once; what it said is above", n.Name), err, n.PowerOff())
	}
	for _, ns := range namespaces {
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", cmd.Process.Pid, ns.name))
		if err != nil {
			return errors.Join(fmt.Errorf("boot %s: %w", n.Name, err), n.PowerOff())
		}
		n.namespaces = append(n.namespaces, f)
	}
	return nil
}

// PowerOff pulls the plug: every process of the node is killed at once, and its
// mounts and pods' interfaces are gone. Its disk stays. It is a no-op if the node is
// off.
func (n *Node) PowerOff() error {
	if n.init == nil {
		return nil
	}
	if err := n.init.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("power %s off: %w", n.Name, err)
	}
	_ = n.init.Wait() // it was killed; it returns when every process of the node is gone
	for _, f := range n.namespaces {
		f.Close()
	}
	n.init, n.namespaces = nil, nil
	for _, s := range n.services() {
		s.Wait()
	}
	return removeCgroup(cgroup(n.Name))
}

// Path returns the path by which this process sees the node's file path while the
// node is on.
func (n *Node) Path(path string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", n.init.Process.Pid), path)
}

// Do runs fn on a thread in the node's namespaces: goroutines that fn starts are not
// there, processes and sockets are. The node must be on.
func (n *Node) Do(fn func() error) error {
	if n.init == nil {
		return fmt.Errorf("%s is off", n.Name)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		done <- func() error {
			// Threads of a process share one root and one working directory,
			// which the kernel wants to change.
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return fmt.Errorf("part from the process's directories: %w", err)
			}
			for i, ns := range namespaces {
				if err := unix.Setns(int(n.namespaces[i].Fd()), ns.flag); err != nil {
					return fmt.Errorf("enter the %s namespace of %s: %w", ns.name, n.Name, err)
				}
			}
			return fn()
		}()
	}()
	return <-done
}

// Command returns a program with its arguments, to be started on the node by Start
// or Run. Programs of the rig are found by their names.
func (n *Node) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	path, err := programs.InRig(n.rig, name)
	if err != nil || filepath.IsAbs(name) {
		path = name
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "PATH="+n.rig+":"+os.Getenv("PATH"), "TMPDIR=/run")
	return cmd
}

// service returns a program that runs on the node all the time. What it has started lives
// on when it is killed.
func (n *Node) service(name string, ready func(context.Context) error, args ...string) *process.Process {
	cmd := n.Command(context.Background(), name, args...)
	return &process.Process{
		Name: name + " on " + n.Name, Path: cmd.Path, Args: args, Env: cmd.Env, Log: filepath.Join(n.dir, name+".log"), Ready: ready,
		Exec: func(cmd *exec.Cmd) error { return n.Do(cmd.Start) },
	}
}

// Run runs a program on the node and returns what it printed; the error has what it
// said otherwise.
func (n *Node) Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := n.Command(ctx, name, args...)
	var out, said limited
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := n.Do(cmd.Start); err != nil {
		return nil, err
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("%s on %s: %w: %s", name, n.Name, err, said.text)
	}
	return out.text, nil
}

// limited keeps the first part of what is written to it.
type limited struct{ text []byte }

func (l *limited) Write(p []byte) (int, error) {
	const most = 1 << 20
	l.text = append(l.text, p[:min(len(p), most-len(l.text))]...)
	return len(p), nil
}

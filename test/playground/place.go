package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tenure-ipam/tenure/test/cluster"
	"github.com/tenure-ipam/tenure/test/programs"
)

// A place is the directory of the playground's files. The process in the background
// holds a lock on pid as long as it lives.
type place struct {
	root, dir string
	bare      bool // without Tenure
}

func newPlace() (place, error) {
	root, err := programs.Root()
	if err != nil {
		return place{}, err
	}
	p := place{root: root, dir: filepath.Join(root, "bin", "cluster")}
	return p, os.MkdirAll(p.dir, 0o755)
}

func (p place) log() string        { return filepath.Join(p.dir, "log") }
func (p place) pid() string        { return filepath.Join(p.dir, "pid") }
func (p place) kubeconfig() string { return filepath.Join(p.dir, "kubeconfig") } // made when all is ready
// socket is where the sandbox hands the API server out.
func (p place) socket() string { return filepath.Join(p.dir, "api.sock") }

// How long the cluster may take to come up and to end.
const (
	upTimeout   = 15 * time.Minute
	downTimeout = time.Minute
	lookEvery   = 100 * time.Millisecond
)

// lock takes the lock of the place. It fails with EWOULDBLOCK while a cluster is up.
func (p place) lock() (*os.File, error) {
	f, err := os.OpenFile(p.pid(), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// up starts the process in the background and shows what it says until all is ready.
func (p place) up(ctx context.Context, out io.Writer) error {
	lock, err := p.lock()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		fmt.Fprintf(out, "The cluster is up already.\n\n%s", p.whatToTry())
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	// The process that an earlier one named may be anybody's by now.
	if err := lock.Truncate(0); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(p.kubeconfig()), os.RemoveAll(p.socket())); err != nil {
		return err
	}
	log, err := os.Create(p.log())
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("/proc/self/exe", serveVerb, map[bool]string{true: "bare"}[p.bare])
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = log, log, []*os.File{lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a terminal's Ctrl-C is for up alone
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the cluster: %w", err)
	}
	if _, err := lock.WriteAt([]byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err := p.follow(ctx, out, ended); err != nil {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		return err
	}
	fmt.Fprintf(out, "\n%s", p.whatToTry())
	return nil
}

// follow copies the log to out until the cluster is ready or has ended.
func (p place) follow(ctx context.Context, out io.Writer, ended <-chan error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, upTimeout, fmt.Errorf("not up within %v: see %s", upTimeout, p.log()))
	defer cancel()
	log, err := os.Open(p.log())
	if err != nil {
		return err
	}
	defer log.Close()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		_, statErr := os.Stat(p.kubeconfig())
		if _, err := io.Copy(out, log); err != nil || statErr == nil {
			return err
		}
		select {
		case err := <-ended:
			_, copyErr := io.Copy(out, log)
			return errors.Join(fmt.Errorf("the cluster has ended: %w", err), copyErr)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// down ends the process in the background, waits until it is gone, and removes the
// place.
func (p place) down(ctx context.Context, out io.Writer) error {
	deadline := time.Now().Add(downTimeout)
	for sig := syscall.SIGTERM; ; {
		lock, err := p.lock()
		if err == nil {
			lock.Close()
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		text, err := os.ReadFile(p.pid()) // what holds the lock has its name written there
		if err != nil {
			return err
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return fmt.Errorf("%s does not say which process holds it: %w", p.pid(), err)
		}
		if sig != 0 {
			if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("end process %d: %w", pid, err)
			}
			sig = 0
		}
		if time.Now().After(deadline) {
			sig, deadline = syscall.SIGKILL, time.Now().Add(downTimeout)
		}
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := errors.Join(cluster.Sweep(), os.RemoveAll(p.dir)); err != nil {
		return err
	}
	fmt.Fprintln(out, "The cluster is down: nothing of it is left.")
	return nil
}

// whatToTry is for the person.
func (p place) whatToTry() string {
	kubectl, err := programs.Find("kubectl")
	if err != nil {
		kubectl = "kubectl"
	}
	if p.bare {
		return fmt.Sprintf(`A Kubernetes cluster of two nodes, without Tenure. Its nodes have images of Tenure with the
tags %[4]s and %[5]s, so that what docs/howto/install.md says can be tried on it:

    export KUBECONFIG=%[1]s PATH=%[2]s:%[2]s/tools:%[3]s:$PATH
    make install ATTACH=yes REGISTRY=tenure.dev

To end it:

    make cluster-down
`, p.kubeconfig(), filepath.Join(p.root, "bin"), filepath.Dir(kubectl), cluster.ImageTag, cluster.NextTag)
	}
	return fmt.Sprintf(`A Kubernetes cluster of two nodes, with Tenure. Try:

    export KUBECONFIG=%[1]s PATH=%[2]s:%[3]s:$PATH
    kubectl get nodes,pods -A -o wide
    kubectl run web --image=%[4]s --annotations=k8s.v1.cni.cncf.io/networks=lan
    kubectl wait pod web --for=condition=Ready
    kubectl exec web -- /pod addresses     # net1 is of the pool lan
    kubectl tenure pools
    kubectl tenure explain web
    kubectl get tenure -o wide             # pools, leases, sub-leases

The log is %[5]s. To end it:

    make cluster-down
`, p.kubeconfig(), filepath.Join(p.root, "bin"), filepath.Dir(kubectl), cluster.PodImage, p.log())
}

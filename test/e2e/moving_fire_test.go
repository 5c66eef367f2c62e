package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/test/programs"
)

// A mover calls kubectl tenure, and may kill it.
type mover struct{ program string }

// newMover compiles the program.
func newMover(ctx context.Context) mover {
	GinkgoHelper()
	path, err := programs.Build(ctx, GinkgoT().TempDir(), "kubectl-tenure")
	Expect(err).NotTo(HaveOccurred())
	return mover{path}
}

// start starts the program with its output in the spec's report. What it returns waits for
// the program's end.
func (m mover) start(ctx context.Context, args ...string) (cmd *exec.Cmd, wait func() error) {
	GinkgoHelper()
	var said bytes.Buffer
	cmd = exec.CommandContext(ctx, m.program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig())
	cmd.Stdout, cmd.Stderr = &said, &said
	Expect(cmd.Start()).To(Succeed())
	return cmd, func() error {
		err := cmd.Wait()
		GinkgoWriter.Printf("$ kubectl tenure %q: %v\n%s", args, err, said.String())
		return err
	}
}

// answer returns what the program prints.
func (m mover) answer(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, m.program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig())
	out, err := cmd.CombinedOutput()
	GinkgoWriter.Printf("$ kubectl tenure %q: %v\n%s", args, err, out)
	return string(out), err
}

// runUnderFire calls the program, kills it and one of kill after a random time, again and
// again until each was killed; then it calls the program until it succeeds.
func (m mover) runUnderFire(ctx context.Context, kill []func(context.Context) error, args ...string) {
	GinkgoHelper()
	for _, k := range kill {
		cmd, wait := m.start(ctx, args...)
		ended := make(chan error, 1)
		go func() { ended <- wait() }()
		select {
		case <-time.After(time.Duration(rand.Int64N(int64(2 * time.Second)))): // killed anywhere on its way
		case err := <-ended:
			ended <- err
		}
		Expect(k(ctx)).To(Succeed())
		if err := cmd.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
			Expect(err).NotTo(HaveOccurred())
		}
		if err := <-ended; err != nil {
			GinkgoWriter.Println("which ended with", err)
		}
	}
	Eventually(func() error {
		_, wait := m.start(ctx, args...)
		return wait()
	}).WithPolling(time.Second).Should(Succeed())
}

// killAll kills every process of a program of Tenure's, on all nodes.
func killAll(program string) func(context.Context) error {
	return func(context.Context) error {
		found, err := filepath.Glob("/proc/[0-9]*/exe")
		if err != nil {
			return err
		}
		killed := 0
		for _, exe := range found {
			if at, err := os.Readlink(exe); err != nil || filepath.Base(at) != program {
				continue
			}
			var pid int
			if _, err := fmt.Sscanf(exe, "/proc/%d/exe", &pid); err != nil {
				return err
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
			killed++
		}
		GinkgoWriter.Printf("killed %d processes of %s\n", killed, program)
		return nil
	}
}

// killAPIServer kills the API server, and starts it again.
func killAPIServer(ctx context.Context) error {
	if err := c.StopAPIServer(); err != nil {
		return err
	}
	GinkgoWriter.Println("killed the API server")
	return c.StartAPIServer(ctx)
}

// churn creates pods on a network, and deletes each when there are three younger ones,
// until the function that it returns is called, which returns those that are left. The API
// server may be away meanwhile.
func (s site) churn(ctx context.Context, names map[types.UID]string, network string) (stop func() []*corev1.Pod) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	var pods []*corev1.Pod
	group.Go(func() {
		defer GinkgoRecover()
		for i := 0; ctx.Err() == nil; i++ {
			p := s.pod(fmt.Sprintf("churn-%d", i), c.Nodes[i%len(c.Nodes)].Name, network)
			if err := kube.Create(ctx, p); err == nil {
				names[p.UID] = p.Name
				pods = append(pods, p)
			}
			if len(pods) > 3 {
				if err := kube.Delete(ctx, pods[0]); client.IgnoreNotFound(err) == nil {
					pods = pods[1:]
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second): // as fast as a busy cluster has pods come and go
			}
		}
	})
	stop = sync.OnceValue(func() []*corev1.Pod {
		cancel()
		group.Wait()
		return pods
	})
	DeferCleanup(func() { stop() })
	return stop
}

package operator_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// asked is a release-node that waits at its prompt.
type asked struct {
	t        *testing.T
	cmd      *exec.Cmd
	keyboard *os.File

	mu  sync.Mutex
	out bytes.Buffer
}

// Write implements io.Writer, for what the command writes.
func (a *asked) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.out.Write(p)
}

func (a *asked) text() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(strings.Fields(a.out.String()), " ")
}

// ask calls release-node at a terminal, and returns when it asks.
func ask(t *testing.T, args ...string) *asked {
	t.Helper()
	keyboard, screen := terminal(t)
	a := &asked{t: t, cmd: command(t, append([]string{"release-node"}, args...)...), keyboard: keyboard}
	a.cmd.Stdin, a.cmd.Stdout, a.cmd.Stderr = screen, a, a
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fleet.Eventually(t, 30*time.Second, func() error {
		if !strings.Contains(a.text(), "to go on") {
			return fmt.Errorf("it does not ask: %s", a.text())
		}
		return nil
	})
	return a
}

// ends waits for the command's end, checks its exit code, and returns what it wrote.
func (a *asked) ends(code int) string {
	a.t.Helper()
	kill := time.AfterFunc(30*time.Second, func() { _ = a.cmd.Process.Kill() }) // it fails by its exit code then
	defer kill.Stop()
	err := a.cmd.Wait()
	if got := a.cmd.ProcessState.ExitCode(); got != code {
		a.t.Errorf("it ends with %d, %v; want %d\n%s", got, err, code, a.text())
	}
	return a.text()
}

// terminal returns a terminal's two ends.
func terminal(t *testing.T) (keyboard, screen *os.File) {
	t.Helper()
	open := func(path string) *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	keyboard = open("/dev/ptmx")
	fd := int(keyboard.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	return keyboard, open(fmt.Sprintf("/dev/pts/%d", n))
}

// A machine that lives again while somebody thinks about the answer is not released:
// its heartbeats do not change its Node (I1).
func TestReleaseNodeLooksAgainAfterItAsked(t *testing.T) {
	w := inOrder(t)
	w.isReady(corev1.ConditionUnknown)
	w.quiet(10*time.Minute, 15*time.Minute)
	a := ask(t, w.node)
	fleet.Amend(t, api, w.node, func(reg *protocol.Registration) { reg.Beat, reg.Writes = time.Now(), reg.Writes+1 })
	fmt.Fprintln(a.keyboard, w.node)
	says(t, a.ends(3), "is not released", "its agent beats")
	if w.off() {
		t.Error("the Node has the taint while its agent beats")
	}
}

// Whoever interrupts at the prompt has done nothing.
func TestReleaseNodeIsInterruptedAtItsPrompt(t *testing.T) {
	w := inOrder(t)
	w.isReady(corev1.ConditionUnknown)
	w.quiet(10*time.Minute, 15*time.Minute)
	a := ask(t, w.node)
	if err := a.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	says(t, a.ends(3), "Nothing was done.")
	if w.off() {
		t.Error("the Node has the taint")
	}
}

// A Node that release-node made and had to leave is removed by the next call, whether
// anything is left to take over or not.
func TestReleaseNodeRemovesWhatItMade(t *testing.T) {
	for _, later := range []bool{false, true} {
		t.Run(fmt.Sprint("when all is taken over: ", later), func(t *testing.T) {
			w := newWorld(t)
			w.lease("10.40.0.0/28", w.node)
			w.quiet(time.Hour, 0)
			w.nodeGone()
			says(t, tenure(t, 1, "release-node", w.node, "--yes", "--timeout=1s"), "after 1s", "is still there")
			controller(t)
			want := "It holds nothing any more."
			if later {
				want = "There is nothing to release."
				fleet.Eventually(t, time.Minute, func() error {
					leases, err := api.LeasesOfNode(t.Context(), protocol.NodeName(w.node))
					if err == nil && len(leases) > 0 {
						err = fmt.Errorf("leases %d", len(leases))
					}
					return err
				})
			}
			says(t, tenure(t, 0, "release-node", w.node, "--yes"), "made by an earlier release-node", want, "is removed")
			if err := kc.Get(t.Context(), client.ObjectKey{Name: w.node}, &corev1.Node{}); !apierrors.IsNotFound(err) {
				t.Errorf("the Node is still there: %v", err)
			}
		})
	}
}

// Whoever interrupts the wait learns that it was an interruption, and what is left.
func TestReleaseNodeIsInterruptedWhileItWaits(t *testing.T) {
	w := newWorld(t)
	w.lease("10.40.0.0/28", w.node)
	w.quiet(time.Hour, 0)
	w.nodeGone()
	t.Cleanup(func() {
		made := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node}}
		if err := kc.Delete(context.Background(), made); err != nil {
			t.Error(err)
		}
	})
	a := ask(t, w.node)
	fmt.Fprintln(a.keyboard, w.node)
	fleet.Eventually(t, 30*time.Second, func() error {
		return kc.Get(t.Context(), client.ObjectKey{Name: w.node}, &corev1.Node{})
	})
	fleet.Eventually(t, 30*time.Second, func() error {
		if !strings.Contains(a.text(), "There is a Node") {
			return fmt.Errorf("it has not made the Node: %s", a.text())
		}
		return nil
	})
	if err := a.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	says(t, a.ends(1), "interrupted", "is still there")
}

// A Node that was made again is another machine's, for all that is known: it gets no
// taint while the earlier one's agent may give out addresses.
func TestReleaseNodeThatWasMadeAgain(t *testing.T) {
	w := newWorld(t)
	w.lease("10.40.0.0/28", w.node)
	w.quiet(10*time.Minute, 15*time.Minute)
	w.nodeGone()
	create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node}})
	says(t, tenure(t, 3, "release-node", w.node, "--yes"), "made again", "has not passed")
	if w.off() {
		t.Error("the new Node has the taint")
	}
}

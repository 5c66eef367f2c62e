package attach_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/test/slowdisk"
)

// reader is a plugin that says that it runs, and then which input it has got: a script,
// whose input another program reads.
const reader = `#!/bin/sh
echo $$ >%[1]s.new && mv %[1]s.new %[1]s
input=$(cat)
echo "$CNI_COMMAND got $input" >>%[1]s
echo '{}'
`

// readerNode is a node whose default network is the reader's, on a disk of its own; both
// syncs of a journal hang.
func readerNode(t *testing.T) (*node, *slowdisk.Disk) {
	t.Helper()
	n := newNode(t)
	must(t, os.WriteFile(n.path("reader"), fmt.Appendf(nil, reader, n.path("runs")), 0o700))
	n.config["binDir"] = n.dir
	n.config["defaultNetwork"] = map[string]any{"cniVersion": "1.1.0", "name": "default", "type": "reader"}
	n.ok("ADD", pod("q")) // makes the directories
	must(t, os.Remove(n.path("runs")))
	var disk slowdisk.Disk
	disk.Slow(time.Hour)
	t.Cleanup(disk.Wait)
	return n, &disk
}

// waiting starts an ADD, and returns when its first plugin runs and its disk hangs. The
// plugin's process is the leader of its group.
func (n *node) waiting(disk *slowdisk.Disk, cmd *exec.Cmd) (plugin int) {
	n.t.Helper()
	must(n.t, disk.Start(cmd))
	var text []byte
	for deadline := time.Now().Add(waitLimit); len(text) == 0 || disk.Syncs() < 2; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			n.t.Fatalf("%d syncs have begun; the plugin says %q; want two, and that it runs", disk.Syncs(), text)
		}
		text, _ = os.ReadFile(n.path("runs"))
	}
	plugin, err := strconv.Atoi(strings.TrimSpace(string(text)))
	must(n.t, err)
	return plugin
}

// TestPlanOnDiskBeforeAnyPluginIsCalled: the first plugin's process is there while the plan
// is being synced, without a configuration. It gets one when the plan is on disk, and
// never if that fails.
func TestPlanOnDiskBeforeAnyPluginIsCalled(t *testing.T) {
	for _, errno := range []syscall.Errno{0, syscall.EIO} {
		t.Run(fmt.Sprint(errno), func(t *testing.T) {
			n, disk := readerNode(t)
			cmd := n.command(t.Context(), "ADD", pod("p"))
			var stdout bytes.Buffer
			cmd.Stdout = &stdout
			plugin := n.waiting(disk, cmd)
			if journals := n.journals(); len(journals) != 2 {
				t.Errorf("journals: %q; want this one too, for a DEL if the process ends", journals)
			}
			disk.Fail(errno)
			disk.Slow(0)
			err := cmd.Wait()
			said, readErr := os.ReadFile(n.path("runs"))
			must(t, readErr)
			if errno == 0 {
				if err != nil || !strings.Contains(string(said), `got {"cniVersion":"1.1.0","name":"default"`) {
					t.Errorf("the plan is on disk: %v, %s; the plugin says %q; want its configuration", err, &stdout, said)
				}
				return
			}
			if err == nil || !strings.Contains(stdout.String(), errno.Error()) {
				t.Errorf("the plan is not on disk: %v, %s; want %v", err, &stdout, errno)
			}
			if strings.Contains(string(said), "ADD got") || !strings.Contains(string(said), "DEL got") {
				t.Errorf("the plugin says %q; want that its ADD got nothing, not even an end of its input, and a DEL", said)
			}
			if err := syscall.Kill(-plugin, 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("the plugin's processes: %v; want none", err)
			}
			if journals := n.journals(); len(journals) != 1 {
				t.Errorf("journals: %q; want none of an ADD that has done nothing", journals)
			}
		})
	}
}

// TestKilledWhileThePlanIsSynced (N75): the first plugin has begun as far as anybody knows, and
// is waited for, and undone.
func TestKilledWhileThePlanIsSynced(t *testing.T) {
	n, disk := readerNode(t)
	cmd := n.command(t.Context(), "ADD", pod("p"))
	plugin := n.waiting(disk, cmd)
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	n.ok("DEL", pod("p"))
	if err := syscall.Kill(-plugin, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the plugin's processes after the DEL: %v; want none", err)
	}
	if said, err := os.ReadFile(n.path("runs")); err != nil || !strings.Contains(string(said), `got {"cniVersion"`) {
		t.Errorf("the plugins say %q, %v; want a DEL with the configuration", said, err)
	}
	n.ok("DEL", pod("q"))
	n.clean()
}

// TestResultThatCannotBeKept: what is found out while the next plugin runs fails the ADD as
// if it had been found out before.
func TestResultThatCannotBeKept(t *testing.T) {
	n := newNode(t)
	n.define("ns", "a", n.recorder("net-a", nil))
	n.selects("p", "a")
	must(t, os.Mkdir(n.path("state"), 0o700))
	must(t, os.WriteFile(n.path("state", "results"), nil, 0o600)) // no directory
	n.fails("ADD", pod("p"), "keep the result")
	n.called("ADD default eth0", "ADD net-a net1", "DEL net-a net1", "DEL default eth0")
	n.reported(0)
	must(t, os.Remove(n.path("state", "results")))
	n.ok("DEL", pod("p"))
	n.clean()
}

// TestAgentHasTheReportBeforeTheAnswer: so no mark of it is needed on the disk, which is
// made where the agent refuses it.
func TestAgentHasTheReportBeforeTheAnswer(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		t.Run(fmt.Sprintf("refused %v", refuse), func(t *testing.T) {
			n := newNode(t)
			n.agent.refuse = refuse
			const tries = 20 // the agent may be late, on a busy machine
			for try := 1; ; try++ {
				accepted, marked := n.toldWhenAnswered("p")
				n.ok("DEL", pod("p"))
				n.records()
				n.clean()
				if accepted == !refuse && marked == refuse {
					return
				}
				if !accepted && !marked || try == tries {
					t.Fatalf("when the answer begins, the report is accepted: %v, marked: %v", accepted, marked)
				}
			}
		})
	}
}

// toldWhenAnswered ends an ADD when its answer begins, and returns whether the agent has
// accepted a report by then, and whether a mark tells that it has not.
func (n *node) toldWhenAnswered(name string) (accepted, marked bool) {
	n.t.Helper()
	cmd := n.command(n.t.Context(), "ADD", pod(name))
	out, err := cmd.StdoutPipe()
	must(n.t, err)
	must(n.t, cmd.Start())
	_, err = out.Read(make([]byte, 1))
	must(n.t, err)
	n.agent.mu.Lock()
	defer n.agent.mu.Unlock()
	names, _ := os.ReadDir(n.path("state", "unsent"))
	accepted, marked = len(n.agent.reports) > 0, len(names) > 0
	n.agent.reports = nil
	must(n.t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed, or had ended
	return accepted, marked
}

package attach_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/atomicfile"
)

// TestKilledAtAnyDelegate (N75, D10) kills the program with SIGKILL while each of its
// delegates runs, which goes on by itself as an orphan; the next DEL waits for it
// and undoes all that was begun, and nothing else.
func TestKilledAtAnyDelegate(t *testing.T) {
	n := newNode(t)
	n.selects("p", "a,b")
	attachments := []string{"default eth0", "net-a net1", "net-b net2"}
	for at := range attachments {
		for _, verb := range []string{"ADD", "DEL"} {
			t.Run(verb+" of "+attachments[at], func(t *testing.T) {
				n.t = t
				n.killing(verb, at)
				if verb == "DEL" {
					n.ok("ADD", pod("p"))
				}
				must(t, os.WriteFile(n.path("armed"), nil, 0o600))
				if o := n.call(verb, pod("p")); o.status != -1 {
					t.Fatalf("%+v; want it killed", o)
				}
				n.ok("DEL", pod("p"))
				n.detached(attachments, func(i int) bool { return verb == "DEL" || i <= at })
				n.clean()
			})
		}
	}
}

// killing has the delegate of one of three steps kill its caller in a verb, and
// then take its time.
func (n *node) killing(verb string, at int) {
	n.t.Helper()
	in := func(step int) map[string]any {
		if step != at {
			return nil
		}
		return map[string]any{"killParent": map[string]any{verb: n.path("armed")}, "millis": 100}
	}
	n.config["defaultNetwork"] = n.recorder("default", in(0))
	n.define("ns", "a", n.recorder("net-a", in(1)))
	n.define("ns", "b", n.recorder("net-b", in(2)))
}

// detached fails the test unless no two delegates ran at once, and those were
// detached that should have been, no others.
func (n *node) detached(attachments []string, should func(i int) bool) {
	n.t.Helper()
	dels := map[string]int{}
	var last record
	for _, r := range n.records() {
		if r.Begin < last.End {
			n.t.Errorf("%s began before %s had ended", r.id(), last.id())
		}
		if last = r; r.Verb == "DEL" {
			dels[strings.TrimPrefix(r.id(), "DEL ")]++
		}
	}
	for i, id := range attachments {
		if should(i) != (dels[id] > 0) {
			n.t.Errorf("%d DELs of %s; want some: %v", dels[id], id, should(i))
		}
	}
}

// TestKilledAtAnyMoment (N75) kills the program again and again at moments that are
// spread over an ADD, and has the DEL find everything.
func TestKilledAtAnyMoment(t *testing.T) {
	n := newNode(t)
	n.three(nil, nil, nil)
	n.selects("p", "a,b,c")
	start := time.Now()
	n.ok("ADD", pod("p"))
	whole := time.Since(start)
	n.ok("DEL", pod("p"))
	n.records()
	const moments = 25
	for i := range moments {
		ctx, cancel := context.WithTimeout(t.Context(), whole*time.Duration(i+1)/moments)
		cmd := n.command(ctx, "ADD", pod("p"))
		_ = cmd.Run() // killed, or not: both are fine
		cancel()
		n.ok("DEL", pod("p"))
		held := map[string]bool{}
		for _, r := range n.records() {
			held[strings.TrimPrefix(strings.TrimPrefix(r.id(), "ADD "), "DEL ")] = r.Verb == "ADD"
		}
		for id, still := range held {
			if still {
				t.Errorf("killed after %v of %v: %s is still attached", whole*time.Duration(i+1)/moments, whole, id)
			}
		}
		n.clean()
	}
}

// TestAddAfterAKilledOne (N75): an ADD that finds what a killed one left undoes that
// first.
func TestAddAfterAKilledOne(t *testing.T) {
	n := newNode(t)
	n.define("ns", "a", n.recorder("net-a", map[string]any{"killParent": map[string]any{"ADD": n.path("armed")}}))
	n.selects("p", "a")
	must(t, os.WriteFile(n.path("armed"), nil, 0o600))
	if o := n.call("ADD", pod("p")); o.status != -1 {
		t.Fatalf("%+v; want it killed", o)
	}
	n.define("ns", "a", n.recorder("net-a", nil))
	n.ok("ADD", pod("p"))
	n.called("ADD default eth0", "ADD net-a net1", "DEL net-a net1", "DEL default eth0", "ADD default eth0", "ADD net-a net1")
	n.ok("DEL", pod("p"))
	n.clean()
}

// TestAfterAReboot (N75): what the journal says of single steps may be lost with the
// machine, so after another boot all are undone.
func TestAfterAReboot(t *testing.T) {
	n := newNode(t)
	n.define("ns", "a", n.recorder("net-a", nil))
	n.define("ns", "b", n.recorder("net-b", nil))
	n.selects("p", "a,b")
	n.ok("ADD", pod("p"))
	n.records()
	file := n.journals()[0]
	text, err := os.ReadFile(file)
	must(t, err)
	head, _, _ := bytes.Cut(text, []byte("\n"))
	must(t, os.WriteFile(file, append(head, '\n'), 0o600))
	must(t, os.RemoveAll(n.path("state", "results")))
	n.ok("DEL", pod("p")) // of this boot: nothing has begun
	n.called()
	n.ok("ADD", pod("p"))
	n.records()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	must(t, err)
	text, err = os.ReadFile(file)
	must(t, err)
	head, _, _ = bytes.Cut(text, []byte("\n"))
	must(t, os.WriteFile(file, resealed(bytes.Replace(head, bytes.TrimSpace(boot), []byte("another"), 1)), 0o600))
	n.ok("DEL", pod("p"))
	n.called("DEL net-b net2", "DEL net-a net1", "DEL default eth0")
	n.clean()
}

// TestDamagedJournal (N75): it is said, the CNI library's cache takes its place, and it
// is not taken for nothing to do.
func TestDamagedJournal(t *testing.T) {
	n := newNode(t)
	n.three(nil, nil, nil)
	n.selects("p", "a,b")
	n.ok("ADD", pod("p"))
	n.records()
	damage := func() string {
		file := n.journals()[0]
		text, err := os.ReadFile(file)
		must(t, err)
		text[20] ^= 1
		must(t, os.WriteFile(file, text, 0o600))
		return file
	}
	file := damage()
	n.fails("CHECK", pod("p"), "damaged")
	o := n.ok("DEL", pod("p"))
	if !strings.Contains(o.stderr, "is damaged") || !strings.Contains(o.stderr, "3 attachments") || !strings.Contains(o.stderr, file+".damaged") {
		t.Errorf("stderr: %q; want the damage, what was done, and where the journal is", o.stderr)
	}
	n.called("DEL net-b net2", "DEL net-a net1", "DEL default eth0")
	n.ok("DEL", pod("p"))
	n.called()

	must(t, os.Remove(file+".damaged"))
	n.ok("ADD", pod("p"))
	damage()
	must(t, os.RemoveAll(n.path("state", "results")))
	n.fails("DEL", pod("p"), "is damaged", "nothing was undone")
	n.ok("DEL", pod("p"))
}

// TestOneContainerOneCall (D10, N76) runs calls for one container, and for others,
// at once.
func TestOneContainerOneCall(t *testing.T) {
	n := newNode(t)
	n.config["defaultNetwork"] = n.recorder("default", map[string]any{"until": n.path("go")})
	// Two containers, each with two attachments of the meta-plugin: of one container
	// one is in its delegate, of both containers at once.
	type running struct {
		cmd *exec.Cmd
		out *bytes.Buffer
	}
	var all []running
	for _, s := range []sandboxOf{
		{pod: "p", ifName: "eth0"}, {pod: "p", ifName: "eth1"}, {pod: "q", ifName: "eth0"}, {pod: "q", ifName: "eth1"},
	} {
		r := running{n.command(t.Context(), "ADD", s), &bytes.Buffer{}}
		r.cmd.Stdout = r.out
		must(t, r.cmd.Start())
		all = append(all, r)
	}
	n.delegates(2)
	must(t, os.WriteFile(n.path("go"), nil, 0o600))
	for _, r := range all {
		if err := r.cmd.Wait(); err != nil {
			t.Errorf("%v\n%s", err, r.out)
		}
	}
	records := n.records()
	if len(records) != 4 {
		t.Fatalf("%d delegates were called; want 4", len(records))
	}
	together := false
	for i, a := range records {
		for _, b := range records[i+1:] {
			overlap := a.Begin < b.End && b.Begin < a.End
			same := a.Env["CNI_CONTAINERID"] == b.Env["CNI_CONTAINERID"]
			if same && overlap {
				t.Errorf("container %s: two delegates at once", a.Env["CNI_CONTAINERID"])
			}
			together = together || overlap && !same
		}
	}
	if !together {
		t.Error("delegates of different containers never ran at once")
	}
}

// TestWhatAPluginLeavesRunning (D10): a program that outlives a call which came to its end
// keeps no other call waiting, and does not keep the call itself.
func TestWhatAPluginLeavesRunning(t *testing.T) {
	n := newNode(t)
	gone := n.path("gone")
	script := fmt.Sprintf("#!/bin/sh\n(until [ -e %s ]; do sleep 0.05; done; : >%s.seen) &\necho '{}'\n", gone, gone)
	must(t, os.WriteFile(n.path("leaver"), []byte(script), 0o700))
	n.config["binDir"] = n.dir
	n.config["defaultNetwork"] = map[string]any{"cniVersion": "1.1.0", "name": "default", "type": "leaver"}
	n.ok("ADD", pod("p"))
	lock, err := os.Open(n.path("state", "locks", "c-p"))
	must(t, err)
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Errorf("the container's lock after the ADD: %v; want it free", err)
	}
	must(t, os.WriteFile(gone, nil, 0o600))
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(gone + ".seen"); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("what the plugin left running has not ended")
		}
	}
}

// delegates waits until as many delegates have begun.
func (n *node) delegates(count int) {
	n.t.Helper()
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(5 * time.Millisecond) {
		begun, err := filepath.Glob(n.path("log", "*.started"))
		must(n.t, err)
		if len(begun) >= count {
			return
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("%d delegates have begun; want %d", len(begun), count)
		}
	}
}

// resealed gives a line of a journal, whose body was changed, its checksum.
func resealed(line []byte) []byte {
	_, body, _ := bytes.Cut(line, []byte(" "))
	return atomicfile.Seal(body)
}

// TestNoAgentNoAdd (N11): no agent, no ADD; what it refuses has its own code.
func TestNoAgentNoAdd(t *testing.T) {
	n := newNode(t)
	n.agent.answer = &agentapi.Response{Version: agentapi.Version, Error: &agentapi.Error{Code: agentapi.CodeTryAgainLater, Msg: "pod ns/p is not known yet"}}
	if f := n.fails("ADD", pod("p"), "not known yet"); f.Code != 11 {
		t.Errorf("code %d; want 11", f.Code)
	}
	n.stop()
	if f := n.fails("ADD", pod("p"), "no agent listens"); f.Code != 11 {
		t.Errorf("code %d; want 11", f.Code)
	}
	n.called()
	n.ok("DEL", pod("p"))
	n.clean()
}

package attach_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/tenure-ipam/tenure/attach/cni/plugin"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/test/cninet"
)

// envChange has this program change the networks of a running pod, as `tenured hotplug` does, and
// do nothing else: so that it can be killed meanwhile.
const envChange = "TENURE_TEST_CHANGE"

// A changeCall is what such a process reads.
type changeCall struct {
	Config json.RawMessage
	Path   []string
	Key    journal.Key
	Limit  time.Duration
}

// changeProcess is such a process. It prints what came of it.
func changeProcess() int {
	var call changeCall
	if err := json.NewDecoder(os.Stdin).Decode(&call); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	conf, err := plan.ParseConfig(call.Config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	p := plugin.Plugin{Stderr: os.Stderr, Now: time.Now, Limit: call.Limit}
	again, err := p.Change(context.Background(), conf, call.Path, call.Key)
	fmt.Println(again, err)
	return 0
}

// A running pod is one that is attached, in a network namespace of its own.
type running struct {
	*node
	ns    cninet.NS
	s     sandboxOf
	limit time.Duration // after which a plugin is killed
}

// run attaches pod p, which selects networks.
func (n *node) run(selects string) running {
	n.t.Helper()
	r := running{node: n, ns: netns(n.t, fmt.Sprintf("run-%d", os.Getpid()))}
	r.s = sandboxOf{pod: "p", netns: r.ns.Path()}
	n.selects("p", selects)
	n.ok("ADD", r.s)
	n.records()
	n.reported(1)
	return r
}

// change has the pod select other networks and be changed so, and returns what came of it. It may
// be killed.
func (r running) change(selects string) (said string, killed bool) {
	r.t.Helper()
	return r.changeWithin(waitLimit, selects)
}

// changeWithin is change, which is killed after a while.
func (r running) changeWithin(limit time.Duration, selects string) (said string, killed bool) {
	r.t.Helper()
	r.selects("p", selects)
	self, err := os.Executable()
	must(r.t, err)
	ctx, cancel := context.WithTimeout(r.t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), envChange+"=1")
	cmd.Stdin = bytes.NewReader(encoded(r.t, changeCall{
		Config: encoded(r.t, r.config), Path: pluginDirs, Key: journal.Key{ContainerID: "c-p", Network: "tenure", IfName: "eth0"}, Limit: r.limit,
	}))
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() < 0 || err != nil && ctx.Err() != nil {
		return "", true
	}
	if err != nil {
		r.t.Fatalf("%v\n%s", err, stderr.String())
	}
	return strings.TrimSpace(stdout.String()), false
}

// changes is change, which succeeds and calls the recorders just so.
func (r running) changes(selects string, called ...string) facts.Report {
	r.t.Helper()
	if said, killed := r.change(selects); said != "false <nil>" || killed {
		r.t.Fatalf("%q, killed: %t; want success", said, killed)
	}
	r.called(called...)
	if len(called) == 0 {
		return facts.Report{}
	}
	return r.reported(1)[0]
}

// shows returns the interfaces of a report's status.
func shows(t *testing.T, rep facts.Report) (all []string) {
	t.Helper()
	var list []struct{ Name, Interface string }
	must(t, json.Unmarshal(rep.Status, &list))
	for _, s := range list {
		all = append(all, s.Name+" "+s.Interface)
	}
	return all
}

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q; want %q", what, got, want)
	}
}

// notes returns reasons and messages of what is said.
func notes(all []facts.Warning) (lines []string) {
	for _, w := range all {
		lines = append(lines, w.Reason+": "+w.Message)
	}
	return lines
}

// TestChange: networks come and go while a pod runs; the journal, CHECK, GC and DEL know what there
// is.
func TestChange(t *testing.T) {
	n := newNode(t)
	n.three(nil, map[string]any{"ips": []string{"10.8.0.2/24"}}, nil)
	r := n.run("a")
	rep := r.changes("a,b", "ADD net-b net2")
	same(t, "status", shows(t, rep), "default eth0", "ns/a net1", "ns/b net2")
	same(t, "events", notes(rep.Notes), "InterfaceAttached: interface net2 was attached to network ns/b: 10.8.0.2")
	r.changes("a,b") // nothing is to be done
	n.ok("CHECK", r.s)
	n.called("CHECK default eth0", "CHECK net-a net1", "CHECK net-b net2")

	rep = r.changes("b@net2,c@x", "DEL net-a net1", "ADD net-c x")
	same(t, "status", shows(t, rep), "default eth0", "ns/b net2", "ns/c x")
	same(t, "events", notes(rep.Notes), "InterfaceDetached: interface net1 was detached from network ns/a", "InterfaceAttached: interface x was attached to network ns/c")
	n.ok("CHECK", r.s)
	n.called("CHECK default eth0", "CHECK net-b net2", "CHECK net-c x")

	n.ok("GC", sandboxOf{config: map[string]any{"cni.dev/valid-attachments": []any{map[string]any{"containerID": "c-p", "ifname": "eth0"}}}})
	for _, call := range n.records() {
		for _, a := range call.at("cni.dev/valid-attachments").([]any) { //nolint:forcetypeassert // a panic fails the test
			if a.(map[string]any)["ifname"] == "net1" { //nolint:forcetypeassert // likewise
				t.Errorf("GC of %v has the interface that is gone: %v", call.Stdin["name"], a)
			}
		}
	}
	rep = r.changes("a@net2", "DEL net-c x", "DEL net-b net2", "ADD net-a net2") // another network by the same name
	same(t, "status", shows(t, rep), "default eth0", "ns/a net2")
	r.changes("", "DEL net-a net2")
	r.changes("b,c", "ADD net-b net1", "ADD net-c net2")
	n.ok("DEL", r.s)
	n.called("DEL net-c net2", "DEL net-b net1", "DEL default eth0")
	n.clean()
}

// TestChangeByAWatchThatIsBehind: nothing is taken from a pod by what it has selected before.
func TestChangeByAWatchThatIsBehind(t *testing.T) {
	n := newNode(t)
	n.three(nil, nil, nil)
	r := n.run("a,b")
	for _, before := range []string{"", "a", "b,a", "c@net1"} {
		n.watchShows(before)
		r.changes("a,b")
	}
	rep := r.changes("b@net2,c@net1", "DEL net-a net1", "ADD net-c net1")
	same(t, "status", shows(t, rep), "default eth0", "ns/b net2", "ns/c net1")
}

// TestChangeOfRunningPodsAlone: a pod without an attachment, or one that was undone, is left alone.
func TestChangeOfRunningPodsAlone(t *testing.T) {
	n := newNode(t)
	n.three(nil, nil, nil)
	r := n.run("a")
	n.ok("DEL", r.s)
	n.records()
	r.changes("a,b")
	n.clean()
}

// TestChangeGC: what came while the pod ran is undone by a garbage collection with the rest.
func TestChangeGC(t *testing.T) {
	n := newNode(t)
	n.three(nil, nil, nil)
	r := n.run("a")
	r.changes("a,b", "ADD net-b net2")
	n.ok("GC", sandboxOf{config: map[string]any{"cni.dev/valid-attachments": []any{}}})
	var dels []string
	for _, call := range n.records() {
		if call.Verb == "DEL" {
			dels = append(dels, call.id())
		}
	}
	same(t, "undone", dels, "DEL net-b net2", "DEL net-a net1", "DEL default eth0")
	n.clean()
}

// TestChangeFails: an element that cannot be attached leaves nothing behind, is told in the status
// and as an event, and does not keep others away. It is attached when it can be.
func TestChangeFails(t *testing.T) {
	n := newNode(t)
	must(t, os.WriteFile(n.path("broken"), nil, 0o600))
	n.three(nil, map[string]any{"fail": map[string]any{"ADD": map[string]any{"code": 100, "msg": "no luck", "file": n.path("broken")}}}, nil)
	r := n.run("a")
	said, _ := r.change("a,b,c")
	if !strings.HasPrefix(said, "true ") || !strings.Contains(said, "no luck") {
		t.Fatalf("%s; want it to be tried again, since there was no luck", said)
	}
	n.called("ADD net-b net2", "DEL net-b net2", "ADD net-c net3")
	rep := n.reported(1)[0]
	same(t, "status", shows(t, rep), "default eth0", "ns/a net1", "ns/c net3")
	if w := strings.Join(notes(rep.Warnings), "|"); !strings.Contains(w, "InterfaceNotAttached: ADD of network ns/b on net2") || !strings.Contains(string(rep.Status), "no luck") {
		t.Errorf("told %s\nstatus %s\nwant both to say why", w, rep.Status)
	}
	must(t, os.Remove(n.path("broken")))
	rep = r.changes("a,b,c", "ADD net-b net2")
	if strings.Contains(string(rep.Status), "no luck") || len(rep.Warnings) > 0 {
		t.Errorf("%+v; want nothing of what was", rep)
	}
	n.ok("DEL", r.s)
	n.called("DEL net-c net3", "DEL net-b net2", "DEL net-a net1", "DEL default eth0")
	n.clean()
}

// TestChangeOfAPluginThatHangs: a plugin that does not end is killed, and what it has begun undone.
func TestChangeOfAPluginThatHangs(t *testing.T) {
	n := newNode(t)
	n.three(nil, map[string]any{"until": n.path("never")}, nil)
	r := n.run("a")
	r.limit = 200 * time.Millisecond
	if said, _ := r.change("a,b"); !strings.HasPrefix(said, "true ") || !strings.Contains(said, "killed") {
		t.Fatalf("%s; want it killed, and another try", said)
	}
	must(t, os.WriteFile(n.path("never"), nil, 0o600))
	n.records()
	n.reported(1)
	r.limit = waitLimit
	r.changes("a,b", "DEL net-b net2", "ADD net-b net2") // the DEL was killed as well
	n.ok("DEL", r.s)
	n.clean()
}

// TestChangeInPlaceFails: an interface that cannot be attached anew is there again as it was, and
// is not disturbed by another try.
func TestChangeInPlaceFails(t *testing.T) {
	n := newNode(t)
	n.three(nil, map[string]any{"fail": map[string]any{"ADD": map[string]any{"code": 100, "msg": "no luck"}}}, nil)
	r := n.run("a@x")
	said, _ := r.change("b@x")
	if !strings.HasPrefix(said, "false ") || !strings.Contains(said, "as it was") {
		t.Fatalf("%s; want no other try, and what became of it", said)
	}
	n.called("DEL net-a x", "ADD net-b x", "DEL net-b x", "ADD net-a x")
	same(t, "status", shows(t, n.reported(1)[0]), "default eth0", "ns/a x")
	n.define("ns", "b", map[string]any{"cniVersion": "1.1.0", "name": "net-b", "plugins": []any{map[string]any{"type": "not-there"}}})
	said, _ = r.change("b@x")
	if !strings.Contains(said, "not-there") {
		t.Errorf("%s; want it to name the plugin that is missing", said)
	}
	n.called() // which is seen before anything is detached
	n.ok("DEL", r.s)
	n.called("DEL net-a x", "DEL default eth0")
	n.clean()
}

// TestChangeIsRefused: an annotation that a running pod cannot have changes nothing, is told once,
// and no more when it is taken back.
func TestChangeIsRefused(t *testing.T) {
	n := newNode(t)
	n.three(nil, nil, nil)
	r := n.run("a")
	for _, c := range []struct{ selects, why string }{
		{`[{`, "invalid"},
		{"a,nowhere", "nothing of it"},
		{"a,b@net1", "4.1.2.1.5"},
		{`[{"name": "a"}, {"name": "b", "default-route": ["10.8.0.1"]}]`, "default-route"},
	} {
		for tries := range 2 {
			said, _ := r.change(c.selects)
			if !strings.HasPrefix(said, "true ") {
				t.Errorf("%s: %s; want it to be tried again", c.selects, said)
			}
			if tries > 0 {
				n.reported(0) // it was told
				continue
			}
			rep := n.reported(1)[0]
			same(t, c.selects, shows(t, rep), "default eth0", "ns/a net1")
			w := strings.Join(notes(rep.Warnings), "|")
			if !strings.Contains(w, "NetworksNotChanged: ") || !strings.Contains(w, c.why) || !strings.Contains(string(rep.Status), c.why) {
				t.Errorf("%s: told %s, status %s; want %q in both", c.selects, w, rep.Status, c.why)
			}
		}
	}
	if said, _ := r.change("a"); said != "false <nil>" {
		t.Errorf("%s; want that all is well again", said)
	}
	if rep := n.reported(1)[0]; len(rep.Warnings) > 0 || strings.Contains(string(rep.Status), "warnings") {
		t.Errorf("%s, %v; want no warning", rep.Status, rep.Warnings)
	}
	n.called()
	n.ok("DEL", r.s)
}

// TestChangeKilled: killed while a plugin runs, for ADD or DEL, and followed by another change or
// by the pod's DEL at once, a change leaves nothing behind and nothing out.
func TestChangeKilled(t *testing.T) {
	for _, c := range []struct {
		name, was, now string
		killing        string // the network whose plugin kills
		verb           string
		goesOn, undone []string
	}{
		{"attaching", "a", "a,b", "b", "ADD", []string{"ADD net-b net2", "DEL net-b net2", "ADD net-b net2"}, []string{"ADD net-b net2", "DEL net-b net2", "DEL net-a net1", "DEL default eth0"}},
		{"detaching", "a,b", "a", "b", "DEL", []string{"DEL net-b net2", "DEL net-b net2"}, []string{"DEL net-b net2", "DEL net-b net2", "DEL net-a net1", "DEL default eth0"}},
		{"attaching anew", "a@x", "b@x", "b", "ADD", []string{"DEL net-a x", "ADD net-b x", "DEL net-b x", "ADD net-b x"}, []string{"DEL net-a x", "ADD net-b x", "DEL net-b x", "DEL default eth0"}},
	} {
		for _, after := range []string{"change", "DEL"} {
			t.Run(c.name+", then "+after, func(t *testing.T) {
				n := newNode(t)
				n.three(nil, nil, nil)
				n.define("ns", c.killing, n.recorder("net-"+c.killing, map[string]any{"killParent": map[string]any{c.verb: n.path("armed")}, "millis": 50}))
				r := n.run(c.was)
				must(t, os.WriteFile(n.path("armed"), nil, 0o600))
				if said, killed := r.change(c.now); !killed {
					t.Fatalf("%s; want it killed", said)
				}
				if after == "change" {
					r.changes(c.now, c.goesOn...)
					n.ok("DEL", r.s)
				} else {
					n.ok("DEL", r.s)
					n.called(c.undone...)
				}
				n.clean()
			})
		}
	}
}

// TestChangeKilledAtAnyMoment kills changes again and again at moments that are spread over one:
// the next one always ends with what is selected, and the pod's DEL finds everything.
func TestChangeKilledAtAnyMoment(t *testing.T) {
	n := newNode(t)
	n.three(nil, nil, nil)
	r := n.run("a,b")
	both := []string{"a,c@x", "b@x,a@net2"}
	began := time.Now()
	r.change(both[0])
	whole := time.Since(began)
	const moments = 20
	for i := range moments {
		r.changeWithin(whole*time.Duration(i+1)/moments, both[(i+1)%2]) // killed, or not: both are fine
		if said, _ := r.change(both[(i+1)%2]); said != "false <nil>" {
			t.Fatalf("after one that was killed: %s", said)
		}
		n.ok("CHECK", r.s)
	}
	n.ok("DEL", r.s)
	held := map[string]bool{}
	for _, call := range n.records() {
		if call.Verb != "CHECK" {
			held[strings.TrimPrefix(strings.TrimPrefix(call.id(), "ADD "), "DEL ")] = call.Verb == "ADD"
		}
	}
	for id, still := range held {
		if still {
			t.Errorf("%s is still attached", id)
		}
	}
	n.clean()
}

// TestChangeOfInterfaces: by real plugins, interfaces come and go, and those that stay, their
// addresses and the pod's routes are not touched. A name that the pod has by others is refused.
func TestChangeOfInterfaces(t *testing.T) {
	n := routedNode(t)
	n.define("ns", "c", n.bridge("net-c", 4, false))
	r := n.run("b")
	links := func() (all []string) {
		must(t, r.ns.Do(func() error {
			list, err := netlink.LinkList()
			for _, l := range list {
				if name := l.Attrs().Name; name != "lo" {
					all = append(all, fmt.Sprintf("%s %d", name, l.Attrs().Index))
				}
			}
			return err
		}))
		return all
	}
	before, routes := links(), defaults(t, r.ns)
	for range 20 {
		if said, _ := r.change("b,c@new"); said != "false <nil>" {
			t.Fatal(said)
		}
		if now := links(); len(now) != 3 || !slices.Equal(now[:2], before) || !strings.HasPrefix(now[2], "new ") {
			t.Fatalf("interfaces %q; want %q, and new", now, before)
		}
		same(t, "default routes", defaults(t, r.ns), routes...)
		n.ok("CHECK", r.s)
		if said, _ := r.change("b"); said != "false <nil>" {
			t.Fatal(said)
		}
		same(t, "interfaces", links(), before...)
	}
	must(t, r.ns.Do(func() error {
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "own", TxQLen: -1}})
	}))
	if said, _ := r.change("b,c@own"); !strings.Contains(said, "an interface of that name already") {
		t.Errorf("%s; want that the name is taken", said)
	}
	if now := links(); len(now) != 3 || !strings.HasPrefix(now[2], "own ") {
		t.Errorf("interfaces %q; want the pod's own still there", now)
	}
	n.ok("DEL", r.s)
	left, err := filepath.Glob(n.path("host-local", "net-c", "10.*"))
	if err != nil || len(left) > 0 {
		t.Errorf("addresses %v are left, %v; want none", left, err)
	}
}

package attach_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// gc runs GC with these valid attachments, pairs of container and interface.
func (n *node) gc(valid ...[2]string) outcome {
	n.t.Helper()
	list := []any{}
	for _, v := range valid {
		list = append(list, map[string]any{"containerID": v[0], "ifname": v[1]})
	}
	return n.call("GC", sandboxOf{config: map[string]any{"cni.dev/valid-attachments": list}})
}

// validOf returns what a recorder was told to keep by GC, by containers and
// interfaces.
func validOf(r record) (valid []string) {
	list, ok := r.at("cni.dev/valid-attachments").([]any)
	if !ok {
		return []string{"no list"}
	}
	for _, v := range list {
		m, _ := v.(map[string]any)
		valid = append(valid, m["containerID"].(string)+" "+m["ifname"].(string))
	}
	slices.Sort(valid)
	return valid
}

// TestGCUndoesWhatIsNotValidAndTellsEveryNetwork (C14, D2).
func TestGCUndoesWhatIsNotValidAndTellsEveryNetwork(t *testing.T) {
	n := newNode(t)
	n.three(nil, nil, nil)
	n.selects("p", "a,a")
	n.selects("q", "a,b")
	n.ok("ADD", pod("p"))
	n.ok("ADD", pod("q"))
	n.records()
	n.stop() // needs no agent
	if o := n.gc([2]string{"c-p", "eth0"}); o.status != 0 || o.stdout != "" {
		t.Fatalf("GC: %+v; want success without a result", o)
	}
	calls := n.called("DEL net-b net2", "DEL net-a net1", "DEL default eth0", "GC default ", "GC net-a ", "GC net-b ")
	for i, want := range [][]string{{"c-p eth0"}, {"c-p net1", "c-p net2"}, nil} {
		if got := validOf(calls[3+i]); !slices.Equal(got, want) {
			t.Errorf("%s keeps %v; want %v", calls[3+i].id(), got, want)
		}
	}
	if len(n.journals()) != 1 {
		t.Errorf("journals: %v; want that of the container that is valid", n.journals())
	}
	n.gc()
	n.called("DEL net-a net2", "DEL net-a net1", "DEL default eth0", "GC default ", "GC net-a ")
	n.clean()
}

// TestGCWithoutAList (C14).
func TestGCWithoutAList(t *testing.T) {
	n := newNode(t)
	n.ok("ADD", pod("p"))
	n.records()
	if f := n.fails("GC", sandboxOf{}, "cni.dev/valid-attachments is missing"); f.Code != 7 {
		t.Errorf("code %d; want 7", f.Code)
	}
	n.fails("GC", sandboxOf{config: map[string]any{"cni.dev/valid-attachments": 7}}, "no list")
	n.called()
	n.ok("DEL", pod("p"))
}

// TestGCRefusesAListWithIncompleteItems (C14): what such an item was meant to keep is not known,
// so nothing is undone and no plugin is told.
func TestGCRefusesAListWithIncompleteItems(t *testing.T) {
	n := newNode(t)
	n.ok("ADD", pod("p"))
	n.records()
	whole := map[string]any{"containerID": "c-p", "ifname": "eth0"}
	for _, tt := range []struct {
		item any
		says string
	}{
		{nil, "null"},
		{map[string]any{}, "containerID"},
		{map[string]any{"containerID": "c-p"}, "ifname"},
		{map[string]any{"containerID": "c-p", "ifname": nil}, "ifname"},
		{map[string]any{"containerID": "", "ifname": "eth0"}, "containerID"},
		{"c-p", "no list"},
	} {
		list := []any{whole, tt.item}
		f := n.fails("GC", sandboxOf{config: map[string]any{"cni.dev/valid-attachments": list}}, "cni.dev/valid-attachments", tt.says)
		if f.Code != 7 {
			t.Errorf("%v: code %d; want 7", list, f.Code)
		}
		n.called()
	}
	n.ok("DEL", pod("p"))
	n.called("DEL default eth0")
}

// TestGCDoesNotTakeFromTheLiving (C14): of a container that is valid and whose journal
// is gone or damaged, nobody knows what it holds.
func TestGCDoesNotTakeFromTheLiving(t *testing.T) {
	n := newNode(t)
	n.ok("ADD", pod("p"))
	n.ok("ADD", pod("q"))
	n.records()
	o := n.gc([2]string{"c-p", "eth0"}, [2]string{"c-z", "eth0"})
	if o.status != 0 || !strings.Contains(o.stderr, "container c-z") {
		t.Errorf("a container without a journal: %+v; want a warning", o)
	}
	n.called("DEL default eth0") // of q, and no GC
	must(t, os.WriteFile(n.journals()[0], []byte("damaged"), 0o600))
	if o := n.gc([2]string{"c-p", "eth0"}); o.status != 1 || !strings.Contains(o.stdout, "damaged") {
		t.Errorf("a damaged journal of a container that is valid: %+v", o)
	}
	n.called()
	if o := n.gc(); o.status != 0 || !strings.Contains(o.stderr, "damaged") {
		t.Errorf("a damaged journal of one that is not: %+v", o)
	}
	n.called("DEL default eth0", "GC default ")
}

// TestGCLeavesADamagedJournalOfAnotherName (C14): the configuration got another name while a pod
// ran, and the pod's journal is damaged. The pod is valid, which its journal's name does not say.
// It is left alone, and so is what it holds of other networks. Its DEL undoes it.
func TestGCLeavesADamagedJournalOfAnotherName(t *testing.T) {
	n := newNode(t)
	n.define("ns", "a", n.recorder("net-a", nil))
	n.selects("p", "a")
	n.ok("ADD", pod("p"))
	must(t, os.WriteFile(n.journals()[0], []byte("damaged"), 0o600))
	n.config["name"] = "renamed"
	n.selects("q", "a")
	n.ok("ADD", pod("q"))
	n.records()
	for _, valid := range [][][2]string{{{"c-p", "eth0"}, {"c-q", "eth0"}}, {{"c-q", "eth0"}}} {
		if o := n.gc(valid...); o.status != 0 || !strings.Contains(o.stderr, "is none of network renamed") {
			t.Errorf("GC with %v: %+v; want success, and a warning", valid, o)
		}
		n.called()
	}
	n.ok("DEL", pod("p"))
	n.called("DEL net-a net1", "DEL default eth0")
	if o := n.gc([2]string{"c-q", "eth0"}); o.status != 0 {
		t.Errorf("GC: %+v", o)
	}
	n.called("GC default ", "GC net-a ")
}

// TestGCGoesOnAndRespectsDisableGC (D2, D8).
func TestGCGoesOnAndRespectsDisableGC(t *testing.T) {
	n := newNode(t)
	failing := map[string]any{"fail": map[string]any{"GC": map[string]any{"code": 100, "msg": "cannot"}}}
	n.three(failing, nil, failing)
	off := n.recorder("net-off", nil)
	off["disableGC"] = true
	n.define("ns", "off", off)
	n.selects("p", "a,b,c,off")
	n.ok("ADD", pod("p"))
	n.records()
	o := n.gc([2]string{"c-p", "eth0"})
	if o.status != 1 || strings.Count(o.stdout, "cannot") != 2 || !strings.Contains(o.stdout, "net-a") || !strings.Contains(o.stdout, "net-c") {
		t.Errorf("%+v; want both failures", o)
	}
	n.called("GC default ", "GC net-a ", "GC net-b ", "GC net-c ")
	n.ok("DEL", pod("p"))
}

// TestGCWaitsForCallsUnderWay (D10): GC has all containers for itself.
func TestGCWaitsForCallsUnderWay(t *testing.T) {
	n := newNode(t)
	n.config["defaultNetwork"] = n.recorder("default", map[string]any{"until": n.path("go")})
	add := n.command(t.Context(), "ADD", pod("p"))
	must(t, add.Start())
	n.delegates(1)
	gc := n.command(t.Context(), "GC", sandboxOf{config: map[string]any{"cni.dev/valid-attachments": []any{}}})
	must(t, gc.Start())
	time.Sleep(50 * time.Millisecond) // that it does not come first is no proof, and all that can be seen
	must(t, os.WriteFile(n.path("go"), nil, 0o600))
	must(t, add.Wait())
	must(t, gc.Wait())
	calls := n.called("ADD default eth0", "DEL default eth0", "GC default ")
	if calls[1].Begin < calls[0].End {
		t.Error("GC undid an attachment while it was being made")
	}
}

// TestStatusIsTheDefaultNetworks (C13, D9).
func TestStatusIsTheDefaultNetworks(t *testing.T) {
	n := newNode(t)
	n.define("ns", "a", n.recorder("net-a", map[string]any{"fail": map[string]any{"STATUS": map[string]any{"code": 50, "msg": "full"}}}))
	n.selects("p", "a")
	n.ok("ADD", pod("p"))
	n.records()
	n.stop()
	if o := n.ok("STATUS", sandboxOf{}); o.stdout != "" {
		t.Errorf("stdout %q; want nothing", o.stdout)
	}
	n.called("STATUS default ")
	for _, tt := range []struct{ code, want uint }{{50, 50}, {51, 51}, {100, 50}} {
		n.config["defaultNetwork"] = n.recorder("default", map[string]any{"fail": map[string]any{"STATUS": map[string]any{"code": tt.code, "msg": "broken"}}})
		if f := n.fails("STATUS", sandboxOf{}, "default network default", "broken"); f.Code != tt.want {
			t.Errorf("a delegate that answers %d: code %d; want %d", tt.code, f.Code, tt.want)
		}
	}
	n.config["defaultNetwork"] = map[string]any{"cniVersion": "0.3.1", "name": "default", "type": "no-such-plugin"}
	if f := n.fails("STATUS", sandboxOf{}, "no-such-plugin"); f.Code != 50 {
		t.Errorf("a plugin that is not there: code %d; want 50", f.Code)
	}
	n.config["readinessindicatorfile"] = n.path("ready")
	n.config["defaultNetwork"] = n.recorder("default", nil)
	if f := n.fails("STATUS", sandboxOf{}, "not ready"); f.Code != 50 {
		t.Errorf("not ready: code %d; want 50", f.Code)
	}
	must(t, os.WriteFile(n.path("ready"), nil, 0o600))
	n.ok("STATUS", sandboxOf{})
}

// TestStatusOfADefinition (C13): STATUS names no pod, so the default network that a
// definition has is known from the ADDs before.
func TestStatusOfADefinition(t *testing.T) {
	n := newNode(t)
	n.config["defaultNetwork"], n.config["defaultNamespace"] = "net", "ns"
	gate := n.path("gate")
	n.define("ns", "net", n.recorder("default", map[string]any{"fail": map[string]any{"STATUS": map[string]any{"code": 50, "msg": "broken", "file": gate}}}))
	n.define("ns", "own", n.recorder("own", nil))
	n.ok("STATUS", sandboxOf{})
	n.called()
	n.ok("ADD", pod("p"))
	n.annotate("q", "v1.multus-cni.io/default-network", "ns/own")
	n.ok("ADD", pod("q"))
	n.called("ADD default eth0", "ADD own eth0")
	n.stop()
	n.ok("STATUS", sandboxOf{})
	n.called("STATUS default ")
	must(t, os.WriteFile(gate, nil, 0o600))
	if o := n.ok("STATUS", sandboxOf{}); !strings.Contains(o.stderr, "broken") { // what was true then is no reason
		t.Errorf("stderr %q; want what the plugin said", o.stderr)
	}
	n.called("STATUS default ")
	n.config["defaultNetwork"] = "another"
	n.ok("STATUS", sandboxOf{})
	n.called()
}

// TestStatusOfAFile (C13): what the disk has is judged as it is now, also where an ADD was
// for a definition of that name.
func TestStatusOfAFile(t *testing.T) {
	n := newNode(t)
	n.config["defaultNetwork"], n.config["defaultNamespace"] = "net", "ns"
	n.define("ns", "net", n.recorder("of-the-definition", nil))
	n.ok("ADD", pod("p"))
	n.agent.mu.Lock()
	clear(n.agent.definitions)
	n.agent.mu.Unlock()
	broken := map[string]any{"fail": map[string]any{"STATUS": map[string]any{"code": 50, "msg": "broken"}}}
	n.onDisk("net.conflist", n.recorder("net", broken))
	n.ok("ADD", pod("q"))
	n.called("ADD of-the-definition eth0", "ADD net eth0")
	n.fails("STATUS", sandboxOf{}, "broken")
	n.onDisk("net.conflist", n.recorder("net", nil))
	n.ok("STATUS", sandboxOf{})
	n.called("STATUS net ", "STATUS net ")
}

// TestAddWaitsForTheDefaultNetwork (N71): until it is ready, no ADD; a DEL does not
// wait for long.
func TestAddWaitsForTheDefaultNetwork(t *testing.T) {
	n := newNode(t)
	n.config["readinessindicatorfile"] = n.path("ready")
	add := n.command(t.Context(), "ADD", pod("p"))
	must(t, add.Start())
	time.Sleep(50 * time.Millisecond) // as above: it may only be seen that it comes too early
	n.called()
	must(t, os.WriteFile(n.path("ready"), nil, 0o600))
	must(t, add.Wait())
	n.called("ADD default eth0")
	must(t, os.Remove(n.path("ready")))
	n.ok("DEL", pod("p"))
	n.called("DEL default eth0")
}

// TestReportComesAfterTheAnswer (N47, N52, N60).
func TestReportComesAfterTheAnswer(t *testing.T) {
	n := newNode(t)
	n.define("ns", "a", n.recorder("net-a", map[string]any{"ips": []string{"10.7.0.1/24", "2001:db8::7/64"}, "mac": "02:00:00:00:00:07"}))
	n.selects("p", "a")
	n.ok("ADD", pod("p"))
	r := n.reported(1)[0]
	var got []map[string]any
	must(t, json.Unmarshal(r.Status, &got))
	want := []map[string]any{
		{"name": "default", "interface": "eth0", "ips": []any{"10.1.0.5"}, "default": true},
		{"name": "ns/a", "interface": "net1", "ips": []any{"10.7.0.1", "2001:db8::7"}, "mac": "02:00:00:00:00:07", "default": false},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("status (-want +got):\n%s", d)
	}
	if r.Pod.Name != "p" || r.Pod.UID != "uid-p" || r.ContainerID != "c-p" {
		t.Errorf("report of %+v, container %s", r.Pod, r.ContainerID)
	}
	n.ok("DEL", pod("p"))
	n.reported(0)
}

// TestReportIsSentLater (N47): a report that the agent did not accept is sent by a later
// call, whatever its verb.
func TestReportIsSentLater(t *testing.T) {
	n := newNode(t)
	n.agent.refuse = true
	if o := n.ok("ADD", pod("p")); !strings.Contains(o.stderr, "not now") {
		t.Errorf("stderr %q; want that the agent was not told", o.stderr)
	}
	n.agent.mu.Lock()
	n.agent.refuse = false
	n.agent.mu.Unlock()
	n.ok("STATUS", sandboxOf{}) // too early: the ADD might be sending it
	n.reported(0)
	old := time.Now().Add(-time.Minute)
	marks, err := os.ReadDir(n.path("state", "unsent"))
	must(t, err)
	must(t, os.Chtimes(n.path("state", "unsent", marks[0].Name()), old, old))
	n.ok("STATUS", sandboxOf{})
	if r := n.reported(1)[0]; r.Pod.Name != "p" {
		t.Errorf("reported %+v", r)
	}
	n.ok("STATUS", sandboxOf{})
	n.reported(0)
	n.ok("DEL", pod("p"))
	n.clean()
}

// TestHelpByHand: run without an environment, the program says what it is.
func TestHelpByHand(t *testing.T) {
	n := newNode(t)
	cmd := n.command(t.Context(), "", sandboxOf{})
	cmd.Env = []string{}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "CNI meta-plugin tenure-attach") || !strings.Contains(string(out), "1.1.0") {
		t.Errorf("%v: %s", err, out)
	}
	var v struct {
		SupportedVersions []string `json:"supportedVersions"`
	}
	must(t, json.Unmarshal([]byte(n.ok("VERSION", sandboxOf{}).stdout), &v))
	if want := []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}; !slices.Equal(v.SupportedVersions, want) {
		t.Errorf("VERSION: %v; want %v", v.SupportedVersions, want)
	}
}

// TestFaultsOfTheConfiguration (C16).
func TestFaultsOfTheConfiguration(t *testing.T) {
	n := newNode(t)
	for _, tt := range []struct {
		key   string
		value any
		says  string
		code  uint
	}{
		{"nonsense", 17, "nonsense: not supported (17)", 2},
		{"namespaceIsoltion", "true", `namespaceIsoltion: not supported ("true")`, 2},
		{"auxiliaryCNIChainName", "chain", `auxiliaryCNIChainName: not supported ("chain")`, 2},
		{"stateDir", "relative", `stateDir: "relative"`, 7},
		{"isolation", "maybe", `isolation: "maybe"`, 7},
	} {
		for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
			s := pod("p")
			s.config = map[string]any{tt.key: tt.value, "cniVersion": version}
			if f := n.fails("ADD", s, tt.says); f.Code != tt.code || f.CNIVersion != version {
				t.Errorf("%s in CNI %s: %+v; want code %d in that version", tt.key, version, f, tt.code)
			}
		}
	}
	// An error that comes before the configuration is read is in its version too, and names the
	// variable that is wrong.
	s := pod("p")
	s.config = map[string]any{"cniVersion": "0.4.0"}
	for name, value := range map[string]string{"CNI_CONTAINERID": "a b", "CNI_IFNAME": "a/b", "CNI_ARGS": "rubbish", "CNI_COMMAND": "EAT"} {
		s.env = []string{name + "=" + value}
		if f := n.fails("ADD", s, name); f.Code != 4 || f.CNIVersion != "0.4.0" {
			t.Errorf("%s=%s: %+v; want code 4 in 0.4.0", name, value, f)
		}
	}
	// What is wrong with the configuration does not keep a DEL from its journal.
	n.ok("ADD", pod("p"))
	s = pod("p")
	s.config = map[string]any{"nonsense": 1}
	n.ok("DEL", s)
	n.called("ADD default eth0", "DEL default eth0")
	n.clean()
}

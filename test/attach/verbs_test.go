package attach_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// three gives the node three more networks, a, b and c of namespace ns, with
// instructions for each.
func (n *node) three(a, b, c map[string]any) {
	n.t.Helper()
	for name, instructions := range map[string]map[string]any{"a": a, "b": b, "c": c} {
		n.define("ns", name, n.recorder("net-"+name, instructions))
	}
}

// TestStepsRunInOrderOneAfterTheOther (N67, N76, D2).
func TestStepsRunInOrderOneAfterTheOther(t *testing.T) {
	n := newNode(t)
	n.three(map[string]any{"millis": 20}, map[string]any{"millis": 20}, nil)
	n.selects("p", "a,b,c")
	n.ok("ADD", pod("p"))
	calls := n.called("ADD default eth0", "ADD net-a net1", "ADD net-b net2", "ADD net-c net3")
	n.ok("CHECK", pod("p"))
	calls = append(calls, n.called("CHECK default eth0", "CHECK net-a net1", "CHECK net-b net2", "CHECK net-c net3")...)
	n.ok("DEL", pod("p"))
	calls = append(calls, n.called("DEL net-c net3", "DEL net-b net2", "DEL net-a net1", "DEL default eth0")...)
	for i := range calls[1:] {
		if calls[i].End > calls[i+1].Begin {
			t.Errorf("%s was running when %s began", calls[i].id(), calls[i+1].id())
		}
	}
	n.clean()
}

// TestFailedAddIsUndoneAtOnce (N74, D5).
func TestFailedAddIsUndoneAtOnce(t *testing.T) {
	n := newNode(t)
	n.three(nil, map[string]any{"fail": map[string]any{"ADD": map[string]any{"code": 11, "msg": "no room"}}}, nil)
	n.selects("p", "a,b,c")
	f := n.fails("ADD", pod("p"), "network ns/b", "net2", "no room")
	if f.Code != 11 {
		t.Errorf("code %d; want the delegate's, 11", f.Code)
	}
	n.called("ADD default eth0", "ADD net-a net1", "ADD net-b net2", "DEL net-b net2", "DEL net-a net1", "DEL default eth0")
	n.ok("DEL", pod("p"))
	n.called()
	n.clean()
}

// TestFailureOfTheDefaultNetwork (N74).
func TestFailureOfTheDefaultNetwork(t *testing.T) {
	n := newNode(t)
	n.config["defaultNetwork"] = n.recorder("default", map[string]any{"fail": map[string]any{"ADD": map[string]any{"code": 100, "msg": "broken"}}})
	n.three(nil, nil, nil)
	n.selects("p", "a")
	n.fails("ADD", pod("p"), "default network default on eth0", "broken")
	n.called("ADD default eth0", "DEL default eth0")
	n.ok("DEL", pod("p"))
	n.called()
	n.clean()
}

// TestUndoThatFails (N74): what cannot be undone at once is left to the DEL, which
// has that alone.
func TestUndoThatFails(t *testing.T) {
	n := newNode(t)
	gate := n.path("gate")
	must(t, os.WriteFile(gate, nil, 0o600))
	n.three(map[string]any{"fail": map[string]any{"DEL": map[string]any{"code": 5, "msg": "stuck", "file": gate}}},
		map[string]any{"fail": map[string]any{"ADD": map[string]any{"code": 100, "msg": "broken"}}}, nil)
	n.selects("p", "a,b")
	n.fails("ADD", pod("p"), "broken", "undoing it failed", "stuck")
	n.called("ADD default eth0", "ADD net-a net1", "ADD net-b net2", "DEL net-b net2", "DEL net-a net1", "DEL default eth0")
	n.fails("DEL", pod("p"), "stuck")
	n.called("DEL net-a net1")
	must(t, os.Remove(gate))
	n.ok("DEL", pod("p"))
	n.called("DEL net-a net1")
	n.clean()
}

// TestDelGoesOnPastFailuresAndReportsThemAll (N75, D1).
func TestDelGoesOnPastFailuresAndReportsThemAll(t *testing.T) {
	n := newNode(t)
	gate := n.path("gate")
	must(t, os.WriteFile(gate, nil, 0o600))
	stuck := func(msg string) map[string]any {
		return map[string]any{"fail": map[string]any{"DEL": map[string]any{"code": 5, "msg": msg, "file": gate}}}
	}
	n.three(stuck("stuck-a"), nil, stuck("stuck-c"))
	n.selects("p", "a,b,c")
	n.ok("ADD", pod("p"))
	n.records()
	n.fails("DEL", pod("p"), "stuck-a", "stuck-c")
	n.called("DEL net-c net3", "DEL net-b net2", "DEL net-a net1", "DEL default eth0")
	must(t, os.Remove(gate))
	n.ok("DEL", pod("p"))
	n.called("DEL net-c net3", "DEL net-a net1")
	n.clean()
	for range 2 { // repeated, and of a container that nobody knows
		n.ok("DEL", pod("p"))
	}
	n.ok("DEL", pod("other"))
	n.called()
}

// TestDelNeedsNobody (N45, N75): not the pod, the definition, the agent, the network
// namespace, nor the configuration that the ADD had.
func TestDelNeedsNobody(t *testing.T) {
	n := newNode(t)
	able := n.plugin(map[string]any{"ips": []string{"10.2.2.42/24"}})
	able["capabilities"] = map[string]bool{"ips": true}
	n.define("ns", "a", map[string]any{"cniVersion": "1.1.0", "name": "net-a", "plugins": []any{able}})
	n.selects("p", `[{"name":"a","cni-args":{"org.x/k":"v"},"ips":["10.2.2.42"]}]`)
	n.ok("ADD", pod("p"))
	adds := n.called("ADD default eth0", "ADD net-a net1")
	if adds[1].at("runtimeConfig", "ips") == nil {
		t.Errorf("%s: %v; want runtimeConfig.ips", adds[1].id(), adds[1].Stdin)
	}
	n.selects("p", "other")
	n.stop()
	n.define("ns", "a", n.recorder("other", nil))
	n.config["defaultNetwork"] = n.recorder("elsewhere", nil)
	s := pod("p")
	s.netns, s.args = "none", "K8S_POD_NAMESPACE=x;K8S_POD_NAME=y"
	n.ok("DEL", s)
	dels := n.called("DEL net-a net1", "DEL default eth0")
	for i, del := range dels {
		add := adds[1-i]
		for _, name := range []string{"CNI_CONTAINERID", "CNI_IFNAME", "CNI_ARGS"} {
			if del.Env[name] != add.Env[name] {
				t.Errorf("%s: %s is %q, and was %q in the ADD", del.id(), name, del.Env[name], add.Env[name])
			}
		}
		if del.Env["CNI_NETNS"] != "" {
			t.Errorf("%s: CNI_NETNS is %q; want none", del.id(), del.Env["CNI_NETNS"])
		}
		delete(del.Stdin, "prevResult")
		if d := cmp.Diff(add.Stdin, del.Stdin); d != "" {
			t.Errorf("%s: configuration (-ADD +DEL):\n%s", del.id(), d)
		}
	}
	n.clean()
}

// TestChainedPluginsAndFinalResult (D2, D3, D4, N45): CHECK and DEL of every plugin of a list get
// the list's final result.
func TestChainedPluginsAndFinalResult(t *testing.T) {
	n := newNode(t)
	chain := map[string]any{"cniVersion": "1.0.0", "name": "net-a", "plugins": []any{
		n.plugin(map[string]any{"ips": []string{"10.9.0.4/24"}}), n.plugin(map[string]any{"tag": "second"}),
	}}
	n.define("ns", "a", chain)
	n.selects("p", "a")
	n.ok("ADD", pod("p"))
	calls := n.called("ADD default eth0", "ADD net-a net1", "ADD net-a net1")
	if calls[1].at("prevResult") != nil || calls[2].at("prevResult") == nil {
		t.Errorf("prevResult: first plugin %v, second %v; want none, and the first one's", calls[1].at("prevResult"), calls[2].at("prevResult"))
	}
	if calls[1].at("recorder", "tag") != nil || calls[2].at("recorder", "tag") != "second" {
		t.Errorf("the plugins of the list were not called in its order")
	}
	final := calls[2].at("prevResult")
	n.ok("CHECK", pod("p"))
	expectFinal(t, n.called("CHECK default eth0", "CHECK net-a net1", "CHECK net-a net1")[1:], []any{nil, "second"}, final)
	n.ok("DEL", pod("p"))
	expectFinal(t, n.called("DEL net-a net1", "DEL net-a net1", "DEL default eth0")[:2], []any{"second", nil}, final)
}

func expectFinal(t *testing.T, calls []record, tags []any, final any) {
	t.Helper()
	for i, c := range calls {
		if c.at("recorder", "tag") != tags[i] {
			t.Errorf("%s: plugin %v at place %d; want %v", c.id(), c.at("recorder", "tag"), i, tags[i])
		}
		if d := cmp.Diff(final, c.at("prevResult")); d != "" {
			t.Errorf("%s: prevResult (-want +got):\n%s", c.id(), d)
		}
		if c.at("name") != "net-a" || c.at("cniVersion") != "1.0.0" {
			t.Errorf("%s: name %v, cniVersion %v; want the list's", c.id(), c.at("name"), c.at("cniVersion"))
		}
	}
}

// TestResultOfThePluginsBefore (N68, D3): an ADD that has the result of plugins which the runtime
// has called before answers that and the default network's. The default network's plugins, which
// begin a chain of their own, do not get it, and no other verb needs it.
func TestResultOfThePluginsBefore(t *testing.T) {
	n := newNode(t)
	n.config["defaultNetwork"] = n.recorder("default", map[string]any{"ips": []string{"10.1.0.5/24"}, "mac": "02:00:00:00:00:05"})
	n.define("ns", "a", n.recorder("net-a", map[string]any{"ips": []string{"10.7.0.1/24"}}))
	n.selects("p", "a")
	s := pod("p")
	n.config["cniVersion"] = "1.0.0"
	s.config = map[string]any{"prevResult": map[string]any{ // without a version: it is that of the configuration
		"interfaces": []any{map[string]any{"name": "host7"}, map[string]any{"name": "dum0", "sandbox": "/run/netns/p"}},
		"ips":        []any{map[string]any{"interface": 1, "address": "192.0.2.7/32"}},
		"routes":     []any{map[string]any{"dst": "198.51.100.0/24"}},
		"dns":        map[string]any{"nameservers": []any{"192.0.2.53"}},
	}}
	var got, want any
	must(t, json.Unmarshal([]byte(n.ok("ADD", s).stdout), &got))
	must(t, json.Unmarshal([]byte(`{
		"cniVersion": "1.0.0",
		"interfaces": [{"name": "host7"}, {"name": "dum0", "sandbox": "/run/netns/p"}, {"name": "eth0", "mac": "02:00:00:00:00:05", "sandbox": "/run/netns/p"}],
		"ips": [{"interface": 1, "address": "192.0.2.7/32"}, {"interface": 2, "address": "10.1.0.5/24"}],
		"routes": [{"dst": "198.51.100.0/24"}],
		"dns": {"nameservers": ["192.0.2.53"]}
	}`), &want))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the answer (-want +got):\n%s", diff)
	}
	for _, r := range n.called("ADD default eth0", "ADD net-a net1") {
		if prev := r.at("prevResult"); prev != nil {
			t.Errorf("%s: prevResult %v; want none", r.id(), prev)
		}
	}
	s.config["prevResult"] = got
	n.ok("CHECK", s)
	for _, r := range n.called("CHECK default eth0", "CHECK net-a net1") {
		if ips, _ := r.at("prevResult", "ips").([]any); len(ips) != 1 {
			t.Errorf("%s: prevResult.ips %v; want its own address", r.id(), ips)
		}
	}
	for _, unreadable := range []any{"a text", map[string]any{"cniVersion": "1.0.0", "ips": []any{nil}}, map[string]any{"cniVersion": "9.0.0"}} {
		q := pod("q")
		q.config = map[string]any{"prevResult": unreadable}
		if f := n.fails("ADD", q, "prevResult"); f.Code != 7 {
			t.Errorf("prevResult %v: code %d; want 7", unreadable, f.Code)
		}
		n.called() // no plugin
		n.ok("DEL", q)
		s.config["prevResult"] = unreadable
	}
	n.ok("DEL", s)
	n.called("DEL net-a net1", "DEL default eth0")
	n.clean()
}

// TestResultInTheRuntimesVersion (N68, D12, D13) has the default network speak every version of
// CNI, and the runtime every one as well: it gets the default network's result in its own.
func TestResultInTheRuntimesVersion(t *testing.T) {
	versions := []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}
	n := newNode(t)
	n.define("ns", "a", n.recorder("net-a", map[string]any{"ips": []string{"10.7.0.1/24"}}))
	n.selects("p", "a")
	for _, inner := range versions {
		network := n.recorder("default", map[string]any{"ips": []string{"10.1.0.5/24"}, "mac": "02:00:00:00:00:05"})
		network["cniVersion"] = inner
		n.config["defaultNetwork"] = network
		for _, outer := range versions {
			n.config["cniVersion"] = outer
			o := n.ok("ADD", pod("p"))
			for _, c := range n.called("ADD default eth0", "ADD net-a net1") {
				if want := map[any]string{"default": inner, "net-a": "1.1.0"}[c.at("name")]; c.at("cniVersion") != want {
					t.Errorf("%s, in a runtime's %s: cniVersion %v; want its own, %s", c.id(), outer, c.at("cniVersion"), want)
				}
			}
			var got map[string]any
			must(t, json.Unmarshal([]byte(o.stdout), &got))
			if got["cniVersion"] != outer || !strings.Contains(o.stdout, `"10.1.0.5/24"`) || strings.Contains(o.stdout, "10.7.0.1") {
				t.Errorf("default network in %s, runtime in %s: %s; want the default network's address in the runtime's version", inner, outer, o.stdout)
			}
			for key, since := range map[string]string{"ip4": "", "ips": "0.3.0"} {
				if _, ok := got[key]; ok != (outer < "0.3.0" == (since == "")) {
					t.Errorf("default network in %s, runtime in %s: has %s: %v", inner, outer, key, ok)
				}
			}
			n.ok("DEL", pod("p"))
			dels := n.called("DEL net-a net1", "DEL default eth0")
			if prev, old := dels[1].at("prevResult"), inner < "0.4.0"; old != (prev == nil) || !old && dels[1].at("prevResult", "cniVersion") != inner {
				t.Errorf("DEL of the default network in %s: prevResult %v; want it in that version from 0.4.0 on", inner, prev)
			}
		}
	}
	n.clean()
}

// TestNetworksWithoutCheckArePassedOver (D8, D11).
func TestNetworksWithoutCheckArePassedOver(t *testing.T) {
	n := newNode(t)
	old := n.recorder("net-a", nil)
	old["cniVersion"] = "0.3.1"
	n.define("ns", "a", old)
	disabled := n.recorder("net-b", nil)
	disabled["disableCheck"] = true
	n.define("ns", "b", disabled)
	n.define("ns", "c", n.recorder("net-c", map[string]any{"fail": map[string]any{"CHECK": map[string]any{"code": 100, "msg": "gone"}}}))
	n.selects("p", "a,b,c")
	n.ok("ADD", pod("p"))
	n.records()
	n.fails("CHECK", pod("p"), "CHECK of network ns/c on net3", "gone")
	n.called("CHECK default eth0", "CHECK net-c net3")
	n.fails("CHECK", pod("other"), "no journal")
	n.ok("DEL", pod("p"))
}

// TestNoErrorSaysThatThereIsNothingToCleanUp (C16, D9): by code 3 a runtime need not clean up. A
// CHECK does not answer it where a DEL undoes something, be it that the journal is lost or that the
// runtime attached the container before it had the meta-plugin. Nor is it passed on of a plugin,
// which knows no other network.
func TestNoErrorSaysThatThereIsNothingToCleanUp(t *testing.T) {
	n := newNode(t)
	says := func(verb string, s sandboxOf, text string) {
		t.Helper()
		if f := n.fails(verb, s, text); f.Code == 3 {
			t.Errorf("%s of %s: code 3 (%s)", verb, s.pod, f.Msg)
		}
	}
	n.ok("ADD", pod("p"))
	must(t, os.Remove(n.journals()[0]))
	n.records()
	says("CHECK", pod("p"), "no journal")
	n.ok("DEL", pod("p"))
	n.called("DEL default eth0")

	n.keepResult("earlier", "c-q", n.recorder("earlier", nil))
	says("CHECK", pod("q"), "no journal")
	n.ok("DEL", pod("q"))
	n.called("DEL earlier eth0")

	unknown := map[string]any{"code": 3, "msg": "never heard of it"}
	n.three(map[string]any{"fail": map[string]any{"CHECK": unknown, "DEL": unknown}}, map[string]any{"fail": map[string]any{"ADD": unknown}}, nil)
	n.selects("r", "a")
	n.ok("ADD", pod("r"))
	says("CHECK", pod("r"), "never heard of it")
	says("DEL", pod("r"), "never heard of it")
	n.selects("s", "a,b")
	says("ADD", pod("s"), "undoing it failed")
}

// TestHighestVersionThatIsKnown (D6).
func TestHighestVersionThatIsKnown(t *testing.T) {
	n := newNode(t)
	list := n.recorder("net-a", nil)
	list["cniVersion"], list["cniVersions"] = "0.4.0", []string{"0.3.1", "1.0.0", "1.1.0", "2.0.0"}
	n.define("ns", "a", list)
	n.selects("p", "a")
	n.ok("ADD", pod("p"))
	if c := n.called("ADD default eth0", "ADD net-a net1")[1]; c.at("cniVersion") != "1.1.0" {
		t.Errorf("cniVersion %v; want 1.1.0", c.at("cniVersion"))
	}
}

// TestPluginsFromADirectory (D7).
func TestPluginsFromADirectory(t *testing.T) {
	n := newNode(t)
	n.define("ns", "a", nil)
	n.selects("p", "a")
	n.onDisk("50-a.conflist", map[string]any{"cniVersion": "1.1.0", "name": "a", "plugins": []any{n.plugin(map[string]any{"tag": "inline"})}})
	n.onDisk("a/20.conf", n.plugin(map[string]any{"tag": "20"}))
	n.onDisk("a/10.conf", n.plugin(map[string]any{"tag": "10"}))
	n.ok("ADD", pod("p"))
	calls := n.called("ADD default eth0", "ADD a net1", "ADD a net1", "ADD a net1")
	for i, want := range []string{"inline", "10", "20"} {
		if got := calls[i+1].at("recorder", "tag"); got != want {
			t.Errorf("plugin %d is %v; want %s", i, got, want)
		}
	}
	n.ok("DEL", pod("p"))
	n.called("DEL a net1", "DEL a net1", "DEL a net1", "DEL default eth0")

	n.onDisk("50-a.conflist", map[string]any{"cniVersion": "1.1.0", "name": "a", "loadOnlyInlinedPlugins": true, "plugins": []any{n.plugin(nil)}})
	n.ok("ADD", pod("p"))
	n.called("ADD default eth0", "ADD a net1")
	n.ok("DEL", pod("p"))
	n.records()

	n.onDisk("50-a.conflist", map[string]any{"cniVersion": "1.1.0", "name": "a", "loadOnlyInlinedPlugins": true})
	n.fails("ADD", pod("p"), "loadOnlyInlinedPlugins")
	must(t, os.RemoveAll(n.path("conf", "a")))
	n.onDisk("50-a.conflist", map[string]any{"cniVersion": "1.1.0", "name": "a"})
	n.fails("ADD", pod("p"), "50-a.conflist", "plugins")
	n.called()
}

// TestUnknownPluginIsAnError (D1): an ADD that lacks a plugin runs none, so that nothing is
// left which could not be undone.
func TestUnknownPluginIsAnError(t *testing.T) {
	n := newNode(t)
	n.define("ns", "a", map[string]any{"cniVersion": "1.1.0", "name": "net-a", "plugins": []any{n.plugin(nil), map[string]any{"type": "no-such-plugin"}}})
	n.selects("p", "a")
	n.fails("ADD", pod("p"), "ADD of network ns/a on net1", `failed to find plugin "no-such-plugin"`, "install it on the node")
	n.called()
	if left := n.journals(); len(left) > 0 {
		t.Errorf("journals %v; want none", left)
	}
	n.ok("DEL", pod("p"))
	n.called()
	n.clean()
}

// TestUnknownIPAMPluginIsAnError (D1): a plugin runs its IPAM plugin for DEL as well, and fails.
func TestUnknownIPAMPluginIsAnError(t *testing.T) {
	n := newNode(t)
	network := func(ipam any) map[string]any {
		p := n.plugin(nil)
		p["ipam"] = ipam
		return map[string]any{"cniVersion": "1.1.0", "name": "net-a", "plugins": []any{p}}
	}
	n.selects("p", "a")
	n.define("ns", "a", network(map[string]any{"type": "tenuer"}))
	n.fails("ADD", pod("p"), "ADD of network ns/a on net1", "ipam.type of plugin recorder", `failed to find plugin "tenuer"`, "install it on the node")
	if left := n.journals(); len(left) > 0 {
		t.Errorf("journals %v; want none", left)
	}
	n.ok("DEL", pod("p"))
	n.called()
	n.clean()
	for _, ipam := range []any{map[string]any{}, map[string]any{"type": ""}, map[string]any{"type": "host-local"}, map[string]any{"subnet": "10.0.0.0/8"}} {
		n.define("ns", "a", network(ipam))
		n.ok("ADD", pod("p"))
		n.ok("DEL", pod("p"))
	}
	n.clean()
}

// TestDefaultNetworkWithoutItsIPAMPlugin (D1): the plugin's DEL fails for want of it as well. That
// leaves nothing which no DEL could ever undo, since the ADD has run no IPAM plugin.
func TestDefaultNetworkWithoutItsIPAMPlugin(t *testing.T) {
	for _, tt := range []struct {
		name, ipam, del string
		left            int
	}{
		{"misspelt", "tenuer", `failed to find plugin "tenuer" in path [/opt/cni/bin]`, 0},
		{"misspelt, and its DEL fails for another cause", "tenuer", "broken", 1},
		{"it is there", "recorder", `failed to find plugin "recorder" in path [/opt/cni/bin]`, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			p := n.plugin(map[string]any{"fail": map[string]any{
				"ADD": map[string]any{"code": 999, "msg": "failed to find plugin \"" + tt.ipam + "\" in path [/opt/cni/bin]"}, "DEL": map[string]any{"code": 999, "msg": tt.del},
			}})
			p["ipam"] = map[string]any{"type": tt.ipam}
			n.config["defaultNetwork"] = map[string]any{"cniVersion": "1.1.0", "name": "default", "plugins": []any{p}}
			n.fails("ADD", pod("p"), "ADD of default network default on eth0", "failed to find plugin", tt.ipam)
			if left := n.journals(); len(left) != tt.left {
				t.Fatalf("journals %v; want %d", left, tt.left)
			}
			if tt.left == 0 {
				n.ok("DEL", pod("p"))
				n.clean()
			}
		})
	}
}

// TestDefaultNetworkWithAnIPAMThatIsNoProgram (D1), as some nodes' networks have it.
func TestDefaultNetworkWithAnIPAMThatIsNoProgram(t *testing.T) {
	n := newNode(t)
	p := n.plugin(map[string]any{"ips": []string{"10.1.0.5/24"}})
	p["ipam"] = map[string]any{"type": "azure-cns", "mode": "v4overlay"}
	n.config["defaultNetwork"] = map[string]any{"cniVersion": "1.1.0", "name": "default", "plugins": []any{p}}
	n.ok("ADD", pod("p"))
	n.ok("DEL", pod("p"))
	n.clean()
}

// TestPluginThatIsRemoved (D1): without its plugin an attachment cannot be undone, until that
// is back.
func TestPluginThatIsRemoved(t *testing.T) {
	n := newNode(t)
	last := n.plugin(nil)
	last["type"] = "passing"
	n.define("ns", "a", map[string]any{"cniVersion": "1.1.0", "name": "net-a", "plugins": []any{n.plugin(nil), last}})
	n.selects("p", "a")
	s := pod("p")
	s.config = map[string]any{"binDir": n.dir}
	program, passing := filepath.Join(pluginDirs[0], "recorder"), n.path("passing")
	must(t, os.Symlink(program, passing))
	n.ok("ADD", s)
	n.called("ADD default eth0", "ADD net-a net1", "ADD net-a net1")
	must(t, os.Remove(passing))
	n.fails("DEL", s, `failed to find plugin "passing"`)
	n.called("DEL default eth0")
	must(t, os.Symlink(program, passing))
	n.ok("DEL", s)
	n.called("DEL net-a net1", "DEL net-a net1")
	n.clean()
}

// TestPluginsAreLookedUpInTheRuntimesDirectoriesFirst (D1): in those of CNI_PATH in their order,
// and then in binDir. A plugin finds its own plugins in the same order: it gets CNI_PATH as the
// runtime has it, and binDir behind it if that is not among its directories.
func TestPluginsAreLookedUpInTheRuntimesDirectoriesFirst(t *testing.T) {
	n := newNode(t)
	dirs := map[string]string{}
	for _, name := range []string{"first", "second", "own"} {
		dirs[name] = n.path(name)
		must(t, os.Mkdir(dirs[name], 0o755))
	}
	install := func(dir, plugin string) {
		script := fmt.Sprintf("#!/bin/sh\necho %s $CNI_COMMAND >>%s\nexec %s\n", dir, n.path("which"), filepath.Join(pluginDirs[0], "recorder"))
		must(t, os.WriteFile(filepath.Join(dirs[dir], plugin), []byte(script), 0o700))
	}
	for _, dir := range []string{"first", "second", "own"} {
		install(dir, "everywhere")
	}
	install("second", "twice")
	install("own", "twice")
	install("own", "once")
	n.config["binDir"] = dirs["own"]
	for plugin, want := range map[string]string{"everywhere": "first", "twice": "second", "once": "own"} {
		network := n.plugin(nil)
		network["cniVersion"], network["name"], network["type"] = "1.1.0", "default", plugin
		n.config["defaultNetwork"] = network
		for cniPath, inherited := range map[string]string{
			dirs["first"] + ":" + dirs["second"]:                     dirs["first"] + ":" + dirs["second"] + ":" + dirs["own"],
			dirs["first"] + ":" + dirs["second"] + ":" + dirs["own"]: dirs["first"] + ":" + dirs["second"] + ":" + dirs["own"],
		} {
			s := pod("p")
			s.env = []string{"CNI_PATH=" + cniPath}
			n.ok("ADD", s)
			n.ok("CHECK", s)
			n.ok("DEL", s)
			for _, r := range n.called("ADD default eth0", "CHECK default eth0", "DEL default eth0") {
				if r.Env["CNI_PATH"] != inherited {
					t.Errorf("%s of %s: CNI_PATH is %q; want %q", r.Verb, plugin, r.Env["CNI_PATH"], inherited)
				}
			}
			got, err := os.ReadFile(n.path("which"))
			must(t, err)
			must(t, os.Remove(n.path("which")))
			if all := want + " ADD\n" + want + " CHECK\n" + want + " DEL\n"; string(got) != all {
				t.Errorf("%s was run from\n%s; want\n%s", plugin, got, all)
			}
		}
	}
	n.clean()
}

// TestErrorsAndStandardErrorOfDelegates (D9).
func TestErrorsAndStandardErrorOfDelegates(t *testing.T) {
	n := newNode(t)
	n.define("ns", "a", n.recorder("net-a", map[string]any{"stderr": "noise of a"}))
	n.define("ns", "b", n.recorder("net-b", map[string]any{"stderr": "last words", "fail": map[string]any{"ADD": map[string]any{"code": 107, "msg": "broken"}}}))
	n.selects("p", "a")
	if o := n.ok("ADD", pod("p")); !strings.Contains(o.stderr, "noise of a") {
		t.Errorf("stderr: %q; want the delegate's", o.stderr)
	}
	n.ok("DEL", pod("p"))
	n.selects("p", "b")
	o := n.call("ADD", pod("p"))
	if !strings.Contains(o.stderr, "last words") || !strings.Contains(o.stdout, `"code": 107`) {
		t.Errorf("a delegate that fails: %+v; want its standard error and its code", o)
	}
}

// TestAttachedTwice (D9): a second ADD without a DEL is an error and changes nothing.
func TestAttachedTwice(t *testing.T) {
	n := newNode(t)
	n.ok("ADD", pod("p"))
	n.called("ADD default eth0")
	n.fails("ADD", pod("p"), "attached already")
	n.called()
	n.ok("CHECK", pod("p"))
	n.ok("DEL", pod("p"))
}

// TestArgumentsAreHandedOn (D14).
func TestArgumentsAreHandedOn(t *testing.T) {
	n := newNode(t)
	n.define("ns", "a", n.recorder("net-a", nil))
	n.selects("p", "a")
	s := pod("p")
	s.args = "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p;K8S_POD_INFRA_CONTAINER_ID=c;K8S_POD_UID=u;X=a=b==;IP=10.1.0.9"
	n.ok("ADD", s)
	calls := n.called("ADD default eth0", "ADD net-a net1")
	if got, want := calls[0].Env["CNI_ARGS"], s.args+";IgnoreUnknown=1"; got != want {
		t.Errorf("default network: CNI_ARGS %q; want %q", got, want)
	}
	if got, want := calls[1].Env["CNI_ARGS"], "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p;K8S_POD_INFRA_CONTAINER_ID=c;K8S_POD_UID=u;X=a=b==;IgnoreUnknown=1"; got != want {
		t.Errorf("selected network: CNI_ARGS %q; want %q", got, want)
	}
	for args, text := range map[string]string{"K8S_POD_NAMESPACE=ns": "K8S_POD_NAME", "x": `"x" is not KEY=value`} {
		bad := pod("q")
		bad.args = args
		if f := n.fails("ADD", bad, text); f.Code != 4 {
			t.Errorf("CNI_ARGS %q: code %d; want 4", args, f.Code)
		}
	}
}

// TestListsVersionAndName (N73): every plugin of a list gets the list's version and
// name, whatever its own entry says.
func TestListsVersionAndName(t *testing.T) {
	n := newNode(t)
	entry := n.plugin(map[string]any{"ips": []string{"10.9.0.4/24"}})
	entry["cniVersion"], entry["name"] = "0.2.0", "entry"
	n.define("ns", "a", map[string]any{"cniVersion": "0.3.1", "name": "net-a", "plugins": []any{entry, n.plugin(nil)}})
	n.selects("p", "a")
	n.ok("ADD", pod("p"))
	calls := n.called("ADD default eth0", "ADD net-a net1", "ADD net-a net1")
	for _, c := range calls[1:] {
		if c.at("cniVersion") != "0.3.1" {
			t.Errorf("%s: cniVersion %v; want the list's", c.id(), c.at("cniVersion"))
		}
	}
	if got := calls[2].at("prevResult", "cniVersion"); got != "0.3.1" {
		t.Errorf("prevResult is of version %v; want the list's", got)
	}
}

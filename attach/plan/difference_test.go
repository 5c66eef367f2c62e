package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/attach/facts"
)

// takes declares all that an element may ask a plugin for.
const takes = `{"cniVersion": "1.0.0", "name": "%s", "plugins": [{"type": "macvlan", "capabilities": {"ips": true, "mac": true, "bandwidth": true, "deviceID": true}}]}`

func plugDefs() []facts.Definition {
	sriov := def("vf", fmt.Sprintf(takes, "vf"), "k8s.v1.cni.cncf.io/resourceName", "example.com/vf")
	sriov.Devices = []string{"0000:01", "0000:02"}
	return []facts.Definition{def("a", fmt.Sprintf(takes, "a")), def("b", fmt.Sprintf(takes, "b")), sriov, def("kube-system/extra", fmt.Sprintf(takes, "extra"))}
}

// shown is a change in short: interfaces that stay, and +new, *attached anew, -gone.
func shown(attached []Step, c Change) string {
	var all []string
	for _, s := range c.Steps {
		mark := ""
		switch {
		case s.Was < 0:
			mark = "+"
		case s.Anew:
			mark = "*"
		}
		all = append(all, mark+s.IfName)
	}
	for _, i := range c.Gone {
		all = append(all, "-"+attached[i].IfName)
	}
	return strings.Join(all, " ")
}

// TestDifference: what of a running pod comes, goes and stays when its annotation changes.
func TestDifference(t *testing.T) {
	for _, c := range []struct{ name, was, now, want string }{
		{"nothing", `a,b`, `a,b`, "eth0 net1 net2"},
		{"another form of the same", `a,shop/b`, `[{"name": "a"}, {"name": "b", "namespace": "shop"}]`, "eth0 net1 net2"},
		{"one more", `a`, `a,b`, "eth0 net1 +net2"},
		{"the first", ``, `a`, "eth0 +net1"},
		{"one less", `a,b`, `a`, "eth0 net1 -net2"},
		{"none any more", `a,b`, ``, "eth0 -net1 -net2"},
		{"a named one less", `[{"name": "a", "interface": "x"}, {"name": "b", "interface": "y"}]`, `[{"name": "b", "interface": "y"}]`, "eth0 y -x"},
		{"another order", `[{"name": "a", "interface": "x"}, {"name": "b", "interface": "y"}]`, `b@y,a@x`, "eth0 y x"},
		{"without a name it is known by its place", `a,b`, `b`, "eth0 *net1 -net2"},
		{"another network by the same name", `a@x`, `b@x`, "eth0 *x"},
		{"another name", `a@x`, `a@y`, "eth0 +y -x"},
		{"other addresses", `[{"name": "a", "ips": ["10.0.0.1"]}]`, `[{"name": "a", "ips": ["10.0.0.2"]}]`, "eth0 *net1"},
		{"another hardware address", `[{"name": "a", "mac": "02:00:00:00:00:01"}]`, `[{"name": "a", "mac": "02:00:00:00:00:02"}]`, "eth0 *net1"},
		{"another claim", `[{"name": "a", "ipam-claim-reference": "x"}]`, `[{"name": "a", "ipam-claim-reference": "y"}]`, "eth0 *net1"},
		{"another bandwidth", `[{"name": "a", "bandwidth": {"ingressRate": 8, "ingressBurst": 8}}]`, `[{"name": "a"}]`, "eth0 *net1"},
		{"other arguments", `[{"name": "a", "cni-args": {"k": 1}}]`, `[{"name": "a", "cni-args": {"k": 2}}]`, "eth0 *net1"},
		{"no arguments any more", `[{"name": "a", "cni-args": {"k": 1}}]`, `a`, "eth0 *net1"},
		{"the same arguments", `[{"name": "a", "cni-args": {"k": [1,2]}}]`, `[{"cni-args": {"k": [1, 2]}, "name": "a"}]`, "eth0 net1"},
		{"a second device", `vf`, `vf,vf`, "eth0 net1 +net2"},
		{"default-route that stays", `[{"name": "a", "default-route": ["10.0.0.1"]}]`, `[{"name": "a", "default-route": ["10.0.0.1"]}, {"name": "b"}]`, "eth0 net1 +net2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			was := scene{networks: c.was, defs: plugDefs()}.plan(t)
			change, err := Difference(was.Steps, scene{networks: c.now, defs: plugDefs()}.plan(t))
			if err != nil {
				t.Fatal(err)
			}
			if got := shown(was.Steps, change); got != c.want {
				t.Errorf("got %s; want %s", got, c.want)
			}
			if change.None() != !strings.ContainsAny(c.want, "+*-") {
				t.Errorf("None is %t", change.None())
			}
		})
	}
}

// TestDifferenceByArguments: where CNI_ARGS ask a network for addresses and a MAC, an element that
// asks for others is another one. Whether the network declares the capability by now does not
// matter.
func TestDifferenceByArguments(t *testing.T) {
	const keys = `"missingCapability": "CNIArgs"`
	defs, declares := []facts.Definition{def("a", bridge("a"))}, []facts.Definition{def("a", bridge("a", "ips", "mac"))}
	asks := func(ip, mac string) string {
		return fmt.Sprintf(`[{"name": "a", "ips": [%q, "fd00::5/64"], "mac": "02:00:00:00:00:%s"}]`, ip, mac)
	}
	was := scene{networks: asks("10.0.0.5/24", "01"), defs: defs, keys: keys}.plan(t)
	for now, want := range map[string]string{
		asks("10.0.0.5/24", "01"): "eth0 net1",
		asks("10.0.0.6/24", "01"): "eth0 *net1",
		asks("10.0.0.5/16", "01"): "eth0 *net1",
		asks("10.0.0.5/24", "02"): "eth0 *net1",
		"a":                       "eth0 *net1",
	} {
		for _, d := range [][]facts.Definition{defs, declares} {
			c, err := Difference(was.Steps, scene{networks: now, defs: d, keys: keys}.plan(t))
			if got := shown(was.Steps, c); err != nil || got != want {
				t.Errorf("%s: got %s, %v; want %s", now, got, err, want)
			}
		}
	}
}

// TestDifferenceLeavesAlone: a running pod keeps what did not come from its annotation, and the
// configurations that its attachments were made by.
func TestDifferenceLeavesAlone(t *testing.T) {
	was := scene{networks: "a", defs: plugDefs(), keys: `"defaultNetworks": ["extra"]`}.plan(t)
	edited := plugDefs()
	other := strings.ReplaceAll(*edited[0].Config, "macvlan", "ipvlan")
	edited[0].Config = &other
	for name, now := range map[string]Plan{
		"a definition has another configuration":          scene{networks: "a", defs: edited, keys: `"defaultNetworks": ["extra"]`}.plan(t),
		"the plugin's configuration adds no network":      scene{networks: "a", defs: plugDefs()}.plan(t),
		"the plugin's configuration adds another network": scene{networks: "a", defs: plugDefs(), keys: `"defaultNetworks": ["extra", "extra"]`}.plan(t),
	} {
		c, err := Difference(was.Steps, now)
		if err != nil || !c.None() || shown(was.Steps, c) != "eth0 net2 net1" {
			t.Errorf("%s: %s, %v; want that all stays", name, shown(was.Steps, c), err)
		}
		for _, s := range c.Steps {
			if !slices.ContainsFunc(was.Steps, func(w Step) bool { return string(w.List) == string(s.List) }) {
				t.Errorf("%s: %s has another configuration than it was attached by", name, s.IfName)
			}
		}
	}
}

// TestDifferenceOfOldJournals: a journal of an earlier version has no cni-args of its own.
func TestDifferenceOfOldJournals(t *testing.T) {
	s := scene{networks: `[{"name": "a", "cni-args": {"k": 1}}]`, defs: plugDefs()}
	was := s.plan(t)
	was.Steps[1].CNIArgs = nil
	if c, err := Difference(was.Steps, s.plan(t)); err != nil || !c.None() {
		t.Errorf("%s, %v; want that all stays", shown(was.Steps, c), err)
	}
	s.networks = `[{"name": "a", "cni-args": {"k": 2}}]`
	if c, err := Difference(was.Steps, s.plan(t)); err != nil || shown(was.Steps, c) != "eth0 *net1" {
		t.Errorf("%s, %v; want that it is attached anew", shown(was.Steps, c), err)
	}
}

// TestDifferenceIsRefused: what a running pod cannot have, or lose.
func TestDifferenceIsRefused(t *testing.T) {
	claimed := func(p Plan, ifName string) Plan {
		p.Steps = append(p.Steps, Step{Name: "shop/v", IfName: ifName, Args: []Arg{{Key: argClaim, Value: "c"}}})
		return p
	}
	of := func(networks, keys string) Plan {
		return scene{networks: networks, defs: plugDefs(), keys: keys}.plan(t)
	}
	listed := of("a", "")
	listed.Steps[1].PodNetwork = "red"
	for _, c := range []struct {
		name     string
		was, now Plan
		want     []string
	}{
		{"a route for eth0's", of("a", ""), of(`[{"name": "a"}, {"name": "b", "default-route": ["10.0.0.1"]}]`, ""), []string{"net2", "default-route"}},
		{"a route less", of(`[{"name": "a", "default-route": ["10.0.0.1"]}]`, ""), of("", ""), []string{"net1", "default-route", "detached"}},
		{"a route changed", of(`[{"name": "a", "default-route": ["10.0.0.1"]}]`, ""), of("a", ""), []string{"net1", "default-route"}},
		{"a name that an added network has", of("a", `"defaultNetworks": ["extra"]`), of("a,b", `"defaultNetworks": ["extra"]`), []string{"interface net2", "already", "kube-system/extra"}},
		{"a device that is in use", of("vf@x", ""), of("vf@y,vf@x", ""), []string{"interface y", "0000:01", "append"}},
		{"a VIF more", of("", ""), claimed(of("", ""), "v1"), []string{"v1", "control plane"}},
		{"a VIF less", claimed(of("", ""), "v1"), of("", ""), []string{"v1", "control plane"}},
		{"a PodNetwork less", listed, of("", ""), []string{"net1", "control plane"}},
	} {
		change, err := Difference(c.was.Steps, c.now)
		if err == nil {
			t.Errorf("%s: %s; want an error", c.name, shown(c.was.Steps, change))
			continue
		}
		for _, text := range append(c.want, "pod shop/web: ") {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v; want %q in it", c.name, err, text)
			}
		}
	}
}

package plan

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/attach/facts"
)

// network is what an agent says of a PodNetwork that has the definition infra/NAME.
func network(name string) facts.PodNetwork {
	return facts.PodNetwork{Name: name, Definition: facts.Ref{Namespace: "infra", Name: name}}
}

// lists is a pod that lists PodNetworks a and b, and the default one.
func lists(list string, judged ...facts.PodNetwork) scene {
	return scene{podNetworks: list, judged: judged, defs: []facts.Definition{def("infra/a", bridge("a")), def("infra/b", bridge("b")), def("x", bridge("x"))}}
}

// TestPodNetworks (W1): elements become steps after all others, under the names of their
// PodNetworks; isolation of definitions does not concern them.
func TestPodNetworks(t *testing.T) {
	s := lists(`[{"podNetworkName": "default"}, {"podNetworkName": "a"}, {"podNetworkAttachmentName": "mine", "interfaceName": "net2"}]`,
		facts.PodNetwork{Name: "default"}, network("a"), network("b"))
	s.networks = "x"
	p := s.plan(t)
	sameStrings(t, attachments(p), "cluster=eth0", "shop/x=net1", "a=net3", "b=net2")
	for i, want := range []string{"default", "", "a", "b"} {
		if got := p.Steps[i].PodNetwork; got != want {
			t.Errorf("step %d is of PodNetwork %q; want %q", i, got, want)
		}
	}
	if len(p.Warnings) > 0 {
		t.Errorf("warnings %v; want none", p.Warnings)
	}
	if args := joinArgs(p.Steps[2].Args); !strings.Contains(args, argUnselected+"=1") {
		t.Errorf("CNI_ARGS are %s; want that no element of the NPWG annotation selects the interface", args)
	}
}

// TestExtraNetworksLeaveNamesToPodNetworks: a network that every pod gets does not take the name
// that an element asks for.
func TestExtraNetworksLeaveNamesToPodNetworks(t *testing.T) {
	s := lists(`[{"podNetworkName": "a", "interfaceName": "net1"}, {"podNetworkName": "default"}]`, network("a"), facts.PodNetwork{Name: "default"})
	s.keys = `"defaultNetworks": ["one"]`
	s.defs = append(s.defs, def("kube-system/one", bridge("one")))
	sameStrings(t, attachments(s.plan(t)), "cluster=eth0", "kube-system/one=net2", "a=net1")
}

// TestDefaultPodNetworkIsAlwaysThere (W1, W3).
func TestDefaultPodNetworkIsAlwaysThere(t *testing.T) {
	p := lists(`[{"podNetworkName": "a"}]`, network("a")).plan(t)
	sameStrings(t, attachments(p), "cluster=eth0", "a=net1")
	if len(p.Warnings) != 1 || p.Warnings[0].Reason != ReasonUnlisted {
		t.Errorf("warnings %v; want one of %s", p.Warnings, ReasonUnlisted)
	}
	if p := lists("").plan(t); p.Steps[0].PodNetwork != "" {
		t.Errorf("a pod that lists nothing has %q; want no PodNetwork", p.Steps[0].PodNetwork)
	}
}

// TestMissing: of a network without a step, name and interface are shown all the same.
func TestMissing(t *testing.T) {
	s := lists(`[{"podNetworkName": "a"}, {"podNetworkName": "b"}, {"podNetworkName": "default"}]`,
		facts.PodNetwork{Name: "a", Refused: "PodNetwork a does not exist", Later: true}, network("none"), facts.PodNetwork{Name: "default", Refused: "x"})
	s.networks, s.vifs = "x,nothing,v", []facts.VIF{{Element: 2, Interface: "eth7", Refused: "x"}}
	s.defs = append(s.defs, def("v", ""))
	p, err := s.make(t)
	if err == nil {
		t.Fatal("there is a plan")
	}
	sameStrings(t, attachments(p), "cluster=eth0", "shop/x=net1")
	sameStrings(t, attachments(Plan{Steps: p.Missing}), "shop/nothing=net2", "shop/v=eth7", "a=net3", "none=net4")
}

// TestPodNetworksOff (W7): the annotation has no effect but a warning.
func TestPodNetworksOff(t *testing.T) {
	s := lists(`[{"podNetworkName": "a"}]`)
	s.off = true
	p := s.plan(t)
	sameStrings(t, attachments(p), "cluster=eth0")
	if len(p.Warnings) != 1 || p.Warnings[0].Reason != ReasonNoPodNetworks {
		t.Errorf("warnings %v; want one of %s", p.Warnings, ReasonNoPodNetworks)
	}
}

// TestPodNetworksRefused (W2, W4): what may pass is told from what may not, and both are said.
func TestPodNetworksRefused(t *testing.T) {
	refused := func(why string, later bool) facts.PodNetwork {
		return facts.PodNetwork{Name: "a", Refused: why, Later: later}
	}
	two := `[{"podNetworkName": "a"}, {"podNetworkName": "b"}]`
	tests := []struct {
		name  string
		scene scene
		want  string
		later bool
	}{
		{"not there yet", lists(two, refused("PodNetwork a does not exist", true), network("b")), "element 1 of tenure.dev/pod-networks: PodNetwork a does not exist", true},
		{"may not", lists(two, refused("namespace shop may not use PodNetwork a", false), network("b")), "namespace shop may not use PodNetwork a", false},
		{"one of each", lists(two, refused("x", true), refused("y", false)), "x", false},
		{"its definition is not there yet", lists(two, network("c"), network("b")), "network c: does not exist", true},
		{"a definition of an earlier network", lists(two, facts.PodNetwork{Name: "a", Definition: network("a").Definition, MadeFor: "u2"}, network("b")), "definition infra/a was made for another object", true},
		{"invalid", lists(`[{"podNetworkName": "a", "podNetworkAttachmentName": "b"}]`), "annotation tenure.dev/pod-networks: invalid: element 1: it has podNetworkName and podNetworkAttachmentName", false},
		{"an interface that an NPWG element has", func() scene {
			s := lists(`[{"podNetworkName": "a", "interfaceName": "net1"}]`, network("a"))
			s.networks = "x"
			return s
		}(), "interface net1 is already that of element 1", false},
		{"default-route beside a gateway flag", func() scene {
			s := lists(`[{"podNetworkName": "a", "isDefaultGW4": true}]`, network("a"))
			s.networks = `[{"name": "x", "default-route": []}]`
			return s
		}(), "a network has default-route, and a PodNetwork isDefaultGW4 or isDefaultGW6", false},
		{"an agent of another version", lists(two, network("a")), "the agent says something of 1 PodNetworks, and the list has 2", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.scene.fails(t, tt.want)
			if _, err := tt.scene.make(t); MayPass(err) != tt.later {
				t.Errorf("%v: it may pass: %t; want %t", err, MayPass(err), tt.later)
			}
		})
	}
}

// TestPodNetworkOfAnotherProvider (P7) is left to it, and so is the name of its interface.
func TestPodNetworkOfAnotherProvider(t *testing.T) {
	p := lists(`[{"podNetworkName": "theirs"}, {"podNetworkName": "a"}]`, facts.PodNetwork{Name: "theirs", Provider: "foo.io/bar"}, network("a")).plan(t)
	sameStrings(t, attachments(p), "cluster=eth0", "a=net2")
	if len(p.Notes) == 0 || !strings.Contains(p.Notes[0], "PodNetwork theirs is attached by its provider, foo.io/bar") {
		t.Errorf("notes %q; want one of the provider", p.Notes)
	}
}

// TestPodNetworkGateways (W1): each family's default route goes to the network with the flag.
func TestPodNetworkGateways(t *testing.T) {
	p := lists(`[{"podNetworkName": "a", "isDefaultGW4": true}, {"podNetworkName": "default", "isDefaultGW6": true}]`, network("a"), facts.PodNetwork{Name: "default"}).plan(t)
	if a := p.Steps[1]; !a.Gateway4 || a.Gateway6 || !a.LosesDefaultRoute {
		t.Errorf("step %+v; want the gateway of IPv4, and to lose that of IPv6", a)
	}
	if d := p.Steps[0]; d.Gateway4 || !d.Gateway6 || !d.LosesDefaultRoute {
		t.Errorf("step %+v; want the gateway of IPv6, and to lose that of IPv4", d)
	}
}

// FuzzPodNetworks: whatever a pod lists beside what it selects, a plan without a fault attaches
// each interface once.
func FuzzPodNetworks(f *testing.F) {
	f.Add(`[{"podNetworkName": "a"}, {"podNetworkName": "default", "isDefaultGW4": true}]`, "a,b@net2", uint8(0))
	f.Add(`[{"podNetworkAttachmentName": "m", "interfaceName": "net1"}]`, "", uint8(7))
	f.Fuzz(func(t *testing.T, list, networks string, judged uint8) {
		c, err := ParseConfig([]byte(`{"name": "tenure", ` + inlineDefault + `}`))
		if err != nil {
			t.Fatal(err)
		}
		pod := facts.Pod{PodRef: facts.PodRef{Namespace: "ns", Name: "p"}, Annotations: map[string]string{npwg.AnnotationNetworks: networks, podnetwork.AnnotationNetworks: list}}
		answer := facts.Answer{Pod: pod}
		config := bridge("a")
		for _, ref := range Wanted(c.Question(pod.PodRef), pod) {
			answer.Networks = append(answer.Networks, facts.Definition{Ref: ref, Config: &config})
		}
		elements, _ := podnetwork.Parse(list)
		for i := range elements {
			n := network(fmt.Sprintf("n%d", i))
			switch judged >> (i % 8) & 3 {
			case 1:
				n = facts.PodNetwork{Refused: "no", Later: true}
			case 2:
				n = facts.PodNetwork{Name: "theirs", Provider: "foo.io/bar"}
			}
			answer.PodNetworks = append(answer.PodNetworks, n)
			answer.Networks = append(answer.Networks, facts.Definition{Ref: network(fmt.Sprintf("n%d", i)).Definition, Config: &config})
		}
		p, err := Make(c, CallOf(pod.PodRef), answer, Files{Root: fstest.MapFS{}, ConfDir: "/"})
		if err != nil {
			if err := Explain(io.Discard, p, err, ""); err != nil {
				t.Errorf("Explain: %v", err)
			}
			return
		}
		checkPlan(t, p)
	})
}

package plan

import (
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/attach/facts"
)

// decided is what an agent says of an element that selects shop/NAME, of which the control plane
// has made a definition, and decided the interface.
func decided(element int, name, ifName string) facts.VIF {
	return facts.VIF{
		Element: element, Interface: ifName, Definition: facts.Ref{Namespace: "tenure-system", Name: "vif.shop." + name}, MadeFor: "f1",
		Claim: "web." + ifName, MAC: "02:00:00:00:00:01",
	}
}

// vifScene is a pod that selects a network of its own making, and one whose interface the control
// plane decides.
func vifScene(networks string, vifs ...facts.VIF) scene {
	bare := facts.Definition{Ref: facts.Ref{Namespace: "shop", Name: "v"}, Annotations: map[string]string{"tenure.dev/vif": `{"pool": "lan"}`}}
	made := def("tenure-system/vif.shop.v", `{"cniVersion": "1.0.0", "name": "vif.shop.v", "type": "macvlan", "capabilities": {"mac": true}}`)
	made.Annotations = map[string]string{podnetwork.AnnotationMadeFor: "f1", npwg.AnnotationNamespaces: ""}
	return scene{networks: networks, vifs: vifs, defs: []facts.Definition{bare, made, def("x", bridge("x"))}}
}

// TestVIFs (K2, K5, K6, K8): an element whose interface the control plane decides becomes a step by
// the made definition, with the claim's addresses and the hardware address of the map.
func TestVIFs(t *testing.T) {
	for _, networks := range []string{"x,v", `[{"name": "x"}, {"name": "v", "ips": ["10.0.0.9"]}]`} {
		p := vifScene(networks, decided(1, "v", "net2")).plan(t)
		sameStrings(t, attachments(p), "cluster=eth0", "shop/x=net1", "shop/v=net2")
		s := p.Steps[2]
		if args := joinArgs(s.Args); !strings.HasSuffix(args, "TENURE_CLAIM=web.net2") || s.Claim != "web.net2" {
			t.Errorf("CNI_ARGS are %s and the claim is %q; want both to name claim web.net2", args, s.Claim)
		}
		if got := string(s.Capabilities["mac"]); got != `"02:00:00:00:00:01"` || len(s.Capabilities) != 1 {
			t.Errorf("capabilities %s; want the hardware address alone", s.Capabilities)
		}
		if s.Network != "vif.shop.v" || s.Requested.MAC != "02:00:00:00:00:01" {
			t.Errorf("step %+v", s)
		}
		if asks := strings.Contains(networks, "ips"); asks != (len(s.Requested.IPs) == 1) {
			t.Errorf("the result must show %v", s.Requested.IPs)
		}
	}
}

// TestVIFByVersion1 (K2): the hardware address reaches the plugin by its capability also where the
// rules are those of version 1.
func TestVIFByVersion1(t *testing.T) {
	s := vifScene("v", decided(0, "v", "net1"))
	s.keys = `"specVersion": "1"`
	if got := string(s.plan(t).Steps[1].Capabilities["mac"]); got != `"02:00:00:00:00:01"` {
		t.Errorf("capability mac is %s", got)
	}
	s.defs[1] = def("tenure-system/vif.shop.v", `{"cniVersion": "1.0.0", "name": "vif.shop.v", "type": "ipvlan"}`)
	s.defs[1].Annotations = map[string]string{podnetwork.AnnotationMadeFor: "f1"}
	s.fails(t, "its plugin cannot be given one")
}

// TestVIFsOff (K1): what the definition says has no effect, and that is said.
func TestVIFsOff(t *testing.T) {
	s := vifScene("v")
	s.vifsOff = true
	s.fails(t, "it has no spec.config, and on this node there is no configuration named v")
	s.files = map[string]string{"10-v.conf": `{"cniVersion": "1.0.0", "name": "v", "type": "bridge"}`}
	p := s.plan(t)
	sameStrings(t, attachments(p), "cluster=eth0", "shop/v=net1")
	if len(p.Warnings) != 1 || p.Warnings[0].Reason != ReasonNoVIFs {
		t.Errorf("warnings %v; want one of %s", p.Warnings, ReasonNoVIFs)
	}
}

// TestVIFsRefused (K6): whatever is wrong with one interface, there is no plan.
func TestVIFsRefused(t *testing.T) {
	with := func(change func(*facts.VIF)) scene {
		v := decided(0, "v", "net1")
		change(&v)
		return vifScene("v", v)
	}
	for _, tt := range []struct {
		name  string
		scene scene
		want  string
		later bool
	}{
		{"no map yet", with(func(v *facts.VIF) { v.Refused, v.Later = "the controller has not written it", true }), "network shop/v: the controller has not written it", true},
		{"a static pod", with(func(v *facts.VIF) { v.Refused = "it is a static pod" }), "it is a static pod", false},
		{"no made definition yet", with(func(v *facts.VIF) { v.Definition.Name = "vif.shop.w" }), "does not exist", true},
		{"one of another text", with(func(v *facts.VIF) { v.MadeFor = "f2" }), "was made for another object than this one, or for what it said before", true},
		{"the default network's interface", with(func(v *facts.VIF) { v.Interface = "eth0" }), "interface eth0 is already that of the default network", false},
		{"of a namespace that keeps it for itself", func() scene {
			s := vifScene("other/v", decided(0, "v", "net1"))
			s.defs[0].Namespace, s.defs[0].Annotations[npwg.AnnotationNamespaces] = "other", ""
			return s
		}(), "does not let pods of namespace shop use it", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.scene.fails(t, tt.want)
			if _, err := tt.scene.make(t); MayPass(err) != tt.later {
				t.Errorf("%v: it may pass: %t; want %t", err, MayPass(err), tt.later)
			}
		})
	}
}

// TestVIFsOfAnInvalidAnnotation (K6): an annotation that is ignored leaves a pod on its default
// network; one that selects a VIF is refused, as its Events say.
func TestVIFsOfAnInvalidAnnotation(t *testing.T) {
	s := vifScene(`[{"name": "v", "mac": "zz"}]`, decided(0, "v", "net1"))
	s.fails(t, "annotation k8s.v1.cni.cncf.io/networks: invalid: element 1: mac: ", "the control plane decides", "correct it")
	s = vifScene(`[{"name": "v", "mac": "zz"}]`)
	s.vifsOff = true
	sameStrings(t, attachments(s.plan(t)), "cluster=eth0")
}

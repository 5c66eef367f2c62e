package podnetwork

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/facts"
)

type (
	spec    = v1alpha1.InterfaceParametersSpec
	macvlan = v1alpha1.MacvlanParameters
	ipvlan  = v1alpha1.IPvlanParameters
	bridge  = v1alpha1.BridgeParameters
	vlan    = v1alpha1.VLANParameters
	sriov   = v1alpha1.SRIOVParameters

	bandwidth = v1alpha1.Bandwidth
)

// TestRender: the keys are those of the CNI's reference plugins, and of sriov.
func TestRender(t *testing.T) {
	for _, tt := range []struct {
		name, pool string
		spec       spec
		want       string
		resource   string
	}{
		{
			name: "macvlan", pool: "lan", spec: spec{MTU: 1400, Macvlan: &macvlan{Master: "eth1", Mode: "vepa"}},
			want: `{"cniVersion":"1.0.0","name":"net","type":"macvlan","master":"eth1","mode":"vepa","mtu":1400,"ipam":{"type":"tenure","pool":"lan"}}`,
		},
		{
			name: "ipvlan", pool: "lan", spec: spec{IPvlan: &ipvlan{Master: "eth1", Mode: "l3"}},
			want: `{"cniVersion":"1.0.0","name":"net","type":"ipvlan","master":"eth1","mode":"l3","ipam":{"type":"tenure","pool":"lan"}}`,
		},
		{
			name: "bridge", pool: "lan", spec: spec{Bridge: &bridge{Bridge: "br0", VLAN: 7, Hairpin: true, CheckMAC: true}},
			want: `{"cniVersion":"1.0.0","name":"net","type":"bridge","bridge":"br0","vlan":7,"hairpinMode":true,"macspoofchk":true,"ipam":{"type":"tenure","pool":"lan"}}`,
		},
		{
			name: "bridge with a bandwidth", pool: "lan", spec: spec{Bridge: &bridge{Bridge: "br0", Bandwidth: &bandwidth{IngressRate: 10_000_000, EgressRate: 5_000_000, EgressBurst: 80_000}}},
			want: `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"bridge","bridge":"br0","ipam":{"type":"tenure","pool":"lan"}},` +
				`{"type":"bandwidth","ingressRate":10000000,"ingressBurst":2147483647,"egressRate":5000000,"egressBurst":80000}]}`,
		},
		{
			name: "P13 layer 2 alone", spec: spec{VLAN: &vlan{Master: "eth1", ID: 7}},
			want: `{"cniVersion":"1.0.0","name":"net","type":"vlan","master":"eth1","vlanId":7}`,
		},
		{
			name: "sriov", pool: "lan", spec: spec{SRIOV: &sriov{ResourceName: "intel.com/vf", VLAN: 7, CheckMAC: new(false), Trust: new(true)}},
			want:     `{"cniVersion":"1.0.0","name":"net","type":"sriov","vlan":7,"spoofchk":"off","trust":"on","ipam":{"type":"tenure","pool":"lan"}}`,
			resource: "intel.com/vf",
		},
		{
			name: "sriov as the device has it", spec: spec{SRIOV: &sriov{ResourceName: "intel.com/vf"}},
			want: `{"cniVersion":"1.0.0","name":"net","type":"sriov"}`, resource: "intel.com/vf",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Render("net", tt.spec, tt.pool)
			if got.Config != tt.want {
				t.Errorf("got  %s\nwant %s", got.Config, tt.want)
			}
			if namespaces, ok := got.Annotations[npwg.AnnotationNamespaces]; !ok || namespaces != "" || got.Annotations[npwg.AnnotationResource] != tt.resource {
				t.Errorf("annotations %v; want no namespace and resource %q", got.Annotations, tt.resource)
			}
			if err := CheckParameters(facts.Ref{}, tt.spec); err != nil {
				t.Errorf("it is rendered, and refused: %v", err)
			}
			if err := CheckDefinition(facts.Ref{Name: "net"}, got.Config, familiesOf); err != nil {
				t.Errorf("as a definition it would be refused: %v", err)
			}
		})
	}
}

// TestCheckParameters: a network says where it leads.
func TestCheckParameters(t *testing.T) {
	for want, s := range map[string]spec{
		"spec.macvlan.master is missing":     {Macvlan: &macvlan{Mode: "vepa"}},
		"spec.ipvlan.master is missing":      {IPvlan: &ipvlan{}},
		"spec.bridge.bridge is missing":      {Bridge: &bridge{VLAN: 3}},
		"spec.vlan.master is missing":        {VLAN: &vlan{ID: 3}},
		"spec.vlan.id is missing":            {VLAN: &vlan{Master: "eth1"}},
		"spec.sriov.resourceName is missing": {SRIOV: &sriov{}},
	} {
		wantFault(t, CheckParameters(facts.Ref{Namespace: "infra", Name: "lan"}, s), v1alpha1.ReasonParamsInvalid, "InterfaceParameters infra/lan: "+want)
	}
}

// TestVary: an attachment says how its own interface is made, and nothing that concerns others.
func TestVary(t *testing.T) {
	for _, tt := range []struct {
		name         string
		network, own spec
		want, fault  string
	}{
		{
			name: "macvlan", network: spec{MTU: 1500, Macvlan: &macvlan{Master: "eth1", Mode: "private"}}, own: spec{MTU: 9000, Macvlan: &macvlan{}},
			want: `{"cniVersion":"1.0.0","name":"net","type":"macvlan","master":"eth1","mode":"private","mtu":9000}`,
		},
		{
			name: "nothing changes", network: spec{MTU: 1500, IPvlan: &ipvlan{Master: "eth1", Mode: "l3"}}, own: spec{IPvlan: &ipvlan{}},
			want: `{"cniVersion":"1.0.0","name":"net","type":"ipvlan","master":"eth1","mode":"l3","mtu":1500}`,
		},
		{
			name: "bridge", network: spec{Bridge: &bridge{Bridge: "br0", VLAN: 7, CheckMAC: true}}, own: spec{Bridge: &bridge{Hairpin: true}},
			want: `{"cniVersion":"1.0.0","name":"net","type":"bridge","bridge":"br0","vlan":7,"hairpinMode":true,"macspoofchk":true}`,
		},
		{
			name: "sriov", network: spec{SRIOV: &sriov{ResourceName: "r", Trust: new(true), CheckMAC: new(false)}}, own: spec{SRIOV: &sriov{CheckMAC: new(true)}},
			want: `{"cniVersion":"1.0.0","name":"net","type":"sriov","spoofchk":"on","trust":"on"}`,
		},
		{
			name: "vlan", network: spec{VLAN: &vlan{Master: "eth1", ID: 7}}, own: spec{MTU: 1400, VLAN: &vlan{}},
			want: `{"cniVersion":"1.0.0","name":"net","type":"vlan","master":"eth1","vlanId":7,"mtu":1400}`,
		},
		{
			name: "a bandwidth where the network has none", network: spec{Bridge: &bridge{Bridge: "br0"}}, own: spec{Bridge: &bridge{Bandwidth: &bandwidth{EgressRate: 1000, EgressBurst: 2000}}},
			want: `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"bridge","bridge":"br0"},{"type":"bandwidth","egressRate":1000,"egressBurst":2000}]}`,
		},
		{
			name: "a lower rate, and the network's other one", network: spec{Bridge: &bridge{Bridge: "br0", Bandwidth: &bandwidth{IngressRate: 9000, IngressBurst: 9000, EgressRate: 9000, EgressBurst: 9000}}},
			own:  spec{Bridge: &bridge{Bandwidth: &bandwidth{IngressRate: 4000}}},
			want: `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"bridge","bridge":"br0"},{"type":"bandwidth","ingressRate":4000,"ingressBurst":9000,"egressRate":9000,"egressBurst":9000}]}`,
		},
		{
			name: "the network's bandwidth", network: spec{Bridge: &bridge{Bridge: "br0", Bandwidth: &bandwidth{IngressRate: 9000, IngressBurst: 9000}}}, own: spec{MTU: 1400, Bridge: &bridge{}},
			want: `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"bridge","bridge":"br0","mtu":1400},{"type":"bandwidth","ingressRate":9000,"ingressBurst":9000}]}`,
		},
		{
			name: "a higher rate", network: spec{Bridge: &bridge{Bridge: "br0", Bandwidth: &bandwidth{EgressRate: 9000}}}, own: spec{Bridge: &bridge{Bandwidth: &bandwidth{EgressRate: 9001}}},
			fault: "spec.bridge.bandwidth.egressRate is 9001, and the PodNetwork's is 9000: give one that is not above it",
		},
		{
			name: "a higher burst", network: spec{Bridge: &bridge{Bridge: "br0", Bandwidth: &bandwidth{EgressRate: 9000, EgressBurst: 8000}}},
			own: spec{Bridge: &bridge{Bandwidth: &bandwidth{EgressRate: 9000, EgressBurst: 8001}}}, fault: "spec.bridge.bandwidth.egressBurst is 8001, and the PodNetwork's is 8000: give",
		},
		{
			name: "another plugin", network: spec{VLAN: &vlan{Master: "eth1", ID: 7}}, own: spec{Macvlan: &macvlan{}}, fault: "they are of the plugin macvlan, and the network's of vlan",
		},
		{
			name: "another VLAN", network: spec{VLAN: &vlan{Master: "eth1", ID: 7}}, own: spec{VLAN: &vlan{ID: 8}}, fault: "spec.vlan.id is for the PodNetwork to say",
		},
		{
			name: "another VLAN of a bridge", network: spec{Bridge: &bridge{Bridge: "br0"}}, own: spec{Bridge: &bridge{VLAN: 8}}, fault: "spec.bridge.vlan is for",
		},
		{
			name: "another master", network: spec{Macvlan: &macvlan{Master: "eth1"}}, own: spec{Macvlan: &macvlan{Master: "eth2"}}, fault: "spec.macvlan.master is for",
		},
		{
			name: "the mode of all", network: spec{Macvlan: &macvlan{Master: "eth1"}}, own: spec{Macvlan: &macvlan{Mode: "passthru"}}, fault: "spec.macvlan.mode is for",
		},
		{
			name: "trust", network: spec{SRIOV: &sriov{ResourceName: "r"}}, own: spec{SRIOV: &sriov{Trust: new(true)}}, fault: "spec.sriov.trust is for",
		},
		{
			name: "no check", network: spec{SRIOV: &sriov{ResourceName: "r"}}, own: spec{SRIOV: &sriov{CheckMAC: new(false)}}, fault: "spec.sriov.checkMAC=false is for",
		},
		{
			name: "another resource", network: spec{SRIOV: &sriov{ResourceName: "r"}}, own: spec{SRIOV: &sriov{ResourceName: "s"}}, fault: "spec.sriov.resourceName is for",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := tt.network.DeepCopy()
			got, err := Vary(tt.network, tt.own, facts.Ref{Namespace: "team", Name: "mine"})
			wantFault(t, err, v1alpha1.ReasonParamsInvalid, tt.fault)
			if err == nil && Render("net", got, "").Config != tt.want {
				t.Errorf("got  %s\nwant %s", Render("net", got, "").Config, tt.want)
			}
			if Render("net", *before, "").Config != Render("net", tt.network, "").Config {
				t.Error("the network's own parameters are changed")
			}
		})
	}
}

// TestNamesOfLongObjects: what is made of an object with a long name has a name that the API
// server takes, and two of them two.
func TestNamesOfLongObjects(t *testing.T) {
	names := map[string]bool{}
	for _, long := range []string{strings.Repeat("a", 240) + strings.Repeat(".b", 6), strings.Repeat("a", 223) + ".-x" + strings.Repeat("c", 20), strings.Repeat("a", 252)} {
		name := DefinitionOfAttachment("team", long).Name
		if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 || names[name] {
			t.Errorf("%q is made of %q: %v", name, long, faults)
		}
		names[name] = true
	}
}

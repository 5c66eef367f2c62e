package vif

import (
	"slices"
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/api/npwg"
)

// TestNetworkOf (K3, N5): what a definition without a configuration says, and each way in which it
// can be wrong: no namespace, no key and no annotation of another definition stands in.
func TestNetworkOf(t *testing.T) {
	for _, tt := range []struct{ name, own, kuryr, want, fails string }{
		{"a pool", `{"pool": "lan", "interfaceParameters": "lan"}`, "", `lan  "lan"`, ""},
		{"inline", `{"pool": "lan", "interfaceParameters": {"macvlan": {"master": "eth1"}}}`, "", `lan  {"macvlan": {"master": "eth1"}}`, ""},
		{"a subnet in capitals", `{"subnetId": "A7D1"}`, "", ` a7d1 `, ""},
		{"a subnet", `{"subnetId": "s"}`, "", ` s `, ""},
		{"Kuryr's", "", `{"subnetId": "s", "driverType": "sriov"}`, ` s `, ""},
		{"Kuryr's takes nothing of ours", "", `{"subnetId": "s", "interfaceParameters": "lan"}`, ` s `, ""},
		{"both", `{"pool": "lan"}`, `{"subnetId": "s"}`, "", "both there"},
		{"pool and subnet", `{"pool": "lan", "subnetId": "s"}`, "", "", "pool and subnetId"},
		{"nothing", `{}`, "", "", "neither pool nor subnetId"},
		{"Kuryr's nothing", "", `{}`, "", "no subnetId"},
		{"misspelt", `{"pol": "lan"}`, "", "", `unknown field "pol"`},
		{"no JSON", "", `subnetId: s`, "", "annotation openstack.org/kuryr-config: it is no JSON"},
		{"two objects", `{"pool": "lan"} {}`, "", "", "something follows"},
		{"a list", `["lan"]`, "", "", "no JSON object"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := map[string]string{AnnotationNetwork: tt.own, AnnotationKuryr: tt.kuryr}
			if !Is(all, " ") || Is(all, "{}") || Is(nil, "") {
				t.Error("which definitions are VIF definitions is told wrong")
			}
			n, err := NetworkOf(all)
			if (err != nil) != (tt.fails != "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
				t.Fatalf("error %v; want one with %q", err, tt.fails)
			}
			if got := n.Pool + " " + n.SubnetID + " " + string(n.Interface); err == nil && got != tt.want {
				t.Errorf("got %q; want %q", got, tt.want)
			}
		})
	}
}

// TestNames (K4, N6): names are an object's, of any pod and interface, and no two things have one.
func TestNames(t *testing.T) {
	long := strings.Repeat("a.", 126) + "b"
	seen := map[string]string{}
	for _, name := range []string{
		DefinitionName("ns", "lan"), DefinitionName("ns", long), DefinitionName("ns2", long),
		ClaimName("p", "1", "eth1"), ClaimName("p", "2", "eth1"), ClaimName("p", "1", "eth2"), ClaimName("p", "1", "ETH2"),
		ClaimName(long, "1", "e_th.x"), ClaimName(long, "1", "e_th-x"), ClaimName("p", "1", "_"),
	} {
		if err := npwg.CheckName(name); err != nil {
			t.Error(err)
		}
		if seen[name] != "" {
			t.Errorf("two things have the name %q", name)
		}
		seen[name] = name
	}
	if got := DefinitionName("ns", "lan"); got != "vif.ns.lan" {
		t.Errorf("DefinitionName: %q", got)
	}
}

// TestInterface (K5): the name that the element asks for, or one by its place: eth and the place
// where the definition is in Kuryr's form, and net and the place of any other.
func TestInterface(t *testing.T) {
	own, kuryr := map[string]string{AnnotationNetwork: "{}"}, map[string]string{AnnotationKuryr: "{}"}
	unnamed, named := npwg.Selection{Interface: "net3"}, npwg.Selection{Interface: "lan0", Named: true}
	for _, tt := range []struct {
		sel        npwg.Selection
		definition map[string]string
		want       string
	}{{unnamed, own, "net3"}, {unnamed, kuryr, "eth3"}, {named, own, "lan0"}, {named, kuryr, "lan0"}} {
		got := Interface(tt.sel, 2, tt.definition)
		if got != tt.want || !slices.Contains(Interfaces(tt.sel, 2), got) {
			t.Errorf("%+v of %v is %q, one of %q; want %q", tt.sel, tt.definition, got, Interfaces(tt.sel, 2), tt.want)
		}
	}
	if all := Interfaces(named, 2); len(all) != 1 {
		t.Errorf("with a name it may be %q", all)
	}
}

// TestKuryrsMistakes (K2): what Kuryr did wrong with a pod's annotation is right here. Kuryr let
// the namespace of one element serve for the next, and took the spaces of "a , b" for a part of
// names.
func TestKuryrsMistakes(t *testing.T) {
	for _, text := range []string{"far/a , b,c ", `[{"name": "a", "namespace": "far"}, {"name": "b"}, {"name": "c"}]`} {
		all, err := npwg.Parse(text, "near", npwg.AnyVersion)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i, sel := range all {
			got = append(got, sel.String()+"="+Interface(sel, i, map[string]string{AnnotationKuryr: "{}"}))
		}
		if want := []string{"far/a=eth1", "near/b=eth2", "near/c=eth3"}; !slices.Equal(got, want) {
			t.Errorf("%s selects %q; want %q", text, got, want)
		}
	}
}

// TestPort: what is written on a claim is read.
func TestPort(t *testing.T) {
	p := Port{ID: "7", MAC: "fa:16:3e:00:00:01", Network: "n", Subnets: []string{"s"}}
	again, err := ParsePort(p.String())
	if err != nil || again.String() != p.String() {
		t.Errorf("%v, %v; want %v", again, err, p)
	}
	if none, err := ParsePort(""); err != nil || none.ID != "" {
		t.Errorf("%v, %v; want no port", none, err)
	}
	if _, err := ParsePort("[]"); err == nil || !strings.Contains(err.Error(), AnnotationPort) {
		t.Errorf("%v; want an error with %s", err, AnnotationPort)
	}
}

// TestMap: what is written is read, and the same map has the same text.
func TestMap(t *testing.T) {
	m := Map{"eth2": {Network: "ns/b", PodUID: "u", Claim: "c2", ClaimUID: "2"}, "eth1": {Network: "ns/a", PodUID: "u", Claim: "c", ClaimUID: "1", Addresses: []string{"10.0.0.1/24"}, MAC: MACOf("1"), MTU: 1400}}
	again, err := ParseMap(m.String())
	if err != nil || again.String() != m.String() {
		t.Errorf("%v, %v; want %v", again, err, m)
	}
	if none, err := ParseMap(""); err != nil || len(none) > 0 {
		t.Errorf("%v, %v; want no map", none, err)
	}
	if _, err := ParseMap("[]"); err == nil {
		t.Error("a list is taken for a map")
	}
	if a, b := MACOf("1"), MACOf("2"); a == b || a != MACOf("1") || a[1] != '2' && a[1] != '6' && a[1] != 'a' && a[1] != 'e' {
		t.Errorf("hardware addresses %s and %s", a, b)
	}
}

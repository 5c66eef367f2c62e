package npwg

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestParseN14N15N16N19(t *testing.T) {
	addr := netip.MustParseAddr
	tests := []struct {
		name, annotation string
		want             []Selection
	}{
		{"nothing", " ", nil},
		{"N15 names", "net-a,net-b, other-ns/net-c", []Selection{
			{Namespace: "ns", Name: "net-a", Interface: "net1"}, {Namespace: "ns", Name: "net-b", Interface: "net2"}, {Namespace: "other-ns", Name: "net-c", Interface: "net3"}}},
		{"N16 interface", "a/b@eth7", []Selection{{Namespace: "a", Name: "b", Interface: "eth7", Named: true}}},
		{"N14 JSON", `[{"name":"net-a"},{"name":"net-b","namespace":"x","interface":"lan0","ipam-claim-reference":"c"}]`, []Selection{
			{Namespace: "ns", Name: "net-a", Interface: "net1"}, {Namespace: "x", Name: "net-b", Interface: "lan0", Named: true, Claim: "c"}}},
		{"N20 ips", `[{"name":"n","ips":["10.0.0.5/24","2001:db8::5"]}]`, []Selection{
			{Namespace: "ns", Name: "n", Interface: "net1", IPs: []RequestedIP{{addr("10.0.0.5"), 24}, {addr("2001:db8::5"), 0}}}}},
		{"N17 unknown key", `[{"name":"n","org.foo.bar.k":1}]`, []Selection{{Namespace: "ns", Name: "n", Interface: "net1", Other: map[string]json.RawMessage{"org.foo.bar.k": json.RawMessage("1")}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse(tt.annotation, "ns", nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("Parse (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseFaults(t *testing.T) {
	for _, tt := range []struct{ name, annotation, want string }{
		{"N18 no name", `[{"namespace":"a"}]`, "name: missing"},
		{"N20 bad address", `[{"name":"n","ips":["10.1.1.300"]}]`, "10.1.1.300"},
		{"N20 not a list", `[{"name":"n","ips":"10.1.1.6/24"}]`, "not a list"},
		{"N16 too many parts", "a/b/c", "[namespace/]name[@interface]"},
		{"N16 two interfaces", "a@b@c", "[namespace/]name[@interface]"},
		{"not JSON", `[{`, "a JSON list"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse(tt.annotation, "ns", nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Parse(%s) = %v; want an error with %q", tt.annotation, err, tt.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("a,b/c@d")
	f.Add(`[{"name":"n","ips":["10.0.0.5/24"],"interface":"x"}]`)
	f.Fuzz(func(t *testing.T, annotation string) {
		selections, err := Parse(annotation, "ns", nil)
		if err != nil {
			return
		}
		for i, s := range selections {
			if s.Name == "" || s.Namespace == "" || s.Interface == "" {
				t.Errorf("Parse(%q)[%d] = %+v; want name, namespace and interface", annotation, i, s)
			}
		}
	})
}

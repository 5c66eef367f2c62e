package pods

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// TestImpossible: what pools can never give is said, and nothing of what they can, or of a pool
// that is not known.
func TestImpossible(t *testing.T) {
	shape, err := poolspec.ParsePool(poolspec.PoolText{Ranges: []poolspec.RangeText{
		{CIDR: "10.0.0.0/24", Exclude: []string{"10.0.0.9"}, Gateway: "10.0.0.1"}, {CIDR: "fd00::/64"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	shapes := map[string]*allocator.Shape{"lan": shape}
	for _, tt := range []struct {
		name, ipam, ips    string
		gateway4, gateway6 bool
		unknown            bool
		want               string
	}{
		{name: "nothing", ipam: `"pool": "lan"`},
		{name: "an address", ipam: `"pool": "lan"`, ips: `["10.0.0.8", "fd00::8/64"]`},
		{name: "an excluded one", ipam: `"pool": "lan"`, ips: `["10.0.0.9"]`, want: "it asks for 10.0.0.9 of pool lan, which is given to nobody: 10.0.0.9 is excluded"},
		{name: "the gateway's", ipam: `"pool": "lan"`, ips: `["10.0.0.1"]`, want: "given to nobody: 10.0.0.1 is "},
		{name: "one outside", ipam: `"pool": "lan"`, ips: `["10.9.0.9"]`, want: "it asks for 10.9.0.9, which lies in no range of pool lan"},
		{name: "another prefix length", ipam: `"pool": "lan"`, ips: `["10.0.0.8/16"]`, want: "has the prefix length 24"},
		{name: "gateways", ipam: `"pool": "lan"`, gateway4: true, gateway6: true, want: "isDefaultGW6 is set, and pool lan gives no IPv6 address with a gateway"},
		{name: "a gateway that there is", ipam: `"pool": "lan"`, gateway4: true},
		{name: "of an address by name", ipam: `"pool": "lan"`, ips: `["fd00::8"]`, gateway6: true, want: "isDefaultGW6"},
		{name: "a pool that is not known", ipam: `"pools": ["lan", "other"]`, ips: `["10.9.0.9"]`, unknown: true},
		{name: "another IPAM plugin", ipam: `"type": "static"`, ips: `["10.9.0.9"]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !strings.Contains(tt.ipam, "type") {
				tt.ipam = `"type": "tenure", ` + tt.ipam
			}
			s := plan.Step{
				List:     []byte(`{"cniVersion": "1.0.0", "name": "lan", "plugins": [{"type": "bridge", "capabilities": {"ips": true}, "ipam": {` + tt.ipam + `}}]}`),
				Gateway4: tt.gateway4, Gateway6: tt.gateway6,
			}
			if tt.ips != "" {
				s.Capabilities = map[string]json.RawMessage{"ips": json.RawMessage(tt.ips)}
			}
			confs, err := configsOf(s)
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			for _, conf := range confs {
				all = append(all, impossible(s, conf, shapes)...)
			}
			if got := strings.Join(all, "\n"); !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
				t.Errorf("%q; want %q", got, tt.want)
			}
		})
	}
}

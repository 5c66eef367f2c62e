package assign

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// reached returns a result's gateways and routes as Reach leaves them.
func reached(t *testing.T, config string, ips []agentapi.IP) (string, error) {
	t.Helper()
	c, err := poolspec.ParseConfig([]byte(config), "")
	if err != nil {
		t.Fatal(err)
	}
	r := &agentapi.Result{IPs: ips}
	for _, route := range c.Routes {
		r.Routes = append(r.Routes, agentapi.Route(route))
	}
	err = Reach(c, r)
	text := ""
	for _, ip := range r.IPs {
		text += fmt.Sprintf("%v gw %v;", ip.Address, ip.Gateway)
	}
	for _, route := range r.Routes {
		text += fmt.Sprintf(" %v via %v", route.Dst, route.GW)
		if route.Scope != nil {
			text += fmt.Sprintf(" scope %d", *route.Scope)
		}
	}
	return text, err
}

// TestReach: routes lead through a router that lies outside of the interface's subnets where the
// version of CNI can say so.
func TestReach(t *testing.T) {
	ip := func(addr, gateway string) agentapi.IP {
		return agentapi.IP{Address: netip.MustParsePrefix(addr), Gateway: netip.MustParseAddr(gateway)}
	}
	const v4, v6 = `[{"dst":"0.0.0.0/0"},{"dst":"10.9.0.0/16","gw":"10.0.0.9"}]`, `[{"dst":"::/0"}]`
	for _, tt := range []struct {
		name, version, kind, routes string
		ips                         []agentapi.IP
		want                        string
		old                         bool
	}{
		{"within", "1.0.0", `"macvlan"`, v4, []agentapi.IP{ip("10.0.0.5/24", "10.0.0.1")}, "10.0.0.5/24 gw 10.0.0.1; 0.0.0.0/0 via invalid IP 10.9.0.0/16 via 10.0.0.9", false},
		{"outside", "1.1.0", `"macvlan"`, v4, []agentapi.IP{ip("10.0.0.5/32", "169.254.1.1")},
			"10.0.0.5/32 gw invalid IP; 169.254.1.1/32 via invalid IP scope 253 0.0.0.0/0 via 169.254.1.1 10.9.0.0/16 via 10.0.0.9", false},
		{"outside, in an old version", "1.0.0", `"macvlan"`, v4, []agentapi.IP{ip("10.0.0.5/32", "169.254.1.1")}, "", true},
		{"outside, in an old version, without a route", "1.0.0", `"macvlan"`, `[]`, []agentapi.IP{ip("10.0.0.5/32", "169.254.1.1")}, "10.0.0.5/32 gw 169.254.1.1;", false},
		{"outside, and the plugin's own", "1.0.0", `"ptp"`, v4, []agentapi.IP{ip("10.0.0.5/32", "169.254.1.1")},
			"10.0.0.5/32 gw 169.254.1.1; 0.0.0.0/0 via invalid IP 10.9.0.0/16 via 10.0.0.9", false},
		{"a bridge's own", "1.1.0", `"bridge","isGateway":true`, v4, []agentapi.IP{ip("10.0.0.5/32", "169.254.1.1")},
			"10.0.0.5/32 gw 169.254.1.1; 0.0.0.0/0 via invalid IP 10.9.0.0/16 via 10.0.0.9", false},
		{"of the link", "0.3.1", `"macvlan"`, v6, []agentapi.IP{ip("fd00::5/64", "fe80::1")}, "fd00::5/64 gw fe80::1; ::/0 via invalid IP", false},
		{"IPv6 outside", "1.1.0", `"macvlan"`, v6, []agentapi.IP{ip("fd00::5/64", "fd99::1")},
			"fd00::5/64 gw invalid IP; fd99::1/128 via invalid IP scope 253 ::/0 via fd99::1", false},
		{"of two addresses the first decides", "1.1.0", `"macvlan"`, `[{"dst":"0.0.0.0/0"}]`, []agentapi.IP{ip("10.0.0.5/24", "10.0.0.1"), ip("10.1.0.5/32", "169.254.1.1")},
			"10.0.0.5/24 gw 10.0.0.1;10.1.0.5/32 gw invalid IP; 169.254.1.1/32 via invalid IP scope 253 0.0.0.0/0 via invalid IP", false},
		{"in the other address's subnet", "1.0.0", `"macvlan"`, `[{"dst":"0.0.0.0/0"}]`, []agentapi.IP{ip("10.0.0.5/24", "10.1.0.1"), ip("10.1.0.5/24", "10.1.0.1")},
			"10.0.0.5/24 gw 10.1.0.1;10.1.0.5/24 gw 10.1.0.1; 0.0.0.0/0 via invalid IP", false},
	} {
		got, err := reached(t, fmt.Sprintf(`{"cniVersion":%q,"name":"n","type":%s,"ipam":{"type":"tenure","pool":"p","routes":%s}}`, tt.version, tt.kind, tt.routes), tt.ips)
		if errors.Is(err, poolspec.ErrVersion) != tt.old || !tt.old && (err != nil || got != tt.want) {
			t.Errorf("%s: got %s, %v\nwant %s, an error: %v", tt.name, got, err, tt.want, tt.old)
		}
	}
}

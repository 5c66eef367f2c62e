package neutron_test

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"

	neutron "github.com/tenure-ipam/tenure/ipam/controller/neutron"
	server "github.com/tenure-ipam/tenure/test/neutron"
)

// subnets: all that Neutron knows of them, those that are gone, and that a change is seen.
func subnets(t *testing.T, c cloud) {
	n := c.Network(t, server.Network{Project: mine, Subnets: []server.Subnet{
		{
			CIDR: "192.0.2.0/24", Project: mine, Gateway: "192.0.2.254", DNS: []string{"198.51.100.53", "198.51.100.54"},
			Pools:  []map[string]string{{"start": "192.0.2.10", "end": "192.0.2.20"}},
			Routes: []map[string]string{{"destination": "203.0.113.0/24", "nexthop": "192.0.2.9"}},
		},
		{CIDR: "2001:db8::/64", Project: mine, IPVersion: 6},
	}})
	v4, v6 := n.Subnets[0].ID, n.Subnets[1].ID
	got, err := c.c.Subnets(t.Context(), []string{v6, "nowhere", v4})
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddr
	want := []neutron.Subnet{
		{
			// Neutron's choice is the anycast address of the subnet's routers.
			ID: v6, Network: n.ID, Prefix: netip.MustParsePrefix("2001:db8::/64"), Gateway: addr("2001:db8::"),
			Pools: []netipx.IPRange{netipx.MustParseIPRange("2001:db8::1-2001:db8::ffff:ffff:ffff:ffff")}, DNS: []netip.Addr{},
		},
		{ID: "nowhere", Gone: true},
		{
			ID: v4, Network: n.ID, Prefix: netip.MustParsePrefix("192.0.2.0/24"), Gateway: addr("192.0.2.254"),
			Pools:  []netipx.IPRange{netipx.MustParseIPRange("192.0.2.10-192.0.2.20")},
			DNS:    []netip.Addr{addr("198.51.100.53"), addr("198.51.100.54")},
			Routes: []neutron.Route{{To: netip.MustParsePrefix("203.0.113.0/24"), Via: addr("192.0.2.9")}},
		},
	}
	same := cmp.Options{cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmp.Comparer(func(a, b netipx.IPRange) bool { return a == b })}
	if diff := cmp.Diff(want, got, same); diff != "" {
		t.Error(diff)
	}
	c.Do(t, http.MethodPut, "subnets/"+v4, "subnet", map[string]any{"gateway_ip": nil}, nil)
	if got, err = c.c.Subnets(t.Context(), []string{v4}); err != nil || got[0].Gateway.IsValid() {
		t.Errorf("subnet %+v, error %v; want no gateway", got, err)
	}
	if _, err := client(t, c.URL()).Subnets(t.Context(), []string{v4}); err == nil {
		t.Error("nobody has read a subnet")
	} else {
		fails(t, err, neutron.Unauthorized)
	}
	if got, err := c.c.Subnets(t.Context(), nil); got != nil || err != nil {
		t.Errorf("of no subnets: %v, %v", got, err)
	}
}

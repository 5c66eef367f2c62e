package nodes_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"

	"github.com/tenure-ipam/tenure/test/fleet"
)

// inline is a network whose definition describes its ranges itself, in whereabouts'
// form. The pool is the controller's to make.
func inline(t *testing.T, w *network, name, domain, ipam string) fleet.Interface {
	t.Helper()
	define(t, "default", name, name, ipam)
	i := fleet.Interface{Network: name, IfName: "net1", Domain: domain}
	must(t, json.Unmarshal([]byte(ipam), &i.IPAM))
	return w.renewed(i)
}

// bare is a frame with a node.
func bare(t *testing.T, name string) *network {
	t.Helper()
	w := frame(t, name, quick)
	w.start(1)
	return w
}

// added attaches an interface.
func added(t *testing.T, n *fleet.Node, i fleet.Interface) []netip.Prefix {
	t.Helper()
	p := &pod{Interface: i, node: n}
	must(t, p.attach())
	return p.addrs
}

func within(cidr string, a netip.Prefix) bool {
	p := netip.MustParsePrefix(cidr)
	return p.Contains(a.Addr()) && p.Bits() == a.Bits()
}

func TestInlineDualStack(t *testing.T) {
	w := bare(t, "families")
	for _, tt := range []struct{ net, name, ranges string }{
		{"both", "ipRanges", `"ipRanges":[{"range":"10.20.0.0/24"},{"range":"fd20::/64"}]`},
		{"older", "range and ipRanges", `"range":"10.20.0.0/24","ipRanges":[{"range":"fd20::/64"}]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := added(t, w.nodes[0], inline(t, w, tt.net, tt.net, fmt.Sprintf(`{"type":"tenure","network_name":%q,%s}`, tt.net, tt.ranges)))
			if len(got) != 2 || !within("10.20.0.0/24", got[0]) || !within("fd20::/64", got[1]) {
				t.Errorf("got %v; want one of 10.20.0.0/24, then one of fd20::/64", got)
			}
		})
	}
}

func TestOverlappingRangesOfPods(t *testing.T) {
	w := bare(t, "overlaps")
	one := `{"type":"tenure","range":"%s","range_start":"10.21.0.5","range_end":"10.21.0.5"%s}`
	many := `{"type":"tenure","range":"%s","range_start":"10.21.0.5","range_end":"10.21.0.9"%s}`
	// Shared: one pool, two views of it. With its last address alone a pool would be
	// exhausted, and only a pod can ask the cluster for that.
	a := inline(t, w, "overlaps-a", "shared", fmt.Sprintf(one, "10.21.0.0/24", ""))
	b := inline(t, w, "overlaps-b", "shared", fmt.Sprintf(many, "10.21.0.0/24", ""))
	if x, y := added(t, w.nodes[0], a), added(t, w.nodes[0], b); x[0].Addr() == y[0].Addr() {
		t.Errorf("both networks got %v", x)
	}
	// Apart: two pools, and nobody compares them.
	const apart = `,"enable_overlapping_ranges":false`
	a = inline(t, w, "overlaps-c", "c", fmt.Sprintf(one, "10.21.0.0/25", apart))
	b = inline(t, w, "overlaps-d", "d", fmt.Sprintf(one, "10.21.0.0/26", apart))
	if x, y := added(t, w.nodes[0], a), added(t, w.nodes[0], b); x[0].Addr() != y[0].Addr() {
		t.Errorf("got %v and %v; want 10.21.0.5 twice", x, y)
	}
}

func TestNamedNetworksOfPods(t *testing.T) {
	w := bare(t, "domains")
	for _, name := range []string{"blue", "red"} {
		i := inline(t, w, "domains-"+name, name, fmt.Sprintf(
			`{"type":"tenure","network_name":"domains-%s","range":"10.22.0.0/24","range_start":"10.22.0.9","range_end":"10.22.0.9"}`, name))
		if got := added(t, w.nodes[0], i); !within("10.22.0.9/24", got[0]) || got[0].Addr().String() != "10.22.0.9" {
			t.Errorf("%s got %v; want 10.22.0.9/24", name, got)
		}
	}
}

package attach_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tenure-ipam/tenure/attach/cni/route"
	"github.com/tenure-ipam/tenure/test/cninet"
)

// bridge is a network of the reference plugins with the addresses 10.<n>.0.0/24 and
// 2001:db8:<n>::/64 and default routes of both families.
func (n *node) bridge(name string, number int, routes bool) map[string]any {
	ipam := map[string]any{"type": "host-local", "dataDir": n.path("host-local"), "ranges": []any{
		[]any{map[string]any{"subnet": fmt.Sprintf("10.%d.0.0/24", number)}}, []any{map[string]any{"subnet": fmt.Sprintf("2001:db8:%d::/64", number)}},
	}}
	if routes {
		ipam["routes"] = []any{map[string]any{"dst": "0.0.0.0/0"}, map[string]any{"dst": "::/0"}}
	}
	return map[string]any{"cniVersion": "1.0.0", "name": name, "plugins": []any{
		map[string]any{"type": "bridge", "bridge": fmt.Sprintf("br-%d", number), "isGateway": true, "ipam": ipam},
	}}
}

// routedNode is a node whose default network is a bridge, with two more: a, which
// has default routes of its own, and b, a macvlan without.
func routedNode(t *testing.T) *node {
	t.Helper()
	n := newNode(t)
	n.config["defaultNetwork"] = n.bridge("default", 1, true)
	n.define("ns", "a", n.bridge("net-a", 2, true))
	attrs := netlink.NewLinkAttrs()
	attrs.Name = fmt.Sprintf("mv%d", os.Getpid()%100000)
	must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})) // for want of a card
	t.Cleanup(func() { must(t, netlink.LinkDel(&netlink.Bridge{LinkAttrs: attrs})) })
	n.define("ns", "b", map[string]any{"cniVersion": "1.0.0", "name": "net-b", "plugins": []any{map[string]any{
		"type": "macvlan", "master": attrs.Name, "ipam": map[string]any{"type": "host-local", "dataDir": n.path("host-local"), "subnet": "10.3.0.0/24"},
	}}})
	return n
}

// netns makes a pod's network namespace, which exists until the test ends.
func netns(t *testing.T, name string) cninet.NS {
	t.Helper()
	ns, err := cninet.Make(name)
	must(t, err)
	t.Cleanup(func() { must(t, ns.Delete()) })
	return ns
}

// defaults returns the default routes of a namespace, as "family dev via metric".
// Metrics that the kernel chose are left out.
func defaults(t *testing.T, ns cninet.NS) (all []string) {
	t.Helper()
	must(t, ns.Do(func() error {
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
			if err != nil {
				return err
			}
			for _, r := range routes {
				if r.Dst != nil && !r.Dst.IP.IsUnspecified() {
					continue
				}
				hops := r.MultiPath
				if len(hops) == 0 {
					hops = []*netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw}}
				}
				for _, hop := range hops {
					link, err := netlink.LinkByIndex(hop.LinkIndex)
					if err != nil {
						return err
					}
					text := fmt.Sprintf("%s via %s", link.Attrs().Name, hop.Gw)
					if r.Priority != 0 && r.Priority != 1024 {
						text += fmt.Sprintf(" metric %d", r.Priority)
					}
					all = append(all, text)
				}
			}
		}
		return nil
	}))
	return all
}

func expectDefaults(t *testing.T, ns cninet.NS, want ...string) {
	t.Helper()
	if got := defaults(t, ns); !slices.Equal(got, want) {
		t.Errorf("default routes:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// TestDefaultRoutes (N38, N39, N62). No pod comes to have the address of a gateway: the kernel
// takes no route through an address of its own.
func TestDefaultRoutes(t *testing.T) {
	n := routedNode(t)
	for name, tt := range map[string]struct {
		annotation string
		want       []string
		status     []any
	}{
		// Without the key, nothing is touched: the kernel has both networks'.
		"none":      {"a,b", []string{"net1 via 10.2.0.1", "eth0 via 10.1.0.1", "eth0 via 2001:db8:1::1", "net1 via 2001:db8:2::1"}, nil},
		"both":      {`[{"name":"a","default-route":["10.2.0.1","2001:db8:2::1"]},{"name":"b"}]`, []string{"net1 via 10.2.0.1", "net1 via 2001:db8:2::1"}, []any{"10.2.0.1", "2001:db8:2::1"}},
		"of link":   {`[{"name":"a","default-route":["10.2.0.1","fe80::1"]}]`, []string{"net1 via 10.2.0.1", "net1 via fe80::1"}, []any{"10.2.0.1", "fe80::1"}},
		"another":   {`[{"name":"a","default-route":["10.2.0.77"]}]`, []string{"net1 via 10.2.0.77", "eth0 via 2001:db8:1::1", "net1 via 2001:db8:2::1"}, []any{"10.2.0.77"}},
		"several":   {`[{"name":"a","default-route":["10.2.0.79","10.2.0.78","2001:db8:2::79"]}]`, []string{"net1 via 10.2.0.79 metric 1", "net1 via 10.2.0.78 metric 2", "net1 via 2001:db8:2::79"}, []any{"10.2.0.79", "10.2.0.78", "2001:db8:2::79"}},
		"empty":     {`[{"name":"a","default-route":[]}]`, []string{"net1 via 10.2.0.1", "net1 via 2001:db8:2::1"}, []any{"10.2.0.1", "2001:db8:2::1"}},
		"last":      {`[{"name":"a"},{"name":"b","default-route":["10.3.0.1"]}]`, []string{"net2 via 10.3.0.1", "eth0 via 2001:db8:1::1", "net1 via 2001:db8:2::1"}, []any{"10.3.0.1"}},
		"empty, no": {`[{"name":"a"},{"name":"b","default-route":[]}]`, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			n.t = t
			ns := netns(t, "p")
			n.selects("p", tt.annotation)
			o := n.ok("ADD", pod("p"))
			expectDefaults(t, ns, tt.want...)
			n.expectAddresses(o, ns)
			n.expectStatus(tt.status)
			n.ok("CHECK", pod("p"))
			n.ok("DEL", pod("p"))
			n.clean()
		})
	}
}

// expectAddresses fails the test unless the answer is the default network's: its
// addresses, and no default route that the pod does not have.
func (n *node) expectAddresses(o outcome, ns cninet.NS) {
	n.t.Helper()
	var r types100.Result
	must(n.t, json.Unmarshal([]byte(o.stdout), &r))
	want, err := ns.Addrs("eth0")
	must(n.t, err)
	if got := cninet.Addresses(&r); !slices.Equal(got, want) || len(want) == 0 {
		n.t.Errorf("the answer has addresses %v; want those of eth0, %v", got, want)
	}
	there := strings.Join(defaults(n.t, ns), "; ")
	for _, d := range route.Defaults(&r) {
		if !strings.Contains(there, "eth0 via "+d.Gateway.String()) {
			n.t.Errorf("the answer has a default route via %s; the pod has %s", d.Gateway, there)
		}
	}
}

// expectStatus fails the test unless exactly the attachment with default-route has
// it in its status.
func (n *node) expectStatus(want []any) {
	n.t.Helper()
	var found []any
	for _, s := range n.statusOf() {
		if list, ok := s["default-route"].([]any); ok {
			found = append(found, list...)
		}
	}
	if d := cmp.Diff(want, found); d != "" {
		n.t.Errorf("default-route in the status (-want +got):\n%s", d)
	}
}

// TestCheckSeesDefaultRoutesThatChanged (N38) takes the pod's default route away, and
// gives the default network its own back.
func TestCheckSeesDefaultRoutesThatChanged(t *testing.T) {
	n := routedNode(t)
	ns := netns(t, "p")
	n.selects("p", `[{"name":"a","default-route":["10.2.0.1"]}]`)
	n.ok("ADD", pod("p"))
	n.ok("CHECK", pod("p"))
	everything := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	must(t, ns.Do(func() error { return netlink.RouteDel(&netlink.Route{Dst: everything, Gw: net.ParseIP("10.2.0.1")}) }))
	n.fails("CHECK", pod("p"), "ns/a", "10.2.0.1")
	must(t, ns.Do(func() error {
		link, err := netlink.LinkByName("net1")
		return errors.Join(err, netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: everything, Gw: net.ParseIP("10.2.0.1")}))
	}))
	n.ok("CHECK", pod("p"))
	must(t, ns.Do(func() error {
		link, err := netlink.LinkByName("eth0")
		return errors.Join(err, netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: everything, Gw: net.ParseIP("10.1.0.1"), Priority: 5}))
	}))
	n.fails("CHECK", pod("p"), "10.1.0.1", "is not of net1")
	n.ok("DEL", pod("p"))
}

// TestDefaultRouteThatFails (N38, N74): where a gateway cannot be reached, the ADD fails
// and nothing is left.
func TestDefaultRouteThatFails(t *testing.T) {
	n := routedNode(t)
	ns := netns(t, "p")
	n.selects("p", `[{"name":"a","default-route":["10.2.0.1","10.99.0.1"]}]`)
	n.fails("ADD", pod("p"), "network ns/a", "10.99.0.1", "in no network of the interface")
	names, err := ns.Interfaces()
	must(t, err)
	if !slices.Equal(names, []string{"lo"}) {
		t.Errorf("interfaces %v; want the loopback alone", names)
	}
	n.ok("DEL", pod("p"))
	n.clean()
}

// TestAdvertisedDefaultRoutesStayAway (N38): a router of a network that lost its default
// routes advertises itself every few minutes.
func TestAdvertisedDefaultRoutesStayAway(t *testing.T) {
	n := routedNode(t)
	for name, tt := range map[string]struct{ routes, want string }{
		"gateways of IPv6": {`["2001:db8:2::1"]`, "eth0=0 net1=0"},
		"its own":          {`[]`, "eth0=0 net1=1"},
		"IPv4 alone":       {`["10.2.0.1"]`, "eth0=1 net1=1"},
	} {
		t.Run(name, func(t *testing.T) {
			ns := netns(t, "p")
			n.selects("p", fmt.Sprintf(`[{"name":"a","default-route":%s}]`, tt.routes))
			n.ok("ADD", pod("p"))
			var got []string
			must(t, ns.Do(func() error {
				for _, ifName := range []string{"eth0", "net1"} {
					text, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + ifName + "/accept_ra_defrtr")
					if err != nil {
						return err
					}
					got = append(got, ifName+"="+strings.TrimSpace(string(text)))
				}
				return nil
			}))
			if strings.Join(got, " ") != tt.want {
				t.Errorf("default routes are taken from advertisements: %v; want %s", got, tt.want)
			}
			n.ok("DEL", pod("p"))
		})
	}
}

// TestAllOrNothing (N38): a change that fails at any place leaves every route as it was.
func TestAllOrNothing(t *testing.T) {
	n := routedNode(t)
	ns := netns(t, "p")
	n.selects("p", "b")
	n.ok("ADD", pod("p"))
	before := defaults(t, ns)
	if len(before) != 2 {
		t.Fatalf("default routes %v; want one of each family", before)
	}
	for _, gateways := range [][]string{{"10.99.0.1"}, {"10.3.0.1", "10.99.0.1"}, {"10.3.0.1", "2001:db8:99::1"}} {
		c := route.Change{Keeper: []string{"net1"}}
		for _, text := range gateways {
			c.Gateways = append(c.Gateways, netip.MustParseAddr(text))
		}
		if err := c.Apply(ns.Path()); err == nil {
			t.Errorf("%v: success; want an error", gateways)
		}
		expectDefaults(t, ns, before...)
	}
	if err := (route.Change{Keeper: []string{"none"}}).Apply(ns.Path()); err == nil {
		t.Error("no such interface: success; want an error")
	}
	expectDefaults(t, ns, before...)
	n.ok("DEL", pod("p"))
}

// TestWhatStaysIsNotTouched (N38): a default route that its attachment keeps, in whichever way,
// keeps what its plugin has set beside.
func TestWhatStaysIsNotTouched(t *testing.T) {
	n := routedNode(t)
	for name, gateways := range map[string][]string{"its own": nil, "said": {"10.2.0.1"}} {
		t.Run(name, func(t *testing.T) {
			n.t = t
			ns := netns(t, "p")
			n.selects("p", "a")
			n.ok("ADD", pod("p"))
			c := route.Change{Keeper: []string{"net1"}, Own: []route.Default{{Gateway: netip.MustParseAddr("10.2.0.1")}}}
			for _, text := range gateways {
				c.Gateways = append(c.Gateways, netip.MustParseAddr(text))
			}
			must(t, ns.Do(func() error {
				link, err := netlink.LinkByName("net1")
				if err != nil {
					return err
				}
				everything := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
				r := netlink.Route{LinkIndex: link.Attrs().Index, Dst: everything, Gw: net.ParseIP("10.2.0.1")}
				err = netlink.RouteDel(&r)
				r.MTU = 1300
				return errors.Join(err, netlink.RouteAddEcmp(&r))
			}))
			must(t, c.Apply(ns.Path()))
			must(t, ns.Do(func() error {
				routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
				for _, r := range routes {
					if r.Gw.Equal(net.ParseIP("10.2.0.1")) && r.MTU == 1300 {
						return err
					}
				}
				return errors.Join(err, fmt.Errorf("routes %v; want that via 10.2.0.1 with its MTU", routes))
			}))
			n.ok("DEL", pod("p"))
		})
	}
}

// TestAdvertisedRouteIsReplaced (N38): a default route that a router has advertised ends with
// its lifetime, since no more are heard: one that is asked for by its gateway does not.
func TestAdvertisedRouteIsReplaced(t *testing.T) {
	n := routedNode(t)
	ns := netns(t, "p")
	n.selects("p", "a")
	n.ok("ADD", pod("p"))
	gateway := netip.MustParseAddr("2001:db8:2::1")
	everything := &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	must(t, ns.Do(func() error {
		link, err := netlink.LinkByName("net1")
		if err != nil {
			return err
		}
		r := netlink.Route{LinkIndex: link.Attrs().Index, Dst: everything, Gw: gateway.AsSlice(), Priority: 1024}
		err = netlink.RouteDel(&r)
		r.Protocol = unix.RTPROT_RA
		return errors.Join(err, netlink.RouteDel(&netlink.Route{Dst: everything}), netlink.RouteAdd(&r))
	}))
	must(t, route.Change{Keeper: []string{"net1"}, Gateways: []netip.Addr{gateway}}.Apply(ns.Path()))
	must(t, ns.Do(func() error {
		routes, err := netlink.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		for _, r := range routes {
			if r.Gw.Equal(gateway.AsSlice()) && r.Protocol != unix.RTPROT_RA {
				return err
			}
		}
		return errors.Join(err, fmt.Errorf("routes %v; want one via %s that is not the advertised one", routes, gateway))
	}))
	n.ok("DEL", pod("p"))
}

// TestRealNetworks (N67, D9): a pod on a bridge, another bridge and a macvlan, from its ADD
// to its DEL.
func TestRealNetworks(t *testing.T) {
	n := routedNode(t)
	ns := netns(t, "p")
	n.selects("p", "a,b")
	n.ok("ADD", pod("p"))
	for name, prefix := range map[string]string{"eth0": "10.1.0.", "net1": "10.2.0.", "net2": "10.3.0."} {
		addrs, err := ns.Addrs(name)
		if err != nil || len(addrs) == 0 || !strings.HasPrefix(addrs[0].String(), prefix) {
			t.Errorf("%s has %v, %v; want an address of %s0/24", name, addrs, err, prefix)
		}
	}
	status := n.statusOf()
	if mac, _ := status[2]["mac"].(string); len(status) != 3 || mac == "" || status[2]["interface"] != "net2" {
		t.Errorf("status %v; want the macvlan's hardware address", status)
	}
	n.ok("CHECK", pod("p"))
	must(t, ns.Do(func() error {
		link, err := netlink.LinkByName("net2")
		return errors.Join(err, netlink.LinkDel(link))
	}))
	n.fails("CHECK", pod("p"), "ns/b")
	n.ok("DEL", pod("p"))
	names, err := ns.Interfaces()
	must(t, err)
	if !slices.Equal(names, []string{"lo"}) {
		t.Errorf("interfaces after the DEL: %v", names)
	}
	n.clean()
	// An interface of the default network's name that is there already is an error.
	must(t, ns.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "eth0"
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
	}))
	n.fails("ADD", pod("p"), "eth0", "exists")
	n.ok("DEL", pod("p"))
}

package vifs

import (
	"net/netip"
	"slices"

	"github.com/tenure-ipam/tenure/api/vif"
)

// A network is what the definition with the configuration says, and the pool that it names. Of a
// pool that is gone nothing is known.
type network struct {
	name     string
	plugin   string // the type of the CNI plugin
	takesMAC bool
	mtu      int32
	vlan     int32 // of plugin vlan

	pool, poolUID string
	// neutron says that the pool's addresses are Neutron's: each claim has a port there.
	neutron bool
	ranges  []addrRange
	// routes are the pool's, and nameservers those of its DNS.
	routes      []vif.Route
	nameservers []string
}

// An addrRange is addresses of one range of a pool, and their gateway.
type addrRange struct {
	cidr                netip.Prefix
	start, end, gateway netip.Addr // not valid where the range has none
}

func (r addrRange) has(a netip.Addr) bool {
	return r.cidr.Contains(a) && (!r.start.IsValid() || !a.Less(r.start)) && (!r.end.IsValid() || !r.end.Less(a))
}

// lacks reports whether one of the addresses is in no range, as far as ranges are known.
func (n network) lacks(ips []string) bool {
	return len(n.ranges) > 0 && slices.ContainsFunc(ips, func(text string) bool {
		p, err := netip.ParsePrefix(text)
		return err == nil && !slices.ContainsFunc(n.ranges, func(r addrRange) bool { return r.cidr.Contains(p.Addr()) })
	})
}

// gateway returns that of the range that an address is of; not valid: it has none.
func (n network) gateway(a netip.Addr) netip.Addr {
	i := slices.IndexFunc(n.ranges, func(r addrRange) bool { return r.has(a) })
	if i < 0 {
		return netip.Addr{}
	}
	return n.ranges[i].gateway
}

// gateways returns those of the ranges that the addresses are of, each once.
func (n network) gateways(ips []string) (all []string) {
	for _, ip := range ips {
		p, err := netip.ParsePrefix(ip)
		if gw := n.gateway(p.Addr()); err == nil && gw.IsValid() && !slices.Contains(all, gw.String()) {
			all = append(all, gw.String())
		}
	}
	return all
}

// routesOf returns the routes that come with the addresses, as a node has them: those of the pool
// that are of an address's family, with the gateway of that one's range where they have no next
// hop.
func (n network) routesOf(ips []string) (all []vif.Route) {
	for _, ip := range ips {
		p, err := netip.ParsePrefix(ip)
		if err != nil {
			continue
		}
		for _, r := range n.routes {
			dst, err := netip.ParsePrefix(r.Dst)
			if err != nil || dst.Addr().Is4() != p.Addr().Is4() || slices.ContainsFunc(all, func(o vif.Route) bool { return o.Dst == r.Dst }) {
				continue
			}
			if gw := n.gateway(p.Addr()); r.GW == "" && gw.IsValid() {
				r.GW = gw.String()
			}
			all = append(all, r)
		}
	}
	return all
}

package assign

import (
	"net/netip"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// scopeLink is the scope of a route to a host on the interface's own wire.
const scopeLink = 253

// Reach makes a result's gateways ones that the interface can reach. The kernel takes no route
// through a gateway that lies in no subnet of the interface, unless another route leads to the
// gateway itself. So that one is answered, of scope link, and the address names no gateway: a
// plugin would send the one route through the other. A route without a gateway gets it instead.
// An IPv6 gateway of the link itself needs none of that, nor does one that the interface plugin
// takes for itself.
//
// Before cniVersion 1.1 routes have no scope. The error says so, where a route leads through
// such a gateway; else the gateway is answered for who wants to know it.
func Reach(c *poolspec.Config, r *agentapi.Result) error {
	if c.OwnsGateway {
		return nil
	}
	var to []agentapi.Route
	seen := map[bool]bool{} // by family: an earlier address has a gateway
	for i := range r.IPs {
		gw := r.IPs[i].Gateway
		if !gw.IsValid() {
			continue
		}
		first := !seen[gw.Is4()]
		seen[gw.Is4()] = true
		if gw.IsLinkLocalUnicast() && gw.Is6() || onLink(r.IPs, gw) {
			continue
		}
		through := func(r agentapi.Route) bool { return leadsThrough(r, gw, first) }
		if !c.HasScopes() {
			if slices.ContainsFunc(r.Routes, through) {
				return c.ScopeFault(gw)
			}
			continue
		}
		r.IPs[i].Gateway = netip.Addr{}
		for k := range r.Routes {
			if through(r.Routes[k]) {
				r.Routes[k].GW = gw
			}
		}
		host := agentapi.Route{Dst: netip.PrefixFrom(gw, gw.BitLen()), Scope: new(scopeLink)}
		if !slices.ContainsFunc(slices.Concat(to, r.Routes), func(r agentapi.Route) bool { return r.Dst == host.Dst }) {
			to = append(to, host)
		}
	}
	r.Routes = append(to, r.Routes...)
	return nil
}

// onLink reports whether gw lies in a subnet of one of the addresses.
func onLink(ips []agentapi.IP, gw netip.Addr) bool {
	return slices.ContainsFunc(ips, func(ip agentapi.IP) bool { return ip.Address.Contains(gw) })
}

// leadsThrough reports whether an interface plugin sends a route through gw, which is the first
// gateway of an address of its family, or not: those without a gateway go through the first.
func leadsThrough(r agentapi.Route, gw netip.Addr, first bool) bool {
	if r.Dst.Addr().Is4() != gw.Is4() || r.Scope != nil && *r.Scope >= scopeLink {
		return false
	}
	return r.GW == gw || first && !r.GW.IsValid()
}

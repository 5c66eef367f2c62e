package route

import (
	"net"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// Lose takes the default routes that the change is about, and the gateways of
// addresses with them, out of the result of an attachment that loses them.
func (c Change) Lose(r *types100.Result) {
	for _, f := range c.Families() {
		r.Routes = slices.DeleteFunc(r.Routes, func(r *types.Route) bool { return isDefault(r, f) })
		for _, ip := range r.IPs {
			if is4 := ip.Address.IP.To4() != nil; is4 == (f == IPv4) {
				ip.Gateway = nil
			}
		}
	}
}

// Keep makes the result of the attachment with default-route say which default
// routes it has now.
func (c Change) Keep(r *types100.Result) {
	if len(c.Gateways) == 0 {
		return // it says so already
	}
	for _, f := range c.Families() {
		gateways := c.defaults(f)
		r.Routes = slices.DeleteFunc(r.Routes, func(r *types.Route) bool { return isDefault(r, f) })
		for _, d := range gateways {
			to := d.toNetlink(f, 0)
			r.Routes = append(r.Routes, &types.Route{Dst: *to.Dst, GW: to.Gw, Priority: d.Metric})
		}
	}
}

// Defaults returns the default routes of a result. A route without a gateway has
// that of the first address of its family, as plugins read it.
func Defaults(r *types100.Result) []Default {
	var list []Default
	for _, f := range []Family{IPv4, IPv6} {
		for _, route := range r.Routes {
			if !isDefault(route, f) {
				continue
			}
			gw, ok := netip.AddrFromSlice(route.GW)
			if !ok {
				gw, ok = GatewayOf(r, f)
			}
			if ok {
				list = append(list, Default{Gateway: gw.Unmap(), Metric: route.Priority})
			}
		}
	}
	return list
}

// GatewayOf returns the gateway of the first address of a family in a result that has one. One
// that lies outside of the interface's subnets is not an address's: a route of scope link leads
// to it.
func GatewayOf(r *types100.Result, f Family) (netip.Addr, bool) {
	for _, ip := range r.IPs {
		if gw, ok := netip.AddrFromSlice(ip.Gateway); ok && familyOf(gw) == f {
			return gw.Unmap(), true
		}
	}
	for _, route := range r.Routes {
		ones, bits := route.Dst.Mask.Size()
		gw, ok := netip.AddrFromSlice(route.Dst.IP)
		if ok && familyOf(gw) == f && ones == bits && len(route.GW) == 0 && route.Scope != nil && *route.Scope == scopeLink {
			return gw.Unmap(), true
		}
	}
	return netip.Addr{}, false
}

// scopeLink is the number of the scope of routes to hosts on the interface's own wire.
const scopeLink = 253

// isDefault reports whether r is a default route of the family in the main table.
func isDefault(r *types.Route, f Family) bool {
	ones, bits := r.Dst.Mask.Size()
	four := bits == 8*net.IPv4len || r.Dst.IP.To4() != nil
	return ones == 0 && r.Dst.IP.IsUnspecified() && four == (f == IPv4) && (r.Table == nil || *r.Table == 0 || *r.Table == mainTable)
}

// mainTable is the number of the kernel's main routing table.
const mainTable = 254

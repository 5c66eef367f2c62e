package route

import (
	"net/netip"
)

// A Family is an IP family.
type Family int

// The families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// familyOf returns the family of a.
func familyOf(a netip.Addr) Family {
	if a.Unmap().Is4() {
		return IPv4
	}
	return IPv6
}

// A Change says to whom a pod's default routes go.
type Change struct {
	// Keeper are the interfaces of the attachment with default-route, that which
	// gets the gateways first.
	Keeper []string
	// Gateways are the list, in its order; none: the keeper has its own.
	Gateways []netip.Addr
	// Only is the family that the change is about; 0: those of Gateways, or both.
	Only Family
	// Own are the default routes of the keeper's result. They need not be in the
	// kernel: a plugin may leave out its own where another network has set one.
	Own []Default
}

// Families returns the families whose default routes the change is about.
func (c Change) Families() []Family {
	if c.Only != 0 {
		return []Family{c.Only}
	}
	var families []Family
	for _, f := range []Family{IPv4, IPv6} {
		if len(c.Gateways) == 0 || len(c.gateways(f)) > 0 {
			families = append(families, f)
		}
	}
	return families
}

// gateways returns those of a family, in their order.
func (c Change) gateways(f Family) []netip.Addr {
	var list []netip.Addr
	for _, g := range c.Gateways {
		if g = g.Unmap(); familyOf(g) == f {
			list = append(list, g)
		}
	}
	return list
}

// A Default is a default route.
type Default struct {
	Gateway netip.Addr
	// Metric is 0 for the kernel's own.
	Metric int
}

// defaults returns the default routes of a family that the keeper is to have; none
// where the list is empty and its result says nothing of the family.
func (c Change) defaults(f Family) (routes []Default) {
	if len(c.Gateways) == 0 {
		for _, d := range c.Own {
			if familyOf(d.Gateway) == f {
				routes = append(routes, d)
			}
		}
		return routes
	}
	list := c.gateways(f)
	for i, g := range list {
		d := Default{Gateway: g}
		if len(list) > 1 {
			d.Metric = i + 1
		}
		routes = append(routes, d)
	}
	return routes
}

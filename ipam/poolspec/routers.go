package poolspec

import (
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
)

// isTrue reports whether a key of another plugin is true.
func isTrue(o object, key string) bool {
	raw, _ := o.get(key)
	return string(raw) == "true"
}

// routers returns the addresses that routers have in range r, as this source sees it: the
// gateway, if there is one, and what the interface plugin takes for itself. That is
// the address after the network's own, whatever the range's start and excludes are:
//
//	10.0.0.0/24 -> 10.0.0.1    10.0.0.4/31 -> 10.0.0.5    10.0.0.9/32 -> 10.0.0.10
func (s Source) routers(r allocator.Range) []netip.Addr {
	var all []netip.Addr
	if r.Gateway.IsValid() {
		all = append(all, r.Gateway)
	} else if s.TakesFirst {
		if first := r.Prefix.Addr().Next(); first.IsValid() {
			all = append(all, first)
		}
	}
	return all
}

// RoutersIn returns the addresses that routers have, as this source sees a pool of these ranges:
// those of its own ranges where it describes some, in order.
func (s Source) RoutersIn(ranges []allocator.Range) []netip.Addr {
	if s.Implicit != nil {
		ranges = s.Ranges
	}
	var all []netip.Addr
	for _, r := range ranges {
		all = append(all, s.routers(r)...)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// ViewOf returns what the source may take of a pool of this shape: its view without the addresses
// of routers. The controller takes these out of the pool, too, once it has seen the network's
// definition.
func (s Source) ViewOf(shape *allocator.Shape) allocator.View {
	if s.Implicit != nil || !s.TakesFirst {
		return s.View
	}
	routers := slices.DeleteFunc(s.RoutersIn(shape.Ranges()), func(a netip.Addr) bool { return shape.Assignable(a) != nil })
	if len(routers) == 0 {
		return s.View
	}
	var b netipx.IPSetBuilder
	b.AddPrefix(netip.PrefixFrom(netip.IPv4Unspecified(), 0))
	b.AddPrefix(netip.PrefixFrom(netip.IPv6Unspecified(), 0))
	for _, a := range routers {
		b.Remove(a)
	}
	return s.View.Intersect(allocator.NewView(buildSet(&b)))
}

// gatewayOf returns the gateway in the result for an address of range r; zero is none. An address
// that the interface plugin takes for itself is the gateway, unless it lies outside the range.
func (s Source) gatewayOf(r allocator.Range) netip.Addr {
	if !r.Gateway.IsValid() && s.TakesFirst && r.Prefix.Bits() < r.Prefix.Addr().BitLen() {
		return r.Prefix.Addr().Next()
	}
	return r.Gateway
}

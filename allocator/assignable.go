package allocator

import (
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// Refusal says why an address cannot be given to who asks for it by name.
type Refusal uint8

// The reasons for a refusal.
const (
	OutsidePool   Refusal = iota + 1 // in none of the pool's CIDRs
	OutsideRange                     // in a CIDR, but before the start or after the end
	NetworkAddr                      // the network address
	BroadcastAddr                    // the broadcast address
	AnycastAddr                      // the subnet-router anycast address
	GatewayAddr                      // a gateway
	ExcludedAddr                     // excluded
)

// String returns the reason as the predicate of an address.
func (r Refusal) String() string {
	switch r {
	case OutsidePool:
		return "lies in none of the pool's ranges"
	case OutsideRange:
		return "lies outside the start and end of the pool's ranges"
	case NetworkAddr:
		return "is the network address"
	case BroadcastAddr:
		return "is the broadcast address"
	case AnycastAddr:
		return "is the subnet-router anycast address"
	case GatewayAddr:
		return "is a gateway"
	case ExcludedAddr:
		return "is excluded"
	default:
		return fmt.Sprintf("Refusal(%d)", uint8(r))
	}
}

// A RefusedError says why an address cannot be given at all.
type RefusedError struct {
	Addr   netip.Addr
	Reason Refusal
	// Prefix is the CIDR that Addr lies in; zero where Reason is OutsidePool.
	Prefix netip.Prefix
}

func (e *RefusedError) Error() string {
	if !e.Prefix.IsValid() {
		return fmt.Sprintf("%v %v", e.Addr, e.Reason)
	}
	return fmt.Sprintf("%v %v (%v)", e.Addr, e.Reason, e.Prefix)
}

// Assignable reports whether a may be given to somebody who asks for it by name:
// nil, or a [*RefusedError].
func (s *Shape) Assignable(a netip.Addr) error {
	if s != nil && s.usable.of(FamilyOf(a)).contains(a) {
		return nil
	}
	return s.refusal(a)
}

// refusal returns the first reason, in the order of the constants but for
// OutsideRange, why a cannot be given.
func (s *Shape) refusal(a netip.Addr) error {
	if s == nil {
		return &RefusedError{Addr: a, Reason: OutsidePool}
	}
	var cidr netip.Prefix
	var excluded bool
	for _, r := range s.ranges { // several may share the CIDR
		if FamilyOf(a) == 0 || !r.Prefix.Contains(a) {
			continue
		}
		cidr = r.Prefix
		excluded = excluded || slices.ContainsFunc(r.Exclude, func(x netipx.IPRange) bool { return x.Contains(a) })
	}
	e := &RefusedError{Addr: a, Prefix: cidr, Reason: OutsideRange}
	switch {
	case !cidr.IsValid():
		e.Reason = OutsidePool
	case slices.Contains(reserved(cidr), a):
		e.Reason = reservation(cidr, a)
	case slices.Contains(s.gateways, a):
		e.Reason = GatewayAddr
	case excluded:
		e.Reason = ExcludedAddr
	}
	return e
}

// reservation says which of the reserved addresses of p a is.
func reservation(p netip.Prefix, a netip.Addr) Refusal {
	switch {
	case a.Is6():
		return AnycastAddr
	case a == p.Addr():
		return NetworkAddr
	default:
		return BroadcastAddr
	}
}

package allocator

import (
	"fmt"
	"net/netip"
)

// Family is an IP family. The zero Family is none.
type Family uint8

// The families. Their values are part of the keys of a [Space].
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Families returns the families in the order in which everything that concerns
// both is done: IPv4, then IPv6.
func Families() []Family { return []Family{IPv4, IPv6} }

// FamilyOf returns the family of a. It is the zero Family for an address that no
// pool can hold: the zero Addr, an IPv4-mapped IPv6 address, and one with a zone.
func FamilyOf(a netip.Addr) Family {
	switch {
	case a.Is4():
		return IPv4
	case a.Is6() && !a.Is4In6() && a.Zone() == "":
		return IPv6
	default:
		return 0
	}
}

// BitLen returns the length of the family's addresses in bits: 32, 128, or 0 for
// the zero Family.
func (f Family) BitLen() int {
	switch f {
	case IPv4:
		return 32
	case IPv6:
		return 128
	default:
		return 0
	}
}

// String returns "IPv4" or "IPv6".
func (f Family) String() string {
	switch f {
	case IPv4:
		return "IPv4"
	case IPv6:
		return "IPv6"
	default:
		return fmt.Sprintf("Family(%d)", uint8(f))
	}
}

// lowest returns the lowest address of the family.
func (f Family) lowest() netip.Addr {
	switch f {
	case IPv4:
		return netip.IPv4Unspecified()
	case IPv6:
		return netip.IPv6Unspecified()
	default:
		return netip.Addr{}
	}
}

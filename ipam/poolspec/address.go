package poolspec

import (
	"fmt"
	"net/netip"
	"strings"

	"go4.org/netipx"
)

const (
	remedyAddress = "write an address such as 10.0.0.5 or fd00::5"
	remedyCIDR    = "write a CIDR such as 10.0.0.0/24 or fd00::/64"
	remedySpan    = "write an address, a CIDR, or the first and the last address as 10.0.0.5-10.0.0.9"
)

// parseAddr reads one address. IPv4-in-IPv6 becomes IPv4; a zone is refused.
func parseAddr(fs *faults, path, text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		fs.addf(path, remedyAddress, "%q is not an IP address", text)
		return netip.Addr{}, false
	case a.Zone() != "":
		fs.addf(path, "leave out %"+a.Zone(), "%q has a zone", text)
		return netip.Addr{}, false
	}
	return a.Unmap(), true
}

// parsePrefix reads one CIDR, host bits and all.
func parsePrefix(fs *faults, path, text string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		fs.addf(path, remedyCIDR, "%q is not a CIDR", text)
		return netip.Prefix{}, false
	case p.Addr().Is4In6():
		fs.addf(path, "write it as an IPv4 CIDR", "%q is IPv4 written as IPv6", text)
		return netip.Prefix{}, false
	}
	return p, true
}

// parseNetwork reads one CIDR without host bits.
func parseNetwork(fs *faults, path, text string) (netip.Prefix, bool) {
	p, ok := parsePrefix(fs, path, text)
	if ok && p != p.Masked() {
		fs.addf(path, fmt.Sprintf("write %v, or name the first address as the start", p.Masked()), "%q has host bits set", text)
		return netip.Prefix{}, false
	}
	return p, ok
}

// parseSpan reads addresses written as one address, a CIDR, or "first-last".
// Host bits of a CIDR are dropped where loose, refused where not.
func parseSpan(fs *faults, path, text string, loose bool) (netipx.IPRange, bool) {
	switch {
	case strings.Contains(text, "/"):
		p, ok := parsePrefix(fs, path, text)
		if !ok {
			return netipx.IPRange{}, false
		}
		if !loose && p != p.Masked() {
			fs.addf(path, fmt.Sprintf("write %v", p.Masked()), "%q has host bits set", text)
			return netipx.IPRange{}, false
		}
		return netipx.RangeOfPrefix(p.Masked()), true
	case strings.Contains(text, "-"):
		first, last, _ := strings.Cut(text, "-")
		from, fromErr := netip.ParseAddr(first)
		to, toErr := netip.ParseAddr(last)
		if fromErr != nil || toErr != nil || from.Zone() != "" || to.Zone() != "" {
			fs.addf(path, remedySpan, "%q is not a range of addresses", text)
			return netipx.IPRange{}, false
		}
		r := netipx.IPRangeFrom(from.Unmap(), to.Unmap())
		if !r.IsValid() {
			fs.addf(path, "write the lower address first, both of one family", "%q ends before it starts", text)
			return netipx.IPRange{}, false
		}
		return r, true
	default:
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			fs.addf(path, remedySpan, "%q is not an address", text)
			return netipx.IPRange{}, false
		}
		return netipx.IPRangeFrom(a.Unmap(), a.Unmap()), true
	}
}

// spanText is the shortest text that [parseSpan] reads as r.
func spanText(r netipx.IPRange) string {
	if r.From() == r.To() {
		return r.From().String()
	}
	if p, ok := r.Prefix(); ok {
		return p.String()
	}
	return r.From().String() + "-" + r.To().String()
}

// ends returns the two addresses of p that nobody may be given: the network
// address and, for IPv4, the broadcast address. Prefixes with fewer than four
// addresses have none.
//
//	10.0.0.0/24 -> 10.0.0.0, 10.0.0.255
//	fd00::/64   -> fd00:: (subnet-router anycast), none
//	10.0.0.0/31 -> none, none
func ends(p netip.Prefix) (network, broadcast netip.Addr) {
	if p.Addr().BitLen()-p.Bits() < 2 {
		return netip.Addr{}, netip.Addr{}
	}
	if p.Addr().Is4() {
		broadcast = netipx.PrefixLastIP(p)
	}
	return p.Addr(), broadcast
}

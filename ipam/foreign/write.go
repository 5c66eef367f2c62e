package foreign

import (
	"fmt"
	"math/big"
	"net/netip"
	"strings"
)

// Offset returns the key of addr in spec.allocations of a whereabouts IPPool whose
// spec.range is cidr: how many addresses after cidr's own it lies. ok is false where the range does
// not have it, or whereabouts does not read the number: it reads an int64, and drops what is none.
func Offset(cidr netip.Prefix, addr netip.Addr) (offset string, ok bool) {
	if !cidr.Contains(addr) || addr.Less(cidr.Addr()) {
		return "", false
	}
	n := new(big.Int).SetBytes(addr.AsSlice())
	n.Sub(n, new(big.Int).SetBytes(cidr.Addr().AsSlice()))
	return n.String(), n.IsInt64()
}

// RangeOf returns spec.range of one of whereabouts' IPPools.
func RangeOf(object map[string]any) (netip.Prefix, error) {
	spec, _ := object["spec"].(map[string]any)
	text, _ := spec["range"].(string)
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("spec.range %q is no CIDR", text)
	}
	return p, nil
}

// ReservationName returns how whereabouts names the OverlappingRangeIPReservation of an
// address: its text with '-' for ':', after the network's name if it has one.
func ReservationName(network string, addr netip.Addr) string {
	text := addr.String()
	if strings.HasSuffix(text, ":") {
		text += "0"
	}
	text = strings.ReplaceAll(text, ":", "-")
	if network != "" {
		text = network + "-" + text
	}
	return text
}

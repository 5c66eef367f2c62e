package foreign

import (
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strings"
)

// A Record is an address that another IPAM has given, as its own object says.
type Record struct {
	// Source names the object, for people.
	Source string
	// Object is its name.
	Object                string
	Addr                  netip.Addr
	PodNamespace, PodName string
	Interface             string
}

// WhereaboutsPool reads one of whereabouts' IPPools: spec.allocations maps the offset of an
// address in spec.range to who has it. What is damaged costs nothing but itself: faults
// say what it is.
func WhereaboutsPool(namespace, name string, spec map[string]any) (records []Record, faults []string) {
	source := fmt.Sprintf("whereabouts ippool %s/%s", namespace, name)
	text, _ := spec["range"].(string)
	cidr, err := netip.ParsePrefix(text)
	if err != nil {
		return nil, []string{fmt.Sprintf("%s: range %q is no CIDR", source, text)}
	}
	allocations, ok := spec["allocations"].(map[string]any)
	if !ok && spec["allocations"] != nil {
		return nil, []string{source + ": allocations is no map"}
	}
	for offset, value := range allocations {
		addr, ok := addOffset(cidr.Addr(), offset)
		if !ok || !cidr.Contains(addr) {
			faults = append(faults, fmt.Sprintf("%s: offset %q is no place in %s", source, offset, text))
			continue
		}
		fields, _ := value.(map[string]any)
		r, fault := recordOf(source, name, addr, fields)
		if fault != "" {
			faults = append(faults, fault)
			continue
		}
		records = append(records, r)
	}
	slices.SortFunc(records, func(a, b Record) int { return a.Addr.Compare(b.Addr) })
	slices.Sort(faults)
	return records, faults
}

// WhereaboutsReservation reads an OverlappingRangeIPReservation, which is named by its
// address: [network_name-]address, with '-' for the ':' of IPv6.
func WhereaboutsReservation(namespace, name string, spec map[string]any) (r Record, fault string) {
	source := fmt.Sprintf("whereabouts reservation %s/%s", namespace, name)
	addr, ok := reservedAddr(name)
	if !ok {
		return Record{}, source + ": its name is no address"
	}
	return recordOf(source, name, addr, spec)
}

// reservedAddr reads the address at the end of a reservation's name.
func reservedAddr(name string) (netip.Addr, bool) {
	for rest := name; ; {
		for _, text := range []string{rest, strings.ReplaceAll(rest, "-", ":")} {
			if a, err := netip.ParseAddr(text); err == nil {
				return a.Unmap(), true
			}
		}
		_, after, ok := strings.Cut(rest, "-")
		if !ok {
			return netip.Addr{}, false
		}
		rest = after
	}
}

// recordOf reads {podref, ifname}.
func recordOf(source, object string, addr netip.Addr, fields map[string]any) (r Record, fault string) {
	ref, _ := fields["podref"].(string)
	namespace, pod, ok := strings.Cut(ref, "/")
	if !ok || namespace == "" || pod == "" || strings.Contains(pod, "/") {
		return Record{}, fmt.Sprintf("%s: %v: podref %q is not namespace/name", source, addr, ref)
	}
	iface, _ := fields["ifname"].(string)
	return Record{Source: source, Object: object, Addr: addr, PodNamespace: namespace, PodName: pod, Interface: iface}, ""
}

// addOffset returns the address that lies a decimal number of addresses after base.
func addOffset(base netip.Addr, offset string) (netip.Addr, bool) {
	n, ok := new(big.Int).SetString(offset, 10)
	if !ok || n.Sign() < 0 || len(offset) > 40 {
		return netip.Addr{}, false
	}
	sum := n.Add(n, new(big.Int).SetBytes(base.AsSlice()))
	if sum.BitLen() > base.BitLen() {
		return netip.Addr{}, false
	}
	return netip.AddrFromSlice(sum.FillBytes(make([]byte, base.BitLen()/8)))
}

package foreign

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	utilnet "k8s.io/utils/net"

	"github.com/tenure-ipam/tenure/allocator"
)

// keys are what is read of any IPAM's configuration.
type keys struct {
	Type          string `json:"type"`
	Pool          string `json:"pool"`
	NetworkName   string `json:"network_name"`
	NodeSliceSize string `json:"node_slice_size"`
	whereaboutsRange
	IPRanges []whereaboutsRange `json:"ipRanges"`
	DataDir  string             `json:"dataDir"`
	hostLocalRange
	Ranges    [][]hostLocalRange `json:"ranges"`
	Addresses []struct {
		Address string `json:"address"`
	} `json:"addresses"`
}

// whereaboutsRange is a range as whereabouts' configuration describes it.
type whereaboutsRange struct {
	Range   string   `json:"range"`
	First   string   `json:"range_start"`
	Last    string   `json:"range_end"`
	Exclude []string `json:"exclude"`
}

// hostLocalRange is a range as host-local's configuration describes it.
type hostLocalRange struct {
	Subnet string `json:"subnet"`
	First  string `json:"rangeStart"`
	Last   string `json:"rangeEnd"`
}

// readTheirs reads the ranges of whereabouts or host-local as these do, and those of local mode,
// which has the form of either. They pass over keys that they do not know. What they refuse counts
// as far as it can be read: in doubt it is too much.
func (d *Definition) readTheirs(k keys) {
	var takes netipx.IPSetBuilder
	var unread string
	d.CIDRs = nil
	add := func(text, first, last string, exclude []string) {
		cidr, span, ok := readSpan(text, first, last)
		if !ok {
			unread = fmt.Sprintf("%.60q in its ipam section is no range", text)
			return
		}
		d.CIDRs = append(d.CIDRs, cidr)
		var rest netipx.IPSetBuilder // of its own: takes would be put in order after each that was removed
		rest.AddRange(span)
		for _, x := range exclude {
			if _, span, ok := readSpan(x, "", ""); ok {
				rest.RemoveRange(span)
			} else if a, err := netip.ParseAddr(x); err == nil {
				rest.Remove(a)
			}
		}
		set, _ := rest.IPSet() // of valid ranges alone
		takes.AddSet(set)
	}
	if k.Type != TypeHostLocal {
		for _, r := range k.ranges() {
			add(r.Range, r.First, r.Last, r.Exclude)
		}
	}
	if k.Type != TypeWhereabouts {
		if k.Subnet != "" {
			add(k.Subnet, k.hostLocalRange.First, k.hostLocalRange.Last, nil)
		}
		for _, r := range slices.Concat(k.Ranges...) {
			add(r.Subnet, r.First, r.Last, nil)
		}
	}
	switch {
	case unread != "":
		d.Unread = unread
	case len(d.CIDRs) == 0:
		d.Unread = "its ipam section has no range; a file on the nodes may have"
	}
	if k.Type == TypeWhereabouts { // every pod gets these beside
		d.addAddresses(k, &takes)
	}
	if d.Unread != "" {
		d.CIDRs = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
		for _, all := range d.CIDRs {
			takes.AddPrefix(all)
		}
	}
	d.Takes, _ = takes.IPSet() // of valid ranges alone
	d.explains = []allocator.View{allocator.NewView(d.Takes)}
}

// readSpan reads a range: a CIDR, or "first-last/length". An end that is not in the CIDR does not
// count.
func readSpan(text, first, last string) (cidr netip.Prefix, span netipx.IPRange, ok bool) {
	start, end := parseAddr(first), parseAddr(last)
	from, to, dashed := strings.Cut(text, "-")
	if dashed {
		text = to
	}
	cidr, addr, ok := parseCIDR(text)
	if !ok {
		return cidr, span, false
	}
	if dashed {
		start, end = parseAddr(from), addr
	}
	span = netipx.RangeOfPrefix(cidr)
	if cidr.Contains(start) {
		span = netipx.IPRangeFrom(start, span.To())
	}
	if cidr.Contains(end) && !end.Less(span.From()) {
		span = netipx.IPRangeFrom(span.From(), end)
	}
	return cidr, span, true
}

// parseCIDR reads a CIDR as whereabouts does, which allows zeros in front of a number, and the
// address in it.
func parseCIDR(text string) (p netip.Prefix, a netip.Addr, ok bool) {
	ip, network, err := utilnet.ParseCIDRSloppy(text)
	if err != nil {
		return p, a, false
	}
	bits, _ := network.Mask.Size()
	a = parseAddr(ip.String())
	p = netip.PrefixFrom(a, bits)
	return p.Masked(), a, p.IsValid()
}

// parseAddr reads an address as whereabouts does. What is no address is the zero one.
func parseAddr(text string) netip.Addr {
	a, _ := netipx.FromStdIP(utilnet.ParseIPSloppy(text))
	return a
}

// readStatic reads the addresses of the reference plugin static. A pod gets others if it asks for
// them: Multus hands that on in CNI_ARGS as well, for which the definition needs no capability.
func (d *Definition) readStatic(k keys) {
	var takes netipx.IPSetBuilder
	d.addAddresses(k, &takes)
	for _, c := range d.CIDRs {
		takes.AddPrefix(c)
	}
	d.Takes, _ = takes.IPSet()
	d.explains = []allocator.View{allocator.NewView(d.Takes)}
}

// addAddresses adds those that a configuration names. What is none the plugin refuses, too.
func (d *Definition) addAddresses(k keys, takes *netipx.IPSetBuilder) {
	for _, a := range k.Addresses {
		if p, ip, ok := parseCIDR(a.Address); ok {
			d.CIDRs = append(d.CIDRs, p)
			takes.Add(ip)
		}
	}
}

// ranges returns whereabouts' ranges.
func (k keys) ranges() []whereaboutsRange {
	if k.Range == "" {
		return k.IPRanges
	}
	return slices.Concat([]whereaboutsRange{k.whereaboutsRange}, k.IPRanges)
}

// whereabouts returns whereabouts' IPPools for these keys.
func (k keys) whereabouts() (objects []Object) {
	for _, r := range k.ranges() {
		if p, _, ok := readSpan(r.Range, "", ""); ok {
			objects = append(objects, Object{whereaboutsName(k.NetworkName, p), p})
		}
	}
	return objects
}

// whereaboutsName returns how whereabouts names the IPPool of a range: its text with '-'
// for ':' and '/', after the network's name if it has one.
func whereaboutsName(network string, p netip.Prefix) string {
	name := strings.NewReplacer(":", "-", "/", "-").Replace(p.String())
	if network != "" {
		name = network + "-" + name
	}
	return name
}

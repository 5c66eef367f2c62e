package poolspec

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/labels"
)

// RangeText is one range of a pool as a person writes it. The JSON is that of an
// IPPool.
type RangeText struct {
	// CIDR is required, without host bits.
	CIDR string `json:"cidr"`
	// Start and End are the first and last address that may be given; empty
	// is the first or last of the CIDR.
	Start string `json:"start,omitempty"`
	End   string `json:"end,omitempty"`
	// Exclude and StaticOnly are lists of addresses, CIDRs and "first-last".
	// Each must have an address in common with the CIDR.
	Exclude    []string `json:"exclude,omitempty"`
	StaticOnly []string `json:"staticOnly,omitempty"`
	// Gateway is of the CIDR's family, within it or not; empty is none.
	Gateway string `json:"gateway,omitempty"`
	// NodeSelector selects the nodes whose pods are given addresses of the range; nil is all.
	NodeSelector *labels.Selector `json:"nodeSelector,omitempty"`
}

// PoolText is what a person writes of a pool, and what is written for them of an
// implicit one.
type PoolText struct {
	Ranges []RangeText `json:"ranges"`
	// BlockSize is the number of addresses in a block, a power of two of at
	// most [allocator.MaxBlockSize]. Zero leaves it to Tenure.
	BlockSize int `json:"blockSize,omitempty"`
	// Gateways are addresses that routers have beside the ranges' gateways. They are given to
	// nobody. Nobody writes them by hand: they come of the networks that use the pool, by
	// [Source.routers].
	Gateways []string `json:"gateways,omitempty"`
	// PerNode says that each node has a subnet of the ranges for itself; nil: it has not.
	PerNode *PerNodeText `json:"perNode,omitempty"`
}

// Without returns t without the addresses of spans, each "first-last". A span that is no
// range of addresses, or that no range of t has in common with it, changes nothing.
func (t PoolText) Without(spans []string) PoolText {
	if len(spans) == 0 {
		return t
	}
	t.Ranges = slices.Clone(t.Ranges)
	for i, r := range t.Ranges {
		cidr, err := netip.ParsePrefix(r.CIDR)
		if err != nil {
			continue
		}
		for _, text := range spans {
			if span, err := netipx.ParseIPRange(text); err == nil && span.Overlaps(netipx.RangeOfPrefix(cidr)) {
				r.Exclude = append(slices.Clip(r.Exclude), text)
			}
		}
		t.Ranges[i].Exclude = r.Exclude
	}
	return t
}

// ParsePool returns the shape of the pool. Its error joins one [*Fault] for each
// thing that is wrong, with paths as in an IPPool: "spec.ranges[1].start".
func ParsePool(t PoolText) (*allocator.Shape, error) {
	fs := faults{kind: ErrPool}
	if len(t.Ranges) == 0 {
		fs.add("spec.ranges", "is empty", "add a range with a cidr such as 10.0.0.0/24")
	}
	if s := t.BlockSize; s < 0 || s > allocator.MaxBlockSize || s&(s-1) != 0 {
		fs.addf("spec.blockSize", fmt.Sprintf("write a power of two from 1 to %d, or leave it out", allocator.MaxBlockSize),
			"%d is not the size of a block", s)
	}
	ranges := make([]allocator.Range, len(t.Ranges)) // zero where one does not parse
	for i, rt := range t.Ranges {
		if r, ok := rt.parse(&fs, fmt.Sprintf("spec.ranges[%d]", i)); ok {
			ranges[i] = r
		}
	}
	var gateways []netip.Addr
	for i, text := range t.Gateways {
		if a, ok := parseAddr(&fs, fmt.Sprintf("status.gateways[%d]", i), text); ok {
			gateways = append(gateways, a)
		}
	}
	shape, err := allocator.NewShape(ranges, gateways...)
	addRangeErrors(&fs, err, ranges)
	if err := fs.err(); err != nil {
		return nil, err
	}
	if t.PerNode == nil {
		return shape, nil
	}
	subnets := t.PerNode.subnets(&fs, ranges)
	if err := fs.err(); err != nil {
		return nil, err
	}
	if shape, err = allocator.NewShape(subnets, gateways...); err != nil {
		return nil, err
	}
	t.PerNode.checkPins(&fs, shape)
	return shape, fs.err()
}

// parse types r. What relates its parts to each other, and to other ranges, is
// left to [allocator.NewShape]. It is not ok if any part does not parse.
func (r RangeText) parse(fs *faults, path string) (allocator.Range, bool) {
	before := fs.n
	out := allocator.Range{
		Start:   optionalAddr(fs, path+".start", r.Start),
		End:     optionalAddr(fs, path+".end", r.End),
		Gateway: optionalAddr(fs, path+".gateway", r.Gateway),
	}
	if r.CIDR == "" {
		fs.add(path+".cidr", "is missing", remedyCIDR)
	} else if p, ok := parseNetwork(fs, path+".cidr", r.CIDR); ok {
		out.Prefix = p
	}
	refuseNobodys(fs, path+".cidr", out)
	out.Exclude = parseSpans(fs, path+".exclude", r.Exclude, out.Prefix)
	out.StaticOnly = parseSpans(fs, path+".staticOnly", r.StaticOnly, out.Prefix)
	return out, fs.n == before
}

// nobodys are the addresses that no interface of a pod can have as its own: RFC 6890 and,
// of IPv6, RFC 4291.
var nobodys = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "addresses of this network"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback addresses"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast addresses"},
	{netip.MustParsePrefix("255.255.255.255/32"), "the broadcast address"},
	{netip.MustParsePrefix("::/127"), "the unspecified and the loopback address"},
	{netip.MustParsePrefix("fe80::/10"), "link-local addresses, which each interface makes by itself"},
	{netip.MustParsePrefix("ff00::/8"), "multicast addresses"},
}

// refuseNobodys refuses a range that has addresses which no pod can have.
func refuseNobodys(fs *faults, path string, r allocator.Range) {
	if !r.Prefix.IsValid() {
		return
	}
	span := netipx.RangeOfPrefix(r.Prefix)
	if r.Start.IsValid() && r.Prefix.Contains(r.Start) {
		span = netipx.IPRangeFrom(r.Start, span.To())
	}
	if r.End.IsValid() && r.Prefix.Contains(r.End) && !r.End.Less(span.From()) {
		span = netipx.IPRangeFrom(span.From(), r.End)
	}
	for _, n := range nobodys {
		if span.Overlaps(netipx.RangeOfPrefix(n.prefix)) {
			fs.addf(path, "write a range of unicast addresses", "%v has %s (%v), which no pod can have", span, n.what, n.prefix)
			return
		}
	}
}

// optionalAddr is [parseAddr] for a field that may be empty.
func optionalAddr(fs *faults, path, text string) netip.Addr {
	if text == "" {
		return netip.Addr{}
	}
	a, _ := parseAddr(fs, path, text)
	return a
}

// parseSpans reads a list of address ranges. One that has nothing in common with
// p is refused, since it does nothing; a zero p skips that check.
func parseSpans(fs *faults, path string, texts []string, p netip.Prefix) []netipx.IPRange {
	var spans []netipx.IPRange
	for i, text := range texts {
		at := fmt.Sprintf("%s[%d]", path, i)
		r, ok := parseSpan(fs, at, text, false)
		if !ok {
			continue
		}
		if p.IsValid() && !r.Overlaps(netipx.RangeOfPrefix(p)) {
			fs.addf(at, "remove it, or move it to the range that it belongs to", "%s lies outside %v", text, p)
			continue
		}
		spans = append(spans, r)
	}
	return spans
}

// addRangeErrors turns the errors of [allocator.NewShape] about ranges into
// faults. Those of ranges that did not parse are known already.
func addRangeErrors(fs *faults, err error, ranges []allocator.Range) {
	for _, e := range unjoin(err) {
		var re *allocator.RangeError
		if !errors.As(e, &re) {
			fs.add("spec.ranges", e.Error(), "correct the ranges")
			continue
		}
		if !ranges[re.Index].Prefix.IsValid() {
			continue
		}
		field, remedy := re.Field, "choose an address inside the cidr"
		switch {
		case field == "gateway":
			remedy = "name a gateway of the cidr's family"
		case field == "prefix":
			field, remedy = "cidr", "describe the addresses in one range, or in two pools if they are two networks"
		case field == "start" && strings.Contains(re.Reason, "overlaps"):
			remedy = "let ranges of one cidr follow each other without a common address"
		case field == "start" && strings.Contains(re.Reason, "comes after"):
			remedy = "write the lower address as the start"
		}
		fs.add(fmt.Sprintf("spec.ranges[%d].%s", re.Index, field), re.Reason, remedy)
	}
}

// unjoin returns the errors that err joins, or err alone.
func unjoin(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

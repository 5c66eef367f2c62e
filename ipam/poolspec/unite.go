package poolspec

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
)

// Member is one configuration's share of an implicit pool.
type Member struct {
	// Name is for people: "namespace/name" of a NetworkAttachmentDefinition.
	Name string
	// Pool is the Implicit of one of its sources.
	Pool PoolText
	// Gateways are the addresses that routers have as the member sees that pool. Pool does not
	// have one that lies outside its own range, or in a range that is within another.
	Gateways []netip.Addr
}

// MemberOf returns the share that a configuration with these sources has of the implicit
// pool.
func MemberOf(name string, sources []Source, pool string) Member {
	m := Member{Name: name}
	for _, s := range sources {
		if s.Pool != pool || s.Implicit == nil {
			continue
		}
		m.Pool = *s.Implicit
		m.Gateways = append(m.Gateways, s.RoutersIn(nil)...)
	}
	return m
}

// Disagreement is what two members of an implicit pool see differently.
type Disagreement struct {
	Kind DisagreementKind
	// Member sees it otherwise than Other, with whom the pool's text agrees.
	Member, Other string
	// Prefix is the range in question, as the pool has it.
	Prefix netip.Prefix
	// Says is what Member says, OtherSays what Other does.
	Says, OtherSays string
}

// DisagreementKind is what a [Disagreement] is about.
type DisagreementKind uint8

// The kinds.
const (
	// DisagreeGateway: two gateways of one range. Each member's pods are answered
	// its own, and both are kept free.
	DisagreeGateway DisagreementKind = iota + 1
	// DisagreePrefix: a range lies within another's wider one. No address is
	// given twice; each member's pods see its own prefix length.
	DisagreePrefix
)

// RemedyTwoWires says what to do where two definitions describe one CIDR that is on two wires.
const RemedyTwoWires = "give the definitions of each a network_name of its own; while another IPAM serves them, the annotation tenure.dev/domain"

// String says of the disagreement what Member's owner should know.
func (d Disagreement) String() string {
	switch d.Kind {
	case DisagreeGateway:
		return fmt.Sprintf("%s: gateway %s of %v, where %s has %s; each answers its own, and neither is given to a pod: if these are two wires, %s",
			d.Member, d.Says, d.Prefix, d.Other, d.OtherSays, RemedyTwoWires)
	case DisagreePrefix:
		return fmt.Sprintf("%s: range %s lies within %s of %s; no address is given twice, but pods of the two see different prefix lengths",
			d.Member, d.Says, d.OtherSays, d.Other)
	default:
		return fmt.Sprintf("%s: disagrees with %s", d.Member, d.Other)
	}
}

// Unite returns the implicit pool of members, which are given oldest first: the
// union of what each may take, without anybody's gateway, and what they disagree
// about. The pool does not depend on the order: of several gateways of a range its text
// names the lowest, and gives none of them. Of a member's text, StaticOnly and BlockSize do
// not count. The error is
// that of [ParsePool] on the first member whose text is none.
func Unite(members []Member) (PoolText, []Disagreement, error) {
	var parts []part
	var gateways []netip.Addr
	for _, m := range members {
		gateways = append(gateways, m.Gateways...)
		shape, err := ParsePool(m.Pool)
		if err != nil {
			return PoolText{}, nil, fmt.Errorf("unite %s: %w", m.Name, err)
		}
		for _, r := range shape.Ranges() {
			parts = append(parts, part{m.Name, r})
		}
	}
	var found []Disagreement
	ranges := unite(parts, gateways, func(d Disagreement) {
		if !slices.Contains(found, d) {
			found = append(found, d)
		}
	})
	return PoolText{Ranges: ranges}, found, nil
}

// part is one range of one member.
type part struct {
	member string
	rng    allocator.Range
}

// unite returns the union of parts as a pool's ranges, one for each CIDR that
// lies in no other, in order of family and address:
//
//	parts    10.0.0.0/24 from .10 to .19    10.0.0.0/24 from .30 to .39
//	united   10.0.0.0/24 from .10 to .39 without .20 to .29
//
// What no part may take is left out of the pool, so that its capacity, and with
// it the pressure, is what there is to give. A gateway, of parts or of those given, is
// left out of every range: it is a router also where it lies outside its own. Report may
// be nil.
func unite(parts []part, gateways []netip.Addr, report func(Disagreement)) []RangeText {
	for _, p := range parts {
		if p.rng.Gateway.IsValid() {
			gateways = append(gateways, p.rng.Gateway)
		}
	}
	slices.SortFunc(gateways, netip.Addr.Compare)
	outers := outermost(parts)
	within := make([][]part, len(outers))
	for _, p := range parts {
		// The last that starts at or before p contains it.
		i, found := slices.BinarySearchFunc(outers, p.rng.Prefix.Addr(), func(o netip.Prefix, a netip.Addr) int {
			return o.Addr().Compare(a)
		})
		if !found {
			i--
		}
		within[i] = append(within[i], p)
	}
	var ranges []RangeText
	for i, outer := range outers {
		ranges = append(ranges, uniteWithin(outer, within[i], gatewaysIn(outer, gateways), report))
	}
	return ranges
}

// outermost returns the CIDRs of parts that lie in no other.
func outermost(parts []part) []netip.Prefix {
	var all []netip.Prefix
	for _, p := range parts {
		all = append(all, p.rng.Prefix)
	}
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var outer []netip.Prefix
	for _, p := range all { // a wider one comes before what lies in it
		if len(outer) == 0 || !outer[len(outer)-1].Overlaps(p) {
			outer = append(outer, p)
		}
	}
	return outer
}

// gatewaysIn returns those of gateways, which are in order, that outer contains.
func gatewaysIn(outer netip.Prefix, gateways []netip.Addr) []netip.Addr {
	from, _ := slices.BinarySearchFunc(gateways, outer.Addr(), netip.Addr.Compare)
	to := from
	for to < len(gateways) && outer.Contains(gateways[to]) {
		to++
	}
	return gateways[from:to]
}

// uniteWithin returns the pool's range outer, which contains parts and gateways.
func uniteWithin(outer netip.Prefix, parts []part, gateways []netip.Addr, report func(Disagreement)) RangeText {
	var first, gateway part // that has the CIDR, and that has its lowest gateway
	for _, p := range parts {
		if p.rng.Prefix != outer {
			continue
		}
		if !first.rng.Prefix.IsValid() {
			first = p
		}
		if lowest := gateway.rng.Gateway; outer.Contains(p.rng.Gateway) && (!lowest.IsValid() || p.rng.Gateway.Less(lowest)) {
			gateway = p
		}
	}
	text := RangeText{CIDR: outer.String()}
	if gateway.rng.Prefix.IsValid() {
		text.Gateway = gateway.rng.Gateway.String()
	}
	var union, never netipx.IPSetBuilder
	for _, gw := range gateways {
		if gw != gateway.rng.Gateway {
			never.Add(gw) // a router all the same
		}
	}
	for _, p := range parts {
		union.AddSet(contribution(p.rng, outer))
		if report != nil {
			compare(p, outer, first, gateway, report)
		}
	}
	union.RemoveSet(buildSet(&never))
	text.bound(outer, buildSet(&union).Ranges())
	return text
}

// contribution returns what r adds to the pool's range outer. A pool leaves out
// the ends and the gateway of its own CIDR by itself.
func contribution(r allocator.Range, outer netip.Prefix) *netipx.IPSet {
	if r.Prefix != outer {
		return usable(r)
	}
	var b netipx.IPSetBuilder
	b.AddRange(span(r))
	for _, x := range r.Exclude {
		b.RemoveRange(x)
	}
	return buildSet(&b)
}

// buildSet returns b's set. It cannot fail: only addresses that were parsed went into b.
func buildSet(b *netipx.IPSetBuilder) *netipx.IPSet {
	set, err := b.IPSet()
	if err != nil {
		panic("poolspec: " + err.Error())
	}
	return set
}

// compare reports what p sees differently from the pool's range outer.
func compare(p part, outer netip.Prefix, first, gateway part, report func(Disagreement)) {
	if p.rng.Prefix != outer {
		report(Disagreement{
			Kind: DisagreePrefix, Member: p.member, Other: first.member, Prefix: outer,
			Says: p.rng.Prefix.String(), OtherSays: outer.String(),
		})
		return
	}
	if gw := p.rng.Gateway; gw.IsValid() && gateway.rng.Gateway.IsValid() && gw != gateway.rng.Gateway {
		report(Disagreement{
			Kind: DisagreeGateway, Member: p.member, Other: gateway.member, Prefix: outer,
			Says: gw.String(), OtherSays: gateway.rng.Gateway.String(),
		})
	}
}

// bound sets start, end and excludes so that exactly given, ranges inside outer
// in order, is left.
func (r *RangeText) bound(outer netip.Prefix, given []netipx.IPRange) {
	if len(given) == 0 {
		r.Exclude = []string{outer.String()}
		return
	}
	whole := netipx.RangeOfPrefix(outer)
	from, to := given[0].From(), given[len(given)-1].To()
	if from != whole.From() {
		r.Start = from.String()
	}
	if to != whole.To() {
		r.End = to.String()
	}
	for i, g := range given[1:] {
		r.Exclude = append(r.Exclude, spanText(netipx.IPRangeFrom(given[i].To().Next(), g.From().Prev())))
	}
}

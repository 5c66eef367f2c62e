package poolspec

import (
	"net/netip"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
)

// inlineRange is a range that a configuration describes.
type inlineRange struct {
	path string
	allocator.Range
}

// inlineSet is a set of ranges of one family. An interface gets one address out of all of them.
type inlineSet struct {
	path    string
	pool    string
	unnamed bool // see [Source.Unnamed]
	ranges  []inlineRange
}

// maxRanges bounds how many ranges one configuration describes: as many as an
// IPPool can have.
const maxRanges = 64

// countRanges returns how many ranges sets have.
func countRanges(sets []inlineSet) int {
	n := 0
	for _, set := range sets {
		n += len(set.ranges)
	}
	return n
}

// inline turns sets into the configuration's sources. Sets of one pool share its
// text.
func (p *parser) inline(sets []inlineSet) {
	p.gateways(sets)
	for _, set := range sets {
		for _, r := range set.ranges {
			refuseNobodys(&p.faults, r.path, r.Range)
		}
	}
	if n := countRanges(sets); n > maxRanges {
		p.addf(p.ipam.path, "make IPPools of them", "describes %d ranges, more than %d", n, maxRanges)
	}
	if p.n > p.mark {
		return // what follows could only repeat it
	}
	texts := map[string]*PoolText{}
	for _, set := range sets {
		if texts[set.pool] == nil {
			texts[set.pool] = &PoolText{Ranges: unite(partsOf(sets, set.pool), p.routersOf(sets, set.pool), nil)}
		}
		src := Source{Pool: set.pool, Unnamed: set.unnamed, Implicit: texts[set.pool], TakesFirst: p.bridgeTakes}
		var mine netipx.IPSetBuilder
		for _, r := range set.ranges {
			src.Ranges = append(src.Ranges, r.Range)
			mine.AddSet(usable(r.Range))
		}
		never := p.routersOf(sets, set.pool)
		for _, outer := range outermost(partsOf(sets, set.pool)) {
			network, broadcast := ends(outer)
			never = append(never, network, broadcast)
		}
		for _, a := range never { // also where it is one by another range
			if a.IsValid() {
				mine.Remove(a)
			}
		}
		src.Families = []allocator.Family{allocator.FamilyOf(src.Ranges[0].Prefix.Addr())}
		view := buildSet(&mine)
		if len(view.Ranges()) == 0 {
			p.add(set.path, "leaves no address to give", "widen the range, or exclude less of it")
			continue
		}
		src.View = allocator.NewView(view)
		p.cfg.Sources = append(p.cfg.Sources, src)
	}
	p.checkRequested()
}

// gateways reports ranges of one CIDR with two gateways: pods of one network
// would not agree on the way out.
func (p *parser) gateways(sets []inlineSet) {
	seen := map[netip.Prefix]inlineRange{}
	for _, set := range sets {
		for _, r := range set.ranges {
			if !r.Gateway.IsValid() {
				continue
			}
			first, ok := seen[r.Prefix]
			if !ok {
				seen[r.Prefix] = r
			} else if first.Gateway != r.Gateway {
				p.addf(r.path, "give both the same gateway", "has gateway %v, and %s of the same %v has %v",
					r.Gateway, first.path, r.Prefix, first.Gateway)
			}
		}
	}
}

// partsOf returns the ranges of the sets of one pool.
func partsOf(sets []inlineSet, pool string) []part {
	var parts []part
	for _, set := range sets {
		for _, r := range set.ranges {
			if set.pool == pool {
				parts = append(parts, part{rng: r.Range})
			}
		}
	}
	return parts
}

// routersOf returns the addresses that routers have in the sets of one pool.
func (p *parser) routersOf(sets []inlineSet, pool string) []netip.Addr {
	var all []netip.Addr
	for _, part := range partsOf(sets, pool) {
		all = append(all, Source{TakesFirst: p.bridgeTakes}.routers(part.rng)...)
	}
	return all
}

// span returns r's first to last address.
func span(r allocator.Range) netipx.IPRange {
	whole := netipx.RangeOfPrefix(r.Prefix)
	from, to := r.Start, r.End
	if !from.IsValid() {
		from = whole.From()
	}
	if !to.IsValid() {
		to = whole.To()
	}
	return netipx.IPRangeFrom(from, to)
}

// usable returns the addresses of r that may be given to somebody who sees the
// network as r does.
func usable(r allocator.Range) *netipx.IPSet {
	var b netipx.IPSetBuilder
	b.AddRange(span(r))
	for _, x := range r.Exclude {
		b.RemoveRange(x)
	}
	network, broadcast := ends(r.Prefix)
	for _, a := range []netip.Addr{network, broadcast, r.Gateway} {
		if a.IsValid() {
			b.Remove(a)
		}
	}
	return buildSet(&b)
}

// checkSpan reports a start or an end that does not fit. Zero ones do.
func (p *parser) checkSpan(r *inlineRange, startKey, endKey string) {
	before := p.n
	if r.Start.IsValid() && !r.Prefix.Contains(r.Start) {
		p.addf(r.path+"."+startKey, "choose an address inside it", "%v lies outside %v", r.Start, r.Prefix)
	}
	if r.End.IsValid() && !r.Prefix.Contains(r.End) {
		p.addf(r.path+"."+endKey, "choose an address inside it", "%v lies outside %v", r.End, r.Prefix)
	}
	if p.n == before && r.Start.IsValid() && r.End.IsValid() && r.End.Less(r.Start) {
		p.addf(r.path+"."+startKey, "write the lower address as the start", "%v comes after the end %v", r.Start, r.End)
	}
}

// Answer returns the prefix length and the gateway (zero: none) that a result
// gives with address a of this source; in is the pool's range that a lies in.
//
// For a named pool both are the pool's. An inline source answers what its own
// configuration says, whatever others add to the pool.
func (s Source) Answer(a netip.Addr, in allocator.Range) (bits int, gateway netip.Addr) {
	own, ok := s.inlineRangeOf(a)
	if !ok {
		return in.Prefix.Bits(), s.gatewayOf(in)
	}
	return own.Prefix.Bits(), s.gatewayOf(own)
}

// inlineRangeOf returns the inline range that has a between its start and its end.
func (s Source) inlineRangeOf(a netip.Addr) (allocator.Range, bool) {
	for _, r := range s.Ranges {
		if span(r).Contains(a) {
			return r, true
		}
	}
	return allocator.Range{}, false
}

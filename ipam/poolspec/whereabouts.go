package poolspec

import (
	"fmt"
	"net/netip"
	"strings"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
)

// whereabouts reads whereabouts' form: "range" with its companions, then each of
// "ipRanges". One address is taken of each.
func (p *parser) whereabouts() {
	var ranges []inlineRange
	if _, ok := p.ipam.get("range"); ok {
		if r, ok := p.wbRange(p.ipam); ok {
			ranges = append(ranges, r)
		}
	} else {
		for _, key := range []string{"range_start", "range_end", "exclude"} {
			if _, ok := p.ipam.get(key); ok {
				p.add(p.ipam.at(key), "belongs to range, which is missing", "move it into the entries of ipRanges")
			}
		}
	}
	raw, _ := p.ipam.find("ipRanges")
	if raw != nil {
		for i, item := range p.items(p.ipam.at("ipRanges"), raw) {
			if r, ok := p.wbEntry(fmt.Sprintf("%s[%d]", p.ipam.at("ipRanges"), i), item); ok {
				ranges = append(ranges, r)
			}
		}
	}
	p.wbGateway(ranges)

	shared := p.flag(p.ipam, "enable_overlapping_ranges", true)
	network := p.text(p.ipam, "network_name")
	var sets []inlineSet
	for _, r := range ranges {
		set := inlineSet{path: r.path, ranges: []inlineRange{r}}
		switch {
		case p.cfg.Mode == ModeLocal:
			set.pool = poolName(p.cfg.Name)
		case shared && network == "":
			set.pool, set.unnamed = unnamedPool(ranges[0].Prefix), true
		default:
			set.pool = wbPool(network, shared, r.Prefix)
		}
		sets = append(sets, set)
	}
	if countRanges(sets) <= maxRanges && p.n == p.mark {
		p.wbOverlaps(sets)
	}
	p.inline(sets)
}

// wbOverlaps reports ranges of different pools that both may give an address: an
// interface that gets one of each could get it twice.
func (p *parser) wbOverlaps(sets []inlineSet) {
	gives := make([]*netipx.IPSet, len(sets))
	for i, set := range sets {
		r := set.ranges[0].Range
		gives[i] = usable(r)
		for k, earlier := range sets[:i] {
			if earlier.pool != set.pool && gives[k].Overlaps(gives[i]) {
				p.addf(set.path, "part them by range_start and range_end, or by exclude, or leave enable_overlapping_ranges out",
					"overlaps %s, and the two give out their addresses apart: %s and %s", earlier.path, textOfRange(span(r)), textOfRange(span(earlier.ranges[0].Range)))
				break
			}
		}
	}
}

// wbPool returns the pool of a range in a cluster, where the configuration tells it: where ranges
// are shared, all of a network are one addressing domain; else each CIDR is a domain of its own. In
// local mode a network's pool is its own, whatever its ranges are: an edit of them never loses
// sight of what has been given.
func wbPool(network string, shared bool, p netip.Prefix) string {
	switch {
	case shared:
		return poolName(network)
	case network == "":
		return poolName(rangeName(p))
	default:
		return poolName(network + "-" + rangeName(p))
	}
}

// unnamedPool returns the name of a pool that is made for a configuration whose first range is p,
// where nobody has given the network a name.
func unnamedPool(p netip.Prefix) string { return "range-" + rangeName(p) }

// wbEntry reads one of "ipRanges".
func (p *parser) wbEntry(path string, raw []byte) (inlineRange, bool) {
	o, ok := p.dict(path, raw)
	if !ok {
		return inlineRange{}, false
	}
	p.only(o, "range", "range_start", "range_end", "exclude", "gateway", "enable_l3")
	if p.flag(o, "enable_l3", false) {
		for _, k := range ipamKeys {
			if k.name == "enable_l3" {
				p.unsupported(o.at(k.name), []byte("true"), "is not supported", k.why)
			}
		}
	}
	r, ok := p.wbRange(o)
	if ok {
		r.Gateway = optionalAddr(&p.faults, o.at("gateway"), p.text(o, "gateway"))
		if r.Gateway.IsValid() && r.Gateway.Is4() != r.Prefix.Addr().Is4() {
			p.addf(o.at("gateway"), "name a gateway of the range's family", "%v is of another family than %v", r.Gateway, r.Prefix)
		}
	}
	return r, ok
}

// wbRange reads range, range_start, range_end and exclude of o. A range is a
// CIDR, whose host bits mean nothing, or "first-last/length".
func (p *parser) wbRange(o object) (inlineRange, bool) {
	before := p.n
	r := inlineRange{path: o.path}
	start := optionalAddr(&p.faults, o.at("range_start"), p.text(o, "range_start"))
	end := optionalAddr(&p.faults, o.at("range_end"), p.text(o, "range_end"))

	text := p.text(o, "range")
	first, last, dashed := strings.Cut(text, "-")
	switch {
	case text == "" && p.n == before:
		p.add(o.at("range"), "is missing", remedyCIDR)
	case text == "":
	case dashed:
		from, fromOK := parseAddr(&p.faults, o.at("range"), first)
		to, toOK := parsePrefix(&p.faults, o.at("range"), last)
		if !fromOK || !toOK {
			break
		}
		r.Prefix = to.Masked()
		r.Start, r.End = p.wbEnd(o, "range_start", start, from), p.wbEnd(o, "range_end", end, to.Addr())
		if !r.Prefix.Contains(from) {
			p.addf(o.at("range"), "write first-last/length, all of one CIDR", "starts with %v, which lies outside %v", from, r.Prefix)
		}
	default:
		if cidr, ok := parsePrefix(&p.faults, o.at("range"), text); ok {
			r.Prefix, r.Start, r.End = cidr.Masked(), start, end
		}
	}
	if p.n == before {
		p.checkSpan(&r, "range_start", "range_end")
	}
	r.Exclude = p.wbExclude(o, r.Range)
	return r, p.n == before
}

// wbEnd returns which end "first-last/length" has, and reports a key that says
// otherwise.
func (p *parser) wbEnd(o object, key string, said, inRange netip.Addr) netip.Addr {
	if said.IsValid() && said != inRange {
		p.addf(o.at(key), "remove it, or write range as a CIDR", "is %v, and range says %v", said, inRange)
	}
	return inRange
}

// wbExclude reads the excludes of r. Host bits mean nothing. One outside r is
// harmless, as it is for whereabouts, and noted.
func (p *parser) wbExclude(o object, r allocator.Range) []netipx.IPRange {
	var spans []netipx.IPRange
	for i, text := range p.texts(o, "exclude") {
		at := fmt.Sprintf("%s[%d]", o.at("exclude"), i)
		if text == "" {
			continue // reported
		}
		x, ok := parseSpan(&p.faults, at, text, true)
		if !ok {
			continue
		}
		if r.Prefix.IsValid() && !x.Overlaps(netipx.RangeOfPrefix(r.Prefix)) {
			p.cfg.Ignored = append(p.cfg.Ignored, fmt.Sprintf("%s: %s lies outside %v and excludes nothing", at, text, r.Prefix))
			continue
		}
		spans = append(spans, x)
	}
	return spans
}

// wbGateway reads the gateway of all ranges. Those that contain it have it; if
// none does, those of its family do, and answer it as whereabouts would.
func (p *parser) wbGateway(ranges []inlineRange) {
	gw := optionalAddr(&p.faults, p.ipam.at("gateway"), p.text(p.ipam, "gateway"))
	if !gw.IsValid() || len(ranges) == 0 {
		return
	}
	inside := false
	for _, r := range ranges {
		inside = inside || r.Prefix.Contains(gw)
	}
	used := false
	for i := range ranges {
		r := &ranges[i]
		mine := r.Prefix.Contains(gw) || !inside && r.Prefix.Addr().Is4() == gw.Is4()
		used = used || mine
		if mine && !r.Gateway.IsValid() {
			r.Gateway = gw
		}
	}
	if !used {
		p.addf(p.ipam.at("gateway"), "remove it, or name one of the ranges' family", "%v is of another family than every range", gw)
	}
}

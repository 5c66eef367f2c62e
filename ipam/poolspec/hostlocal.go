package poolspec

import (
	"fmt"

	"go4.org/netipx"
)

// hostLocal reads host-local's form: the ranges of runtimeConfig, then "subnet"
// with its companions, then "ranges". One address is taken of each set.
func (p *parser) hostLocal() {
	sets := p.hlRuntime()
	if _, ok := p.ipam.get("subnet"); ok {
		if r, ok := p.hlRange(p.ipam); ok {
			sets = append(sets, inlineSet{path: p.ipam.path, ranges: []inlineRange{r}})
		}
	} else {
		for _, key := range []string{"rangeStart", "rangeEnd", "gateway"} {
			if _, ok := p.ipam.get(key); ok {
				p.add(p.ipam.at(key), "belongs to subnet, which is missing", "move it into the entries of ranges")
			}
		}
	}
	if raw, ok := p.ipam.get("ranges"); ok {
		sets = append(sets, p.hlSets(p.ipam.at("ranges"), raw)...)
	}
	for i := range sets {
		sets[i].pool = poolName(p.cfg.Name)
	}
	if countRanges(sets) <= maxRanges {
		p.hlOverlaps(sets)
	}
	p.inline(sets)
}

// hlRuntime reads runtimeConfig.ipRanges. They differ from pod to pod, so only
// local mode can have a pool of them.
func (p *parser) hlRuntime() []inlineSet {
	raw, ok := p.runtime.ranges.get("ipRanges")
	if !ok {
		return nil
	}
	path := p.runtime.ranges.at("ipRanges")
	if p.cfg.Mode != ModeLocal {
		p.add(path, "describes ranges for one pod, which only local mode can serve",
			"put the ranges into the configuration or an IPPool, and drop the capability ipRanges")
		return nil
	}
	return p.hlSets(path, raw)
}

// hlSets reads a list of lists of ranges.
func (p *parser) hlSets(path string, raw []byte) []inlineSet {
	var sets []inlineSet
	for i, item := range p.items(path, raw) {
		set := inlineSet{path: fmt.Sprintf("%s[%d]", path, i)}
		if says(item, kindNothing) {
			p.add(set.path, "is empty", "remove it, or describe at least one subnet")
			continue
		}
		for j, entry := range p.items(set.path, item) {
			o, ok := p.dict(fmt.Sprintf("%s[%d]", set.path, j), entry)
			if !ok {
				continue
			}
			p.only(o, "subnet", "rangeStart", "rangeEnd", "gateway")
			if r, ok := p.hlRange(o); ok {
				set.ranges = append(set.ranges, r)
			}
		}
		p.hlFamily(set)
		if len(set.ranges) > 0 {
			sets = append(sets, set)
		}
	}
	return sets
}

// hlFamily reports a set of both families: it stands for one address.
func (p *parser) hlFamily(set inlineSet) {
	for _, r := range set.ranges {
		if r.Prefix.Addr().Is4() != set.ranges[0].Prefix.Addr().Is4() {
			p.addf(r.path, "put IPv4 and IPv6 subnets into lists of their own", "mixes families: %v beside %v", r.Prefix, set.ranges[0].Prefix)
			return
		}
	}
}

// hlRange reads subnet, rangeStart, rangeEnd and gateway of o. The gateway is
// the subnet's first address unless o says otherwise.
func (p *parser) hlRange(o object) (inlineRange, bool) {
	before := p.n
	r := inlineRange{path: o.path}
	r.Start = optionalAddr(&p.faults, o.at("rangeStart"), p.text(o, "rangeStart"))
	r.End = optionalAddr(&p.faults, o.at("rangeEnd"), p.text(o, "rangeEnd"))
	r.Gateway = optionalAddr(&p.faults, o.at("gateway"), p.text(o, "gateway"))

	if text := p.text(o, "subnet"); text == "" {
		if p.n == before {
			p.add(o.at("subnet"), "is missing", remedyCIDR)
		}
	} else if cidr, ok := parseNetwork(&p.faults, o.at("subnet"), text); ok {
		r.Prefix = cidr
		p.hlSubnet(o, &r)
	}
	if p.n == before {
		p.checkSpan(&r, "rangeStart", "rangeEnd")
	}
	return r, p.n == before
}

// hlSubnet checks what only a subnet and its gateway can get wrong.
func (p *parser) hlSubnet(o object, r *inlineRange) {
	first := r.Prefix.Addr()
	switch {
	case first.BitLen()-r.Prefix.Bits() < 2:
		p.addf(o.at("subnet"), fmt.Sprintf("use a prefix of at most /%d, or whereabouts' form, which needs no gateway", first.BitLen()-2),
			"%v is too small for a network with a gateway", r.Prefix)
	case !r.Gateway.IsValid():
		r.Gateway = first.Next()
	case r.Gateway.Is4() != first.Is4():
		p.addf(o.at("gateway"), "name a gateway of the subnet's family", "%v is of another family than %v", r.Gateway, r.Prefix)
	}
}

// hlOverlaps reports ranges that have an address in common.
func (p *parser) hlOverlaps(sets []inlineSet) {
	var all []inlineRange
	for _, set := range sets {
		all = append(all, set.ranges...)
	}
	for i, r := range all {
		for _, earlier := range all[:i] {
			if a, b := span(earlier.Range), span(r.Range); a.Overlaps(b) {
				p.addf(r.path, "give each subnet once, or let rangeStart and rangeEnd part them",
					"overlaps %s: %s and %s", earlier.path, textOfRange(b), textOfRange(a))
				break
			}
		}
	}
}

// textOfRange writes r for people, as first-last.
func textOfRange(r netipx.IPRange) string { return r.From().String() + "-" + r.To().String() }

package foreign

import (
	"cmp"
	"slices"
)

// segment is what tells a pool's segment from others.
type segment struct {
	definitions []Definition
	// names are what the segment is called: the pool's domain, and what the definitions say that
	// are the pool's.
	names map[string]bool
	// named says that the controller has made the pool of a network_name, which all of its own
	// definitions have. Another network_name is then another segment's. Of a pool that a person has
	// written it tells nothing: anybody may name that in a definition.
	named bool
}

// Segment returns the definitions of p's segment. One that Tenure refuses is of it, too: pods have
// addresses by what it was before.
func (p Pool) Segment(all []Definition) []Definition { return p.segment(all).definitions }

// segment works out what p's segment is. What a definition of p's own says of its segment p's
// segment is called as well: a definition that says the same is of it.
func (p Pool) segment(all []Definition) segment {
	s := segment{names: map[string]bool{p.domain(): true}}
	var touching []Definition
	own, unnamed := false, false
	for _, d := range all {
		if !p.touches(d) {
			continue
		}
		touching = append(touching, d)
		if !p.owns(d) {
			continue
		}
		own, unnamed = own || d.Fault == "", unnamed || d.NetworkName == ""
		for _, name := range []string{d.Domain, d.NetworkName} {
			if name != "" {
				s.names[name] = true
			}
		}
	}
	s.named = p.Implicit && p.Domain != "" && own && !unnamed
	for _, d := range touching {
		if p.owns(d) || !s.isOther(d) {
			s.definitions = append(s.definitions, d)
		}
	}
	return s
}

// isOther reports whether d, which is not the pool's own, says that its network is of another
// segment.
func (s segment) isOther(d Definition) bool {
	name := d.segmentName()
	return name != "" && !s.names[name] && (s.named || d.Domain != "")
}

// segmentName returns what d says that its segment is called, "" if it does not say.
func (d Definition) segmentName() string { return cmp.Or(d.Domain, d.NetworkName) }

// owns reports whether d, which touches p, is of p, or will be once it is switched to Tenure. It is
// then of p's segment, whatever it says.
func (p Pool) owns(d Definition) bool {
	return d.Unnamed && d.IPAM == Type && p.Unnamed || !d.Unnamed && slices.Contains(d.PoolsThen, string(p.Name))
}

// touches reports whether d's ranges overlap p's, or d names p, or labels of namespaces do by which
// d goes. Of a definition of Tenure's without a name the ranges count, of the pools of the default
// domain. One of Tenure's that is of another pool may be of p's segment all the same: see mayHave.
func (p Pool) touches(d Definition) bool {
	switch unnamed := d.Unnamed && d.IPAM == Type; {
	case d.ByNamespace, slices.Contains(d.Pools, string(p.Name)) && !unnamed:
		return true
	case p.Whole == nil:
		return false
	case unnamed && !p.Unnamed, len(d.Pools) > 0 && !unnamed:
		return p.mayHave(d)
	}
	return p.overlaps(d.CIDRs)
}

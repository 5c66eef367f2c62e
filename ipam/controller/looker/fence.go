package looker

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/foreign"
)

// seeFences notes since when each pool's status has had its fence. It goes by this program's clock:
// the status may have been written long after the time that it names.
func (l *Looker) seeFences(pools []v1alpha1.IPPool) {
	next := map[string]fence{}
	for i := range pools {
		p := &pools[i]
		f := fence{fmt.Sprint(p.UID, p.Status.FencedSince), p.Status.Fenced, l.Now()}
		if last, ok := l.fences[p.Name]; ok && last.of == f.of && len(added(last.fenced, f.fenced)) == 0 {
			f.since = last.since
		}
		next[p.Name] = f
	}
	l.fences = next
}

// The kinds of what a pool fences. If there is no room for all of it, the last ones are left out.
const (
	fencedObject  = iota // an IPPool of whereabouts' that exists
	fencedRange          // addresses of which no reservation is made
	fencedMissing        // an IPPool that does not exist yet, or a range of a network_name that is gone
)

// fence returns the IPPools and ranges of which whereabouts must give nothing new, because p takes
// its addresses over. The IPPools are those that cover addresses of p, or would by the definitions
// of p's segment, and that no definition with whereabouts as its IPAM uses. Of the ranges it makes
// no reservations: see unreserved. Had is what p fences already: once p was open, a definition of
// its segment that is whereabouts' again lifts none of that, since pods have these addresses.
// Unfenced is what there is no room for, without IPPools that do not exist.
func (t *look) fence(p *pool, had []string) (all, unfenced []string) {
	if !t.served {
		return nil, nil
	}
	if p.Fresh {
		had = nil
	}
	kinds := map[string]int{}
	for _, o := range t.objects {
		if slices.ContainsFunc(p.Whole.Ranges(), func(r allocator.Range) bool {
			return netipx.IPRangeFrom(r.Start, r.End).Overlaps(netipx.RangeOfPrefix(o.covers))
		}) {
			kinds[o.name] = fencedObject
		}
	}
	networks := map[string]bool{"": true, p.Domain: true} // a definition may be gone that had the object
	reserves := maps.Clone(networks)                      // those of which reservations are fenced
	refused := map[string]bool{}                          // definitions that have had moved to Tenure
	for _, d := range p.Segment(t.facts.Definitions) {
		refused[d.String()] = !slices.Contains(p.ShareWith, d.String())
		networks[d.NetworkName] = true
		reserves[d.NetworkName] = reserves[d.NetworkName] || refused[d.String()]
	}
	for _, d := range p.SegmentLately(t.facts.Definitions, t.whereaboutsFormer()) { // with one that was written anew
		for _, o := range d.Whereabouts {
			if _, there := kinds[o.Name]; !there && !slices.Contains(p.ShareWith, d.String()) {
				kinds[o.Name] = fencedMissing
			}
		}
	}
	covered := len(kinds) > 0 || len(had) > 0
	for _, d := range t.facts.Definitions {
		if d.IPAM != foreign.TypeWhereabouts {
			continue
		}
		for _, o := range d.Whereabouts {
			if !refused[d.String()] || !slices.Contains(had, o.Name) {
				delete(kinds, o.Name)
			}
		}
		for _, name := range t.slicesOf(d, networks) {
			if !refused[d.String()] || !slices.Contains(had, name) {
				delete(kinds, name)
			}
		}
	}
	if covered { // also where others use all of the objects
		for _, text := range t.unreserved(p, t.reservedBefore(p, reserves, refused, had), refused, had, false) {
			kinds[text] = fencedMissing
		}
		texts := t.unreserved(p, reserves, refused, had, false)
		if len(kinds)+len(texts) > maxFence {
			texts = t.unreserved(p, reserves, refused, had, true)
		}
		for _, text := range texts {
			kinds[text] = fencedRange
		}
	}
	all = slices.SortedFunc(maps.Keys(kinds), func(a, b string) int {
		return cmp.Or(cmp.Compare(kinds[a], kinds[b]), strings.Compare(a, b))
	})
	room := maxFence
	all = slices.DeleteFunc(all, func(text string) bool {
		if len(text) <= maxFenced && room > 0 {
			room--
			return false
		}
		if kinds[text] != fencedMissing {
			unfenced = append(unfenced, text)
		}
		return true
	})
	slices.Sort(all)
	return all, unfenced
}

// whereaboutsFormer returns what definitions were lately, as far as whereabouts ran them. What
// others have of its keys they never gave.
func (t *look) whereaboutsFormer() []foreign.Definition {
	return slices.DeleteFunc(slices.Clone(t.facts.Former), func(d foreign.Definition) bool { return d.IPAM != foreign.TypeWhereabouts })
}

// reservedBefore returns network_names of which p fences reservations, beside some: those that a
// definition said until a while ago, which was written anew for p, and those that were fenced
// before. Names of definitions that stay with whereabouts are left out.
func (t *look) reservedBefore(p *pool, beside, refused map[string]bool, had []string) map[string]bool {
	all := map[string]bool{}
	for _, d := range p.SegmentLately(t.facts.Definitions, t.whereaboutsFormer()) {
		if d.IPAM == foreign.TypeWhereabouts && !slices.Contains(p.ShareWith, d.String()) {
			all[d.NetworkName] = true
		}
	}
	for _, text := range had {
		if network, _, ok := parseRange(text); ok {
			all[strings.TrimSuffix(network, "-")] = true
		}
	}
	for _, d := range t.facts.Definitions {
		if d.IPAM == foreign.TypeWhereabouts && !refused[d.String()] {
			delete(all, d.NetworkName)
		}
	}
	maps.DeleteFunc(all, func(network string, _ bool) bool { _, known := beside[network]; return known })
	return all
}

// isNew reports whether p fences something that it has not fenced before and that whereabouts may
// have given: what exists, or is of no network_name or of the pool's own. Else only pods of a
// definition that was written lately can have it, and these count by the time of that.
func (t *look) isNew(p *pool, fence []string) bool {
	return slices.ContainsFunc(added(p.object.Status.Fenced, fence), func(text string) bool {
		_, unnamed := reserved(text, "")
		_, own := reserved(text, p.Domain)
		return unnamed || own || slices.ContainsFunc(t.objects, func(o object) bool { return o.name == text })
	})
}

// slicesOf returns the names of the IPPools that whereabouts has for the nodes' slices of a
// definition's ranges. They begin with its network_name. Those that begin with a longer one of
// some networks are that network's.
func (t *look) slicesOf(d foreign.Definition, networks map[string]bool) (names []string) {
	if !d.NodeSlices || d.NetworkName == "" {
		return nil
	}
	for _, o := range t.objects {
		within := slices.ContainsFunc(d.CIDRs, func(c netip.Prefix) bool {
			return c.Bits() <= o.covers.Bits() && c.Overlaps(o.covers)
		})
		if within && isOf(o.name, d.NetworkName, networks) {
			names = append(names, o.name)
		}
	}
	return names
}

// isOf reports whether the name of one of whereabouts' IPPools begins with a network_name, and with
// no longer one of some networks.
func isOf(object, network string, networks map[string]bool) bool {
	for n := range networks {
		if len(n) > len(network) && strings.HasPrefix(object, before(n)) {
			return false
		}
	}
	return strings.HasPrefix(object, before(network))
}

// let lifts from an open pool's fence, had, what belongs to definitions of whereabouts' that its
// spec.shareWith names: their IPPools, and of their networks what they give.
func (t *look) let(p *pool, had []string) []string {
	own := map[string]bool{p.Domain: true}
	for _, d := range t.facts.Definitions {
		if d.IPAM != foreign.TypeWhereabouts || !slices.Contains(p.ShareWith, d.String()) {
			continue
		}
		var left []string
		for _, text := range had {
			c, ok := reserved(text, d.NetworkName)
			switch {
			case ok:
				var b netipx.IPSetBuilder
				b.AddPrefix(c)
				b.RemoveSet(d.Takes)
				set, _ := b.IPSet() // of valid ranges alone
				for _, c := range set.Prefixes() {
					left = append(left, before(d.NetworkName)+c.String())
				}
			case slices.ContainsFunc(d.Whereabouts, func(o foreign.Object) bool { return o.Name == text }),
				!isRange(text) && d.NodeSlices && d.NetworkName != "" && isOf(text, d.NetworkName, own):
			default:
				left = append(left, text)
			}
		}
		if len(left) <= maxFence {
			had = left
		}
	}
	return had
}

// lacksRanges reports whether an open pool fences IPPools alone: it was opened by a version that
// fenced no reservations.
func lacksRanges(o *v1alpha1.IPPool) bool {
	return o.DeletionTimestamp == nil && o.Status.Leasing == v1alpha1.LeasingOpen && o.Status.FencedSince != nil && len(o.Status.Fenced) > 0 && !slices.ContainsFunc(o.Status.Fenced, isRange)
}

// addFence returns what an open pool fences, with what is to be added where there is room for it:
// ranges that it lacks, and what whereabouts has for definitions that were switched to Tenure a
// while ago.
func (t *look) addFence(p *pool, had []string) []string {
	tenures := map[string]bool{}
	for _, d := range t.facts.Definitions {
		tenures[d.String()] = d.IPAM == foreign.Type
	}
	switched := slices.DeleteFunc(p.SegmentLately(t.facts.Definitions, t.facts.Former), func(d foreign.Definition) bool {
		return d.IPAM != foreign.TypeWhereabouts || !tenures[d.String()]
	})
	all, _ := t.fence(p, had)
	lacks := lacksRanges(p.object)
	all = slices.DeleteFunc(all, func(text string) bool {
		return !(lacks && isRange(text)) && !slices.ContainsFunc(switched, func(d foreign.Definition) bool { return isFor(d, text) })
	})
	all = slices.Concat(all, had)
	slices.Sort(all)
	if all = slices.Compact(all); len(all) > maxFence {
		return had
	}
	return all
}

// isFor reports whether an item of a fence is for a definition with whereabouts as its IPAM.
func isFor(d foreign.Definition, fenced string) bool {
	_, ok := reserved(fenced, d.NetworkName)
	return ok || slices.ContainsFunc(d.Whereabouts, func(o foreign.Object) bool { return o.Name == fenced }) ||
		d.NodeSlices && d.NetworkName != "" && strings.HasPrefix(fenced, before(d.NetworkName))
}

// whyUnfenced says that there is no room for some of what p fences, and what to do about the
// definitions for which it is.
func (t *look) whyUnfenced(p *pool, unfenced []string) string {
	var of []string
	for _, d := range p.Segment(t.facts.Definitions) {
		if d.NetworkName != "" && slices.ContainsFunc(unfenced, func(text string) bool { return strings.HasPrefix(text, before(d.NetworkName)) }) {
			of = append(of, d.String())
		}
	}
	for _, d := range t.facts.Definitions {
		if d.IPAM != foreign.TypeWhereabouts || !slices.ContainsFunc(unfenced, func(text string) bool { _, ok := reserved(text, d.NetworkName); return ok }) {
			continue
		}
		var b netipx.IPSetBuilder
		for _, r := range p.Whole.Ranges() {
			b.AddPrefix(r.Prefix)
		}
		b.RemoveSet(d.Takes)
		set, _ := b.IPSet() // of valid ranges alone
		if n := len(set.Prefixes()); n > maxFence {
			of = []string{fmt.Sprintf("%s, which names whereabouts, and leaves %d ranges of the pool's between those that it gives", d, n)}
			break
		}
	}
	todo := "Delete IPPools that nobody uses any more, or make the pool smaller"
	if len(of) > 0 {
		todo = fmt.Sprintf("They are for definition %s. Give the network a shorter network_name, one of its own, or fewer excludes; or, if it is another network, name the definition in spec.shareWith", foreign.Few(of))
	}
	return fmt.Sprintf("%d of whereabouts' IPPools and ranges cannot be kept from giving more of its addresses, the first of them %.60s: there is room for %d, of %d characters each. %s",
		len(unfenced), unfenced[0], maxFence, maxFenced, todo)
}

// unreserved returns the ranges of which whereabouts must make no reservation of some
// network_names: those of p, without what definitions of that name with whereabouts as their IPAM
// may give. What had has stays fenced, also where a refused definition may give it. Each range is
// written as a reservation's name is, with a CIDR for the address. If whole is true, what lies
// between the addresses that a definition gives is left out as well, where a person lets that one.
func (t *look) unreserved(p *pool, networks, refused map[string]bool, had []string, whole bool) (texts []string) {
	stays := map[string]*netipx.IPSet{} // whereabouts': of its CIDRs what it gave lately it may give again
	for _, d := range t.facts.Definitions {
		if d.IPAM == foreign.TypeWhereabouts && !refused[d.String()] {
			var b netipx.IPSetBuilder
			for _, c := range d.CIDRs {
				b.AddPrefix(c)
			}
			stays[d.String()], _ = b.IPSet() // of valid prefixes alone
		}
	}
	lately := slices.DeleteFunc(slices.Clone(t.facts.Former), func(d foreign.Definition) bool { return stays[d.String()] == nil || d.Takes == nil })
	for network, reserves := range networks {
		if !reserves || len(before(network))+len("::") > maxFenced { // no object has such a name
			continue
		}
		var fenced, b netipx.IPSetBuilder
		for _, text := range had {
			if c, ok := reserved(text, network); ok {
				fenced.AddPrefix(c)
			}
		}
		kept, _ := fenced.IPSet() // of valid prefixes alone
		for _, r := range p.Whole.Ranges() {
			b.AddPrefix(r.Prefix)
		}
		for _, d := range t.facts.Definitions {
			if d.IPAM != foreign.TypeWhereabouts || d.NetworkName != network {
				continue
			}
			var gives netipx.IPSetBuilder
			gives.AddSet(d.Takes)
			if refused[d.String()] {
				gives.RemoveSet(kept)
			}
			set, _ := gives.IPSet() // of sets alone
			b.RemoveSet(set)
			if whole && slices.Contains(p.ShareWith, d.String()) {
				b.RemoveSet(spanned(p, set))
			}
		}
		for _, d := range lately {
			if d.NetworkName == network {
				var again netipx.IPSetBuilder
				again.AddSet(d.Takes)
				again.Intersect(stays[d.String()])
				set, _ := again.IPSet() // of sets alone
				b.RemoveSet(set)
			}
		}
		set, _ := b.IPSet() // of valid ranges alone
		for _, c := range set.Prefixes() {
			texts = append(texts, before(network)+c.String())
		}
	}
	return texts
}

// spanned returns of each range of p all from the first to the last address that a set has of it.
func spanned(p *pool, set *netipx.IPSet) *netipx.IPSet {
	var b netipx.IPSetBuilder
	for _, r := range p.Whole.Ranges() {
		all := slices.DeleteFunc(set.Ranges(), func(x netipx.IPRange) bool { return !x.Overlaps(netipx.RangeOfPrefix(r.Prefix)) })
		if n := len(all); n > 0 {
			b.AddRange(netipx.IPRangeFrom(all[0].From(), all[n-1].To()))
		}
	}
	whole, _ := b.IPSet() // of valid ranges alone
	return whole
}

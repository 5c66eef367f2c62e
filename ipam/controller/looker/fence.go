package looker

import (
	"cmp"
	"fmt"
	"maps"
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
		f := fence{fmt.Sprint(p.UID, p.Status.Fenced, p.Status.FencedSince), l.Now()}
		if last, ok := l.fences[p.Name]; ok && last.of == f.of {
			f = last
		}
		next[p.Name] = f
	}
	l.fences = next
}

// fence returns the names of the whereabouts IPPools that must give nothing new, because p takes
// their addresses over. They cover addresses of p, or would by the definitions of p's segment, and
// no definition with whereabouts as its IPAM uses them. If there are more than the status takes,
// those that exist come first, and unfenced is how many existing ones there is no room for.
func (t *look) fence(p *pool) (all []string, unfenced int) {
	if !t.served {
		return nil, 0
	}
	names, missing := map[string]bool{}, map[string]int{} // missing has 1 for those that do not exist
	for _, o := range t.objects {
		if slices.ContainsFunc(p.Whole.Ranges(), func(r allocator.Range) bool {
			return netipx.IPRangeFrom(r.Start, r.End).Overlaps(netipx.RangeOfPrefix(o.covers))
		}) {
			names[o.name] = true
		}
	}
	for _, d := range p.Segment(t.facts.Definitions) {
		for _, o := range d.Whereabouts {
			if !names[o.Name] {
				names[o.Name], missing[o.Name] = true, 1
			}
		}
	}
	for _, d := range t.facts.Definitions {
		if d.IPAM == foreign.TypeWhereabouts {
			for _, o := range d.Whereabouts {
				delete(names, o.Name)
			}
		}
	}
	all = slices.SortedFunc(maps.Keys(names), func(a, b string) int {
		return cmp.Or(cmp.Compare(missing[a], missing[b]), strings.Compare(a, b))
	})
	for len(all) > maxFence {
		unfenced += 1 - missing[all[len(all)-1]]
		all = all[:len(all)-1]
	}
	slices.Sort(all)
	return all, unfenced
}

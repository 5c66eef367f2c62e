package allocator

import (
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
)

// View is what one network may take of a pool: its own start, end and excludes.
// A View is immutable and safe for concurrent use. The zero View is everything.
type View struct {
	set *byFamily // nil: everything
}

// NewView returns the View of the addresses in set. A nil or empty set is the
// View of nothing.
func NewView(set *netipx.IPSet) View {
	if set == nil {
		return View{&byFamily{}}
	}
	s := split(set)
	return View{&s}
}

// IsAll reports whether v is everything.
func (v View) IsAll() bool { return v.set == nil }

// Contains reports whether a may be taken.
func (v View) Contains(a netip.Addr) bool {
	f := FamilyOf(a)
	if v.set == nil {
		return f != 0
	}
	return v.set.of(f).contains(a)
}

// Intersect returns the View of what both v and w contain.
func (v View) Intersect(w View) View {
	if v.set == nil {
		return w
	}
	if w.set == nil {
		return v
	}
	return View{&byFamily{
		v4: intersect(v.set.v4, w.set.v4),
		v6: intersect(v.set.v6, w.set.v6),
	}}
}

// intersect returns what both a and b contain.
func intersect(a, b ranges) ranges {
	var both ranges
	for i, j := 0, 0; i < len(a) && j < len(b); {
		from, to := a[i].From(), a[i].To()
		if from.Less(b[j].From()) {
			from = b[j].From()
		}
		if b[j].To().Less(to) {
			to = b[j].To()
			j++
		} else {
			i++
		}
		if !to.Less(from) {
			both = append(both, netipx.IPRangeFrom(from, to))
		}
	}
	return both
}

// Equal reports whether v and w contain the same addresses. Everything is equal
// to itself only, not to a set that happens to hold every address.
func (v View) Equal(w View) bool {
	if v.set == nil || w.set == nil {
		return v.set == w.set
	}
	return slices.Equal(v.set.v4, w.set.v4) && slices.Equal(v.set.v6, w.set.v6)
}

// String returns "everything", "nothing", or the ranges as
// "10.0.0.1-10.0.0.9,10.0.1.1-10.0.1.1".
func (v View) String() string {
	if v.set == nil {
		return "everything"
	}
	var all []string
	for _, r := range slices.Concat(v.set.v4, v.set.v6) {
		all = append(all, r.String())
	}
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, ",")
}

// next returns the lowest address of v at or after a, which has family f.
func (v View) next(f Family, a netip.Addr) (netip.Addr, bool) {
	if v.set == nil {
		return a, true
	}
	a, _, ok := v.set.of(f).next(a)
	return a, ok
}

// clip returns which of m, offsets into the block p, lie in v.
func (v View) clip(m bitmap, p netip.Prefix) bitmap {
	if v.set == nil || m.empty() {
		return m
	}
	return m.and(v.set.of(FamilyOf(p.Addr())).mask(p))
}

package foreign

import (
	"slices"

	"go4.org/netipx"
)

// remember notes which definitions were of the segment until a while ago, by another IPAM: whatever
// Tenure's gave is Tenure's. Those that are of it still count as they are now.
func (w *weighing) remember() {
	for _, d := range w.formerOf(w.segment, w.Former) {
		name := d.String()
		switch {
		case w.known[name] == nil:
			w.mine[name] = true
		case w.mine[name]:
		case w.hasLeft(d):
			w.left[name] = true
		default:
			continue
		}
		w.former = append(w.former, d)
		w.noteObjects(d)
		if of := w.were[d.Network]; len(of) == 0 || of[len(of)-1] != name {
			w.were[d.Network] = append(of, name)
		}
		w.needFiles(d)
	}
}

// noteObjects notes the objects of whereabouts' that a definition means, and no other segment does.
func (w *weighing) noteObjects(d Definition) {
	for _, o := range d.Whereabouts {
		w.objects[o.Name] = w.objects[o.Name] || d.NetworkName != ""
	}
}

// formerOf returns those of former, which are definitions as they were, that were of a segment of
// p's by another IPAM.
func (p Pool) formerOf(s segment, former []Definition) (of []Definition) {
	for _, d := range former {
		if d.IPAM != Type && p.touches(d) && (p.owns(d) || !s.isOther(d)) {
			of = append(of, d)
		}
	}
	return of
}

// SegmentLately returns the definitions of p's segment, and what former ones of it were.
func (p Pool) SegmentLately(all, former []Definition) []Definition {
	s := p.segment(all)
	return append(s.definitions, p.formerOf(s, former)...)
}

// wasOn reports whether what a node says is of a network that a definition of the segment had until
// a while ago, and is not explained by that definition as it is now.
func (w *weighing) wasOn(c claim) bool {
	_, _, selected := w.ofNetwork(c.of, c.pod)
	return slices.ContainsFunc(w.were[c.of], func(name string) bool {
		is := w.known[name]
		if selected && !slices.Contains(c.pod.Selected, name) {
			return false // the pod has the network by another
		}
		return is == nil || is.Network != c.of || !w.explains(is, c.addr)
	})
}

// hasLeft reports whether a definition has given addresses of the pool, as it was, that are not
// explained as it is now. An ADD by what it was may still give one of them.
func (w *weighing) hasLeft(was Definition) bool {
	is := w.known[was.String()]
	if was.Takes == nil {
		return false
	}
	var rest netipx.IPSetBuilder
	rest.AddSet(was.Takes)
	rest.Intersect(w.Whole.Usable())
	if !w.segment.isOther(*is) { // else its addresses are others, whose numbers may be the same
		if is.Takes != nil {
			rest.RemoveSet(is.Takes)
		}
		for o := range w.poolsOf(*is) {
			rest.RemoveSet(o.Whole.Usable())
		}
	}
	set, _ := rest.IPSet() // of sets alone
	return len(set.Ranges()) > 0
}

// awaits reports whether pods that select a definition may still get an address of the pool by what
// it is, or was.
func (w *weighing) awaits(d string) bool { return w.mine[d] || w.left[d] }

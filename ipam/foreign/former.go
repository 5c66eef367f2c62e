package foreign

import "go4.org/netipx"

// remember notes which definitions were of the segment until a while ago, by another IPAM: whatever
// Tenure's gave is Tenure's. Those that are of it still count as they are now.
func (w *weighing) remember() {
	for _, d := range w.Former {
		if d.IPAM == Type || !w.touches(d) || !w.owns(d) && w.segment.isOther(d) {
			continue
		}
		switch name := d.String(); {
		case w.known[name] == nil:
			w.mine[name] = true
		case w.mine[name]:
		case w.hasLeft(d):
			w.left[name] = true
		default:
			continue
		}
		w.former = append(w.former, d)
	}
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
	if is.Takes != nil {
		rest.RemoveSet(is.Takes)
	}
	for o := range w.poolsOf(*is) {
		rest.RemoveSet(o.Whole.Usable())
	}
	set, _ := rest.IPSet() // of sets alone
	return len(set.Ranges()) > 0
}

// awaits reports whether pods that select a definition may still get an address of the pool by what
// it is, or was.
func (w *weighing) awaits(d string) bool { return w.mine[d] || w.left[d] }

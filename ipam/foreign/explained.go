package foreign

import (
	"net/netip"
	"slices"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/npwg"
)

// explained reports whether what a record or a node says of a pod is of a network of the segment,
// as that is or was, or of a definition that is gone. A network may have got another name since:
// then the pod's status shows the address of its definition. An object of whereabouts' that has the
// segment's network_name in its name tells by itself.
func (w *weighing) explained(c claim) bool {
	if c.by == byRecord {
		return w.objects[c.of] || slices.ContainsFunc(c.pod.Selected, func(d string) bool { return w.mine[d] || w.known[d] == nil })
	}
	return w.isOf(c) || w.wasOn(c) || slices.ContainsFunc(c.pod.Shows, func(s npwg.Shown) bool {
		return (w.known[s.Definition] == nil || w.mine[s.Definition]) && slices.Contains(s.Addrs, c.addr)
	})
}

// isOf reports whether a node has seen a claim on a network of the segment, as the pod has it.
func (w *weighing) isOf(c claim) bool {
	of, _, _ := w.ofNetwork(c.of, c.pod)
	return of
}

// ofPool reports whether what a record or a node says of a pod is explained, or the pod's namespace
// may use the pool. Who may not can have asked another IPAM for any of its addresses all the same.
func (w *weighing) ofPool(c claim) bool {
	return c.by == byStatus || w.MayUse == nil || w.explained(c) || w.MayUse(c.pod.Namespace)
}

// mayCount reports whether what is unexplained counts for a pod: of a pool that its namespace may
// not use it does for as many addresses as those of a status, with those that are kept for the pod.
func (w *weighing) mayCount(c claim) bool {
	if w.ofPool(c) {
		return true
	}
	if w.counted == nil {
		w.counted = map[podOn]map[netip.Addr]bool{}
		for a, to := range w.Kept {
			w.count(podOn{to.UID.OfPod(), to.Node}, a)
		}
	}
	on := c.pod.on()
	if !w.counted[on][c.addr] && len(w.counted[on]) >= mostShown {
		return false
	}
	w.count(on, c.addr)
	return true
}

// count notes that an address counts for a pod.
func (w *weighing) count(on podOn, a netip.Addr) {
	if w.counted[on] == nil {
		w.counted[on] = map[netip.Addr]bool{}
	}
	w.counted[on][a] = true
}

// yields reports whether a claim, of an address that is not kept for its pod yet, is of a pod whose
// namespace may not use the pool, and one of claims is the better one of another pod.
func (w *weighing) yields(c claim, claims []claim) bool {
	return !w.ofPool(c) && keptOn(w.Kept[c.addr]) != c.pod.on() && slices.ContainsFunc(claims, func(o claim) bool {
		return o.by > byStatus && o.pod.on() != c.pod.on() && w.ofPool(o) && w.accepts(o)
	})
}

// unexplained reports whether what a record or a node says of a pod is none of what the definitions
// are for that the pod selects, and one of them may be of this segment. The pod has asked for the
// address, or has it by what that definition was before. A node has to have seen it on that one's
// network, or the pod to show it of that one. A definition of another network does not explain what
// a node has seen.
func (w *weighing) unexplained(c claim) bool {
	may := false
	for _, name := range c.pod.Selected {
		d := w.known[name]
		switch {
		case d == nil, w.mine[name]:
		case (c.by != byNode || d.Network == c.of) && w.explains(d, c.addr):
			return false
		case !w.saysOther(d, c.addr):
			may = may || c.by == byRecord || d.Network == c.of || slices.ContainsFunc(c.pod.Shows, func(s npwg.Shown) bool {
				return s.Definition == name && slices.Contains(s.Addrs, c.addr)
			})
		}
	}
	return may
}

// explains reports whether an address is of d's own ranges, or of a pool that d names: whether it
// can be given by d as it is now. Another pool may have the rest of the subnet. A definition that
// may be of this segment, and whose pool gives the address as well, is one of the segment's.
func (w *weighing) explains(d *Definition, a netip.Addr) bool {
	for o := range w.poolsOf(*d) {
		if !d.Unnamed && o.gives(a) {
			return true
		}
	}
	return slices.ContainsFunc(d.explains, func(v allocator.View) bool { return v.Contains(a) })
}

package foreign

import (
	"slices"
	"strings"
	"time"
)

// sandboxWithin is how long a runtime takes at most for a pod's sandbox, and so an ADD of another
// IPAM that was under way: the kubelet gives it two minutes.
const sandboxWithin = 150 * time.Second

// pending returns the pods that may still get an address of the pool by another IPAM. They were
// bound to their nodes before the pool took its addresses over, or before the definition was last
// written that they select, and that may have been another IPAM's until then. Neither their status
// nor an ADD of Tenure's tells that the other IPAM is done with them. After sandboxWithin no pod
// counts.
func (w *weighing) pending(segment []Definition) (waiting []*Pod) {
	since := map[string]time.Time{}
	for _, d := range segment {
		at := w.Since
		if d.Changed.After(at) {
			at = d.Changed
		}
		if !at.IsZero() && w.Now.Sub(at) <= sandboxWithin {
			since[d.String()] = at.Add(skew)
		}
	}
	if w.New == nil || len(w.New.Ranges()) == 0 { // nothing of it waits
		return nil
	}
	for d, at := range since {
		for _, pod := range w.selecting[d] {
			if !pod.Bound.After(at) && !pod.shows(d) {
				waiting = append(waiting, pod)
			}
		}
	}
	slices.SortFunc(waiting, func(x, y *Pod) int { return strings.Compare(x.String()+string(x.UID), y.String()+string(y.UID)) })
	return slices.Compact(waiting)
}

// hasAsked reports whether the ADD for the pool's network has come to Tenure, of a pod that may
// still get an address of it by another IPAM. Its node says which pods' ADDs have come, and not for
// which network: a meta-plugin reads all definitions, and then has one ADD after the other. So that
// tells nothing of a pod that may select two networks of Tenure's.
func (w *weighing) hasAsked(p *Pod) bool {
	if !slices.Contains(w.Reports[p.Node].Asking, p.uid()) { // another node's word is none
		return false
	}
	only := ""
	for _, name := range p.Selected {
		switch d := w.known[name]; {
		case name == only, d != nil && d.IPAM != Type && !w.mine[name]:
		case only != "":
			return false
		default:
			only = name
		}
	}
	return true
}

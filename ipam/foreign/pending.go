package foreign

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// AddWithin is for how long an ADD of another IPAM may go on that was under way. The kubelet gives
// a sandbox four minutes, and CRI-O its network five more. A meta-plugin reads all definitions
// before the first ADD, and may have them in a cache.
const AddWithin = 10 * time.Minute

// retriedWithin is as AddWithin, for a pod all of whose networks are the pool's and that has asked
// Tenure for one of them. While the pool is closed that ADD fails, and with it the sandbox. For the
// next one the meta-plugin reads the definitions anew: it may have some moments still what was.
const retriedWithin = 150 * time.Second

// pending returns the pods that may still get an address of the pool by another IPAM. They were
// bound to their nodes before the pool took its addresses over, or before the definition was last
// written that they select, and that may have been another IPAM's until then. A definition that has
// always been Tenure's counts only for pods that were bound while another may have had its name.
// One that is gone, or has left the segment, counts for pods that were bound before. Whether the
// other IPAM is done with them their nodes have to say: see hasAll and hasAsked. Not so of pods
// that show what Tenure has given them, nor of pods that select a definition of which a person says
// that it gives none of the pool's addresses. After AddWithin no pod counts.
func (w *weighing) pending() (waiting []pendingPod) {
	since := map[string]time.Time{}
	for _, d := range w.segment.definitions {
		if slices.Contains(w.ShareWith, d.String()) { // also of one that is Tenure's by now
			continue
		}
		at := w.Since
		if d.Changed.After(at) {
			at = d.Changed
		}
		if d.IPAM == Type && !d.Since.IsZero() && d.Since.Before(at) {
			at = d.Since
		}
		if !at.IsZero() && w.Now.Sub(at) <= AddWithin {
			since[d.String()] = at.Add(skew)
		}
	}
	for _, d := range w.former {
		name, at := d.String(), d.Changed.Add(skew)
		if !w.isLet(d) && (w.known[name] == nil || w.left[name]) && w.Now.Sub(d.Changed) <= AddWithin && at.After(since[name]) {
			since[name] = at
		}
	}
	if w.New == nil || len(w.New.Ranges()) == 0 { // nothing of it waits
		return nil
	}
	for d, at := range since {
		for _, pod := range w.selecting[d] {
			tenures := func(a netip.Addr) bool { ours, _ := w.ofTenure(claim{addr: a, pod: pod, of: d}); return ours }
			if w.Now.Sub(at) > retriedWithin && w.retries(pod) {
				continue
			}
			if !pod.Bound.After(at) && !w.shows(pod, d, tenures) {
				waiting = append(waiting, pendingPod{pod, d})
			}
		}
	}
	slices.SortFunc(waiting, func(x, y pendingPod) int {
		return cmp.Or(strings.Compare(x.String(), y.String()), strings.Compare(string(x.UID), string(y.UID)), strings.Compare(x.by, y.by))
	})
	return slices.CompactFunc(waiting, func(x, y pendingPod) bool { return x.Pod == y.Pod })
}

// pendingPod is a pod that may still get an address by another IPAM, by a definition.
type pendingPod struct {
	*Pod
	by string
}

// retries reports whether all networks of a pod are the pool's, and it has asked Tenure for one.
func (w *weighing) retries(p *Pod) bool {
	asked := w.Reports[p.Node].Asked
	some := false
	for _, name := range p.Selected {
		d := w.known[name]
		if d == nil || !w.mine[name] || d.IPAM == Type && !w.owns(*d) { // the ADD of one beside may be answered
			return false
		}
		some = some || slices.Contains(asked[d.Network], p.uid())
	}
	return some
}

// shows reports whether a pod's status shows something for each selection of a definition, and only
// such addresses of the pool as has says that the pod has.
func (w *weighing) shows(p *Pod, d string, has func(netip.Addr) bool) bool {
	of := w.selected[selection{p, d}]
	return of.shown >= of.selected && !slices.ContainsFunc(of.addrs, func(a netip.Addr) bool { return w.gives(a) && !has(a) })
}

// hasAll reports whether a pod has all that it gets of the pool's networks: its status shows it,
// and its node, if that can tell, has seen it there. Without that the status may be a text of
// somebody's, or of a sandbox that is just made anew.
func (w *weighing) hasAll(p *Pod) bool {
	seen := func(shown claim) bool {
		return !w.tells(p.Node) || w.reportedAsTenures(shown) || slices.ContainsFunc(w.at(shown.addr, shown.addr), func(c claim) bool {
			return c.by != byStatus && c.pod.on() == p.on() && w.mayBeOf(c) && !(c.by == byNode && w.isBesides(c.of, shown))
		})
	}
	distinct := slices.Compact(slices.Sorted(slices.Values(p.Selected)))
	return !slices.ContainsFunc(distinct, func(d string) bool {
		return w.awaits(d) && !w.shows(p, d, func(a netip.Addr) bool { return seen(claim{addr: a, pod: p, of: d}) })
	})
}

// hasAsked reports whether the ADDs for all of the pool's networks that a pod selects have come to
// Tenure. Those for others tell nothing: a meta-plugin reads all definitions, and then has one ADD
// after the other. Nor do they of two definitions that have one network's name, or may have; nor
// for a while of one that was another pool's: the ADD may have come by that, and come again.
func (w *weighing) hasAsked(p *Pod) bool {
	asked := w.Reports[p.Node].Asked // another node's word is none
	of := map[string]string{}        // the definition that is of a network's name
	for _, name := range p.Selected {
		d := w.known[name]
		if d == nil {
			return false
		}
		other, twice := of[d.Network]
		switch {
		case twice && other == name: // selected twice
		case twice && (w.awaits(name) || w.awaits(other)):
			return false
		case w.awaits(name) && (!slices.Contains(asked[d.Network], p.uid()) || w.movedLately(name)):
			return false
		case !twice || w.awaits(name):
			of[d.Network] = name
		}
	}
	return true
}

// movedLately reports whether a definition was Tenure's and of another pool until a moment ago.
func (w *weighing) movedLately(name string) bool {
	return slices.ContainsFunc(w.Former, func(was Definition) bool {
		return was.String() == name && was.IPAM == Type && !w.owns(was) && w.Now.Sub(was.Changed) <= retriedWithin
	})
}

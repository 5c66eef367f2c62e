package simulation

import (
	"maps"
	"net/netip"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// reuseAfter is the pools' spec.reuseAfter in runs that have one.
const reuseAfter = 2 * time.Minute

// checkRest holds against each commit of an agent that it gives no address of its blocks within
// reuseAfter of the address's freeing, while another was free in them that was freed earlier, or
// never: was is what the store had before, and is what it has now. Runs in which pools change, have
// ranges for some nodes, or have been exhausted, are left out: of the free addresses some could not
// be given.
func (a *simAgent) checkRest(was, is *simDisk) {
	w := a.n.w
	if !w.kind.rests || w.kind.edits || w.kind.resizes || w.other != nil || w.racks != nil || w.exhausted {
		return
	}
	if !a.committed { // what a power failure took away before was not freed
		a.committed = true
		return
	}
	// Of a block that is leased anew nothing was freed. One that had vanished stays as it was.
	for name, r := range was.rights {
		if is.rights[name].Phase != protocol.Held {
			maps.DeleteFunc(a.freed, func(x netip.Addr, _ time.Duration) bool { return r.Block.Contains(x) })
		}
	}
	for key, att := range is.atts {
		if _, had := was.atts[key]; had || att.use != "" || w.asksByName(att.pod.UID) {
			continue
		}
		if was.some(func(o attachment) bool { return o.pod.UID == att.pod.UID }) {
			continue // its next sandbox has the same addresses
		}
		for _, x := range att.addrs {
			freed, ok := a.freed[x.addr]
			if !ok || x.pool != poolName || w.now-freed >= reuseAfter {
				continue
			}
			for _, y := range a.n.freeIn(was, is) {
				if other, ok := a.freed[y]; !ok || other < freed {
					w.fail(Rest, "%s gives %v, which was freed %v ago, and has %v, which was freed before, or never", a.n.machine, x, w.now-freed, y)
				}
			}
		}
	}
	for key, att := range was.atts {
		if _, has := is.atts[key]; has || att.use != "" {
			continue
		}
		for _, x := range att.addrs {
			a.freed[x.addr] = w.now
		}
	}
}

// freeIn returns the ordinary addresses that were free, and are, in blocks that serve and of which
// nothing is ceded.
func (n *simNode) freeIn(was, is *simDisk) (free []netip.Addr) {
	shape := n.w.shape()
	for name, r := range was.rights {
		now := is.rights[name]
		if r.Kind != protocol.RightLease || r.Pool != poolName || now.UID != r.UID || !r.Usable(was.term) || !now.Usable(is.term) || len(r.Ceded)+len(now.Ceded) > 0 {
			continue
		}
		for x := r.Block.Addr(); r.Block.Contains(x); x = x.Next() {
			if shape.Ordinary(x) && !was.gives(x) && !is.gives(x) {
				free = append(free, x)
			}
		}
	}
	return free
}

// gives reports whether an attachment has x out of a block.
func (d *simDisk) gives(x netip.Addr) bool {
	return d.some(func(att attachment) bool { return att.use == "" && att.has(x) })
}

// some reports whether there is an attachment that is so.
func (d *simDisk) some(is func(attachment) bool) bool {
	for _, att := range d.atts {
		if is(att) {
			return true
		}
	}
	return false
}

// asksByName reports whether a pod asks for its address by name.
func (w *world) asksByName(uid protocol.UID) bool {
	p := firstOf(w.all, func(p *simPod) bool { return p.ref.UID == uid })
	return p == nil || p.exact.IsValid()
}

package simulation

import (
	"net/netip"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// giveBack lets go of what nothing has needed for a while.
func (n *simNode) giveBack() {
	a, w := n.agent, n.w
	if a.sitting.Term == 0 {
		return
	}
	for _, name := range n.names(func(r protocol.Right) bool {
		return r.Phase == protocol.Held || r.Phase == protocol.Lost || r.Phase == protocol.Frozen || r.Phase == protocol.Noted && r.Kind == protocol.RightRequest
	}) {
		r := n.disk.rights[name]
		if !n.free(n.disk, r) {
			delete(a.idle, name)
			continue
		}
		since, ok := a.idle[name]
		if !ok {
			since = w.now
			a.idle[name] = since
		}
		after := idleKept
		switch {
		case r.Kind == protocol.RightLease && a.pressed != allocator.PressureLow, r.Kind == protocol.RightUse:
			after = 0
		case r.Kind == protocol.RightRequest:
			since, after = max(since, a.tried[name]), requestKept
		}
		if w.now-since < after || a.busy[name] {
			continue
		}
		if r.Phase != protocol.Noted { // which is tried until it is gone
			delete(a.idle, name)
		}
		if r.Kind != protocol.RightLease || r.Phase != protocol.Held || r.Term == 0 && !r.Granted {
			n.letGo(name)
			continue
		}
		n.drive(r, protocol.Event{Kind: protocol.EventLook}, func(now protocol.Right, res protocol.Result) {
			switch {
			case res.Verdict != protocol.VerdictServes: // better kept than given away while nobody hears of it
			case now.Granted: // what is granted cannot go: the rest is ceded
				n.later(func() { n.cede(name, nil, nil) })
			default:
				n.later(func() { n.letGo(name) })
			}
		})
	}
}

// letGo gives back a right that nothing rests on.
func (n *simNode) letGo(name string) {
	if r, ok := n.disk.rights[name]; ok {
		n.drive(r, protocol.Event{Kind: protocol.EventLetGo}, nil)
	}
}

// cede gives the free addresses of a lease that keep accepts to the cluster, all if
// it is nil.
func (n *simNode) cede(name string, keep func(netip.Addr) bool, done func()) {
	r, ok := n.disk.rights[name]
	var free []netip.Addr
	if ok && r.Phase == protocol.Held {
		space := n.disk.space(r.Pool, nil)
		for x := r.Block.Addr(); r.Block.Contains(x); x = x.Next() {
			state, err := space.State(x)
			must(err)
			if state == allocator.Free && (keep == nil || keep(x)) && !n.cooling(n.disk, x) {
				free = append(free, x)
			}
		}
	}
	if len(free) == 0 || n.agent.busy[name] {
		if done != nil {
			n.later(done)
		}
		return
	}
	n.w.count("cede")
	ev := protocol.Event{Kind: protocol.EventCede, Addrs: free}
	tell := func() {
		n.drive(r, ev, func(protocol.Right, protocol.Result) {
			if done != nil {
				n.later(done)
			}
		})
	}
	if n.w.fault == M10 {
		n.earlyCede(r, ev, tell)
		return
	}
	tell()
}

// hearRecall answers one of the recalls on the seat, and reports whether there was one.
func (n *simNode) hearRecall() bool {
	if !n.hearsSeat() {
		return false
	}
	seat, _ := n.w.api.seats.read(string(n.name))
	for _, rc := range seat.Recalls {
		if n.agent.answered[rc.ID] || n.agent.busy[rc.Lease] {
			continue
		}
		n.agent.answered[rc.ID] = true
		n.cede(rc.Lease, func(x netip.Addr) bool { return inRanges(rc.Ranges, x) }, func() { n.publish(rc) })
		return true
	}
	return false
}

// hearsSeat reports whether the node sees its seat, and sits there.
func (n *simNode) hearsSeat() bool {
	seat, out := n.w.api.seats.read(string(n.name))
	return out == protocol.Done && !n.cut && !n.w.api.away && n.agent.sitting.Term != 0 && seat.Store == n.disk.store
}

// cedeUnasked cedes what has come free of a pool that is exhausted.
func (n *simNode) cedeUnasked() {
	if !n.hearsSeat() || n.agent.pressed != allocator.PressureExhausted {
		return
	}
	if name, ok := pickOf(n.w, n.names(func(r protocol.Right) bool { return r.Kind == protocol.RightLease && n.serves(r) })); ok && n.w.one(3) {
		n.cede(name, n.w.specOf(n.agent.pool.UID).Shape.Ordinary, nil)
	}
}

// inRanges reports whether x lies in one of ranges, "first-last" each; in no
// ranges lies everything.
func inRanges(ranges []string, x netip.Addr) bool {
	for _, text := range ranges {
		first, last, ok := cutRange(text)
		if ok && !x.Less(first) && !last.Less(x) {
			return true
		}
	}
	return len(ranges) == 0
}

// publish answers a recall in the lease's status, with who has what of the block.
func (n *simNode) publish(rc protocol.Recall) {
	r, ok := n.disk.rights[rc.Lease]
	if !ok || r.UID == "" {
		return
	}
	var told []string
	for _, k := range n.disk.keys(func(a attachment) bool { return len(a.addrs) > 0 && a.addrs[0].lease == rc.Lease }) {
		att := n.disk.atts[k]
		told = append(told, att.addrs[0].addr.String()+" "+att.pod.String()+" "+k.ifName)
	}
	n.ask("answer to recall "+rc.ID, true, func() {
		n.w.api.leases.update(protocol.Meta{Name: r.Name, UID: r.UID}, func(l *protocol.Lease) {
			l.Published.Answered, l.Published.Allocations = rc.ID, told
		})
	}, func(bool) {})
}

package simulation

import (
	"net/netip"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// giveBack lets go of what nothing has needed for a while.
func (n *simNode) giveBack() {
	a, w := n.agent, n.w
	if a.registrar.Term == 0 {
		return
	}
	for _, name := range n.names(func(r protocol.Right) bool {
		switch r.Phase {
		case protocol.Held:
			return r.MayGo(a.registrar.Term) || !n.keptBack(r)
		case protocol.Noted:
			return r.Kind == protocol.RightRequest
		case protocol.Lost, protocol.Frozen:
			return true
		case protocol.Releasing:
		}
		return false
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

// keptBack reports whether r is not to be given back before a pool has been opened again.
func (n *simNode) keptBack(r protocol.Right) bool {
	if r.Kind == protocol.RightUse {
		return slices.ContainsFunc(r.Leases, n.withholdsLease)
	}
	return n.withheld() && !n.ofEarlierPool(r)
}

// ofEarlierPool reports whether r is a lease of another pool than has its pool's name now.
func (n *simNode) ofEarlierPool(r protocol.Right) bool {
	return r.Kind == protocol.RightLease && n.agent.pool.UID != "" && r.PoolUID != n.agent.pool.UID
}

// letGo gives back a right that nothing rests on.
func (n *simNode) letGo(name string) {
	if r, ok := n.disk.rights[name]; ok {
		n.drive(r, protocol.Event{Kind: protocol.EventLetGo}, nil)
	}
}

// cede gives the free addresses of a lease that keep accepts to the cluster, all if
// it is nil. done hears whether the API server has heard of it.
func (n *simNode) cede(name string, keep func(netip.Addr) bool, done func(told bool)) {
	asked := done != nil
	if !asked {
		done = func(bool) {}
	}
	r, ok := n.disk.rights[name]
	ceded := asked && ok && slices.ContainsFunc(r.Ceded, func(x netip.Addr) bool { return keep == nil || keep(x) })
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
	switch {
	case len(free) == 0 && !ceded || n.agent.busy[name] || !n.serving():
		n.later(func() { done(len(free) == 0 && !ceded && n.serving()) })
		return
	case len(free) == 0: // what was ceded before may not have been told
		n.drive(r, protocol.Event{Kind: protocol.EventLook}, func(_ protocol.Right, res protocol.Result) {
			n.later(func() { done(len(r.Taking) == 0 && res.Verdict == protocol.VerdictServes) })
		})
		return
	}
	n.w.count("cede")
	ev := protocol.Event{Kind: protocol.EventCede, Addrs: free}
	tell := func() {
		n.drive(r, ev, func(_ protocol.Right, res protocol.Result) {
			n.later(func() { done(res.Verdict == protocol.VerdictServes) })
		})
	}
	if n.w.fault == M10 {
		n.earlyCede(r, ev, tell)
		return
	}
	tell()
}

const (
	// recallTries is how often a recall is answered before it is left to the next
	// one, and recallRetry how long after one that failed.
	recallTries = 4
	recallRetry = 300 * time.Millisecond
)

// hearRecall begins to answer one of the recalls on the registration, and reports whether there
// was one.
func (n *simNode) hearRecall() bool {
	if !n.hearsRegistration() {
		return false
	}
	reg, _ := n.w.api.regs.read(string(n.name))
	for _, rc := range reg.Recalls {
		if !n.agent.recalls[rc.ID] {
			n.agent.recalls[rc.ID] = true
			n.answerRecall(rc, recallTries)
			return true
		}
	}
	return false
}

// answerRecall cedes what a recall asks for of a lease that is Held, and says so in the
// lease's status. What fails it tries again, so many times in all.
func (n *simNode) answerRecall(rc protocol.Recall, tries int) {
	r, known := n.disk.rights[rc.Lease]
	if !known {
		n.listOwn()
	}
	if tries == 0 || r.Phase != protocol.Held {
		return
	}
	again := func() { n.wait(recallRetry, func() { n.answerRecall(rc, tries-1) }) }
	n.cede(rc.Lease, func(x netip.Addr) bool { return inRanges(rc.Ranges, x) }, func(told bool) {
		if told {
			n.publish(rc, again)
		} else {
			again()
		}
	})
}

// hearsRegistration reports whether the node sees its registration, and is named there.
func (n *simNode) hearsRegistration() bool {
	reg, out := n.w.api.regs.read(string(n.name))
	return out == protocol.Done && !n.cut && !n.w.api.away && n.agent.registrar.Term != 0 && reg.Store == n.disk.store
}

// cedeUnasked cedes what has come free of a pool that is exhausted.
func (n *simNode) cedeUnasked() {
	if !n.hearsRegistration() || n.agent.pressed != allocator.PressureExhausted {
		return
	}
	if name, ok := pickOf(n.w, n.names(func(r protocol.Right) bool { return r.Kind == protocol.RightLease && n.serves(r) })); ok && n.w.one(3) {
		n.cede(name, n.shapeOf(n.agent.pool.UID).Ordinary, nil)
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

// publish answers a recall in the lease's status, with who has what of the block, or
// goes on with failed.
func (n *simNode) publish(rc protocol.Recall, failed func()) {
	r := n.disk.rights[rc.Lease]
	if !n.serves(r) {
		failed()
		return
	}
	var told []string
	for _, k := range n.disk.keys(func(a attachment) bool { return len(a.addrs) > 0 && a.addrs[0].lease == rc.Lease }) {
		att := n.disk.atts[k]
		told = append(told, att.addrs[0].addr.String()+" "+att.pod.String()+" "+k.ifName)
	}
	var out protocol.Outcome
	n.ask("answer to recall "+rc.ID, true, func() {
		_, out = n.w.api.leases.update(protocol.Meta{Name: r.Name, UID: r.UID}, func(l *protocol.Lease) {
			l.Published.Answered, l.Published.Allocations = rc.ID, told
		})
	}, func(known bool) {
		if !known || out != protocol.Done {
			failed()
		}
	})
}

package simulation

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// begin begins something new on the node: what its pods and its own maintenance
// ask for.
func (n *simNode) begin() {
	w := n.w
	switch w.rng.IntN(16) {
	case 0, 1, 2, 3:
		n.wantLease()
	case 4, 5:
		if w.kind.uses {
			n.wantUse()
		} else {
			n.wantLease()
		}
	case 6, 7:
		n.letGo()
	case 8, 9, 10:
		n.lookDue()
	case 11:
		if name, ok := pickOf(w, n.names(func(protocol.Right) bool { return true })); ok { // a watch reported a change
			n.drive(n.disk.rights[name], protocol.Event{Kind: protocol.EventLook}, nil)
		}
	case 12, 13:
		n.attachOrDetach()
	case 14:
		if w.one(4) {
			n.listOwn()
		}
	case 15:
		if p, out := w.api.pools.read(string(poolName)); out == protocol.Done && !n.cut {
			n.agent.pool = p
		}
	}
}

// wantLease asks for a block of the pool as the agent knows it.
func (n *simNode) wantLease() {
	p := n.agent.pool
	if p.UID == "" || !p.Open {
		n.agent.pool, _ = n.w.api.pools.read(string(poolName))
		return
	}
	block, _ := pickOf(n.w, blocksOf(p.Bits4))
	r := protocol.Right{Kind: protocol.RightLease, Name: protocol.LeaseName(poolName, block), Pool: poolName, PoolUID: p.UID, Block: block}
	n.drive(r, protocol.Event{Kind: protocol.EventWant}, nil)
}

// letGo gives back a right that nothing rests on.
func (n *simNode) letGo() {
	name, ok := pickOf(n.w, n.names(func(r protocol.Right) bool {
		_, used := n.disk.used[r.Name]
		return !used && (r.Phase == protocol.Held || r.Phase == protocol.Lost)
	}))
	if ok {
		n.drive(n.disk.rights[name], protocol.Event{Kind: protocol.EventLetGo}, nil)
	}
}

// lookDue looks at the rights whose time has come.
func (n *simNode) lookDue() {
	if n.agent.sitting.Term == 0 {
		return
	}
	due := n.names(func(r protocol.Right) bool {
		at, ok := n.agent.looks[r.Name]
		return ok && at <= n.w.now
	})
	for _, name := range due {
		r := n.disk.rights[name]
		delete(n.agent.looks, name)
		ev := protocol.Event{Kind: protocol.EventLook}
		if r.Kind == protocol.RightUse && r.Phase == protocol.Noted {
			ev.Kind = protocol.EventLetGo
		}
		if n.agent.busy[name] {
			n.agent.looks[name] = n.w.now + 5*time.Second
			continue
		}
		n.drive(r, ev, nil)
	}
}

// attachOrDetach gives a pod an address out of a lease that serves, or takes a
// pod away.
func (n *simNode) attachOrDetach() {
	if n.w.one(2) {
		if name, ok := pickOf(n.w, slices.Sorted(maps.Keys(n.disk.used))); ok {
			n.w.logf("%s: DEL of %s", n.machine, name)
			delete(n.disk.used, name)
		}
		return
	}
	if !n.serving() {
		return
	}
	if name, ok := pickOf(n.w, n.names(func(r protocol.Right) bool { return r.Kind == protocol.RightLease && n.serves(r) })); ok {
		n.w.logf("%s: ADD from %s", n.machine, name)
		n.w.count("add")
		n.disk.used[name] = attachment{boot: n.bootID()}
	}
}

// listOwn is the hourly list of what the API server has in the node's name.
func (n *simNode) listOwn() {
	if n.agent.sitting.Term == 0 {
		return
	}
	var found []protocol.Right
	n.ask("list of its own", false, func() {
		for _, l := range n.w.api.leases.list(func(l protocol.Lease) bool { return l.Store == n.disk.store }) {
			found = append(found, protocol.Right{Kind: protocol.RightLease, Name: l.Name, Pool: l.Pool, PoolUID: l.PoolUID, Block: l.Block})
		}
		for _, s := range n.w.api.subs.list(func(s protocol.SubLease) bool { return s.Store == n.disk.store }) {
			found = append(found, protocol.Right{Kind: protocol.RightUse, Name: s.Name, Use: s.Use, Leases: []string{claimLease}})
		}
	}, func(known bool) {
		for _, r := range found {
			if _, ok := n.disk.rights[r.Name]; !known || ok || n.agent.busy[r.Name] {
				continue
			}
			n.w.logf("%s: finds %s without a record", n.machine, r.Name)
			n.w.count("stray")
			r.Phase = protocol.Releasing
			n.disk.rights[r.Name] = r
			n.agent.looks[r.Name] = n.w.now
		}
	})
}

// wantUse is the ADD of a pod with a claim.
func (n *simNode) wantUse() {
	c, ok := pickOf(n.w, n.w.api.claims.list(func(c protocol.Claim) bool { return len(c.IPs) > 0 }))
	if !ok || n.cut || !n.serving() || n.agent.busy[string(c.UID)] {
		return
	}
	pod := simPods[n.w.rng.IntN(len(simPods))]
	for ok := false; !ok; ok, _ = protocol.BelongsTo(pod, c) {
		pod = simPods[n.w.rng.IntN(len(simPods))]
	}
	names := []string{protocol.UseName(c.UID, 0), protocol.UseName(c.UID, 1)}
	for _, name := range names {
		if _, ok := n.disk.rights[name]; ok {
			names = []string{name}
			break
		}
	}
	if att, used := n.disk.used[names[0]]; used && att.pod != pod {
		return // the other pod's sandbox is there
	}
	n.agent.busy[string(c.UID)] = true
	n.tryUse(c, protocol.Use{Claim: c.Ref(), Pod: pod, Interface: "net1"}, names)
}

// tryUse renews or makes the first of names, and goes on to the next if that is
// another's.
func (n *simNode) tryUse(c protocol.Claim, ask protocol.Use, names []string) {
	if len(names) == 0 || n.agent.busy[names[0]] {
		delete(n.agent.busy, string(c.UID))
		return
	}
	addrs, leases := []netip.Addr{c.IPs[0].Addr()}, []string{claimLease}
	r := protocol.Right{Kind: protocol.RightUse, Name: names[0], Use: &ask, Addrs: addrs, Leases: leases}
	n.drive(r, protocol.Event{Kind: protocol.EventRenew, Use: &ask, Addrs: addrs, Leases: leases}, func(got protocol.Right, res protocol.Result) {
		switch res.Verdict {
		case protocol.VerdictTaken:
			n.later(func() { n.tryUse(c, ask, names[1:]) })
			return
		case protocol.VerdictServes:
			n.later(func() {
				n.attachUse(got.Name, ask)
				delete(n.agent.busy, string(c.UID))
			})
			return
		case protocol.VerdictNone, protocol.VerdictRefused, protocol.VerdictLater, protocol.VerdictGone:
		}
		delete(n.agent.busy, string(c.UID))
	})
}

// attachUse is the commit of an ADD with a claim, and its answer.
func (n *simNode) attachUse(name string, ask protocol.Use) {
	r, ok := n.disk.rights[name]
	if !ok || !n.serving() || !n.serves(r) {
		return
	}
	if att, used := n.disk.used[name]; used && att.pod != ask.Pod {
		return
	}
	n.w.logf("%s: ADD with claim %s for pod %s", n.machine, ask.Claim.UID, ask.Pod.Name)
	n.w.count("use")
	n.disk.used[name] = attachment{pod: ask.Pod, boot: n.bootID()}
}

package simulation

import (
	"context"
	"maps"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

func (c liveCalls) ReadRegistration(_ context.Context, node protocol.NodeName) (protocol.Registration, protocol.Outcome, error) {
	return call(c.simController, "read of registration "+string(node), false, func() (protocol.Registration, protocol.Outcome) {
		s, out := c.w.api.regs.read(string(node))
		for _, store := range storesOf(s) {
			c.sawSilent[store] = c.w.beats[store].silent(c.w.now)
		}
		return s, out
	})
}

func (c liveCalls) UpdateRegistration(_ context.Context, s protocol.Registration) (protocol.Registration, protocol.Outcome, error) {
	gone := c.sawGone[s.Node] // as it was decided: the write may come when somebody has made the Node again
	return call(c.simController, "update of registration "+s.Name, true, func() (protocol.Registration, protocol.Outcome) {
		old, _ := c.w.api.regs.read(s.Name)
		next, out := c.w.api.regs.update(s.Meta, func(to *protocol.Registration) {
			for _, f := range to.Former { // a create of whom it forgets may be later than protocol.LastRecheck
				c.w.unnamed[f.Store] = c.w.unnamed[f.Store] || !slices.Contains(storesOf(s), f.Store)
			}
			labels := to.Labels
			*to = s
			to.Labels = labels
		})
		if out == protocol.Done && old.Store != "" && next.Store == "" {
			c.w.logf("server: term %d of %s has ended", old.Term, old.Node)
			c.w.count("term ended")
			c.ended(old.Node, gone)
		}
		return next, out
	})
}

// nodeCalls are the calls that bear on dead nodes.
type nodeCalls struct{ liveCalls }

func (c nodeCalls) DeleteRegistration(_ context.Context, m protocol.Meta) (protocol.Outcome, error) {
	return c.write("delete of registration "+m.Name, func() protocol.Outcome { return c.w.api.regs.remove(m) })
}

func (c nodeCalls) ReadNode(_ context.Context, name protocol.NodeName) (protocol.Node, protocol.Outcome, error) {
	if c.w.fault == "M17" {
		if _, ok := c.cachedNodes[name]; !ok || c.w.one(30) {
			c.cachedNodes[name], _ = c.w.nodeObject(name)
		}
		return c.cachedNodes[name], protocol.Done, nil
	}
	return call(c.simController, "read of Node "+string(name), false, func() (protocol.Node, protocol.Outcome) {
		node, out := c.w.nodeObject(name)
		c.sawGone[name] = out == protocol.NotFound && !c.w.kind.confirmed || node.Off
		return node, out
	})
}

func (c nodeCalls) UpdateLease(_ context.Context, old, next protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	// As it was decided, before it was long on its way.
	gone, silent := c.sawGone[old.Holder.Node], c.sawSilent[old.Store]
	return call(c.simController, "update of "+old.Name, true, func() (protocol.Lease, protocol.Outcome) {
		got, out := c.w.api.leases.update(old.Meta, func(l *protocol.Lease) { *l = next.Clone() })
		if last, ok := c.w.beats[old.Store]; out == protocol.Done && gone && ok && (silent || last.silent(c.w.now)) {
			c.w.excuse(old.UID) // a machine whose Node is gone and that was silent for F runs no pods
		}
		return got, out
	})
}

func (c nodeCalls) Pools(context.Context) ([]protocol.Pool, error) {
	all, err := listOf(c.liveCalls, "list of pools", c.w.api.pools, nil)
	var pools []protocol.Pool
	for _, p := range all {
		p.Confirmed = p.Confirmed && c.w.fault != "M56"
		pools = append(pools, p.Pool)
	}
	return pools, err
}

func (c nodeCalls) LeasesOfNode(_ context.Context, node protocol.NodeName) ([]protocol.Lease, error) {
	return listOf(c.liveCalls, "list of the leases of "+string(node), c.w.api.leases, func(l protocol.Lease) bool { return l.Holder.Node == node })
}

func (c nodeCalls) SubLeasesOfNode(_ context.Context, node protocol.NodeName) ([]protocol.SubLease, error) {
	return listOf(c.liveCalls, "list of the sub-leases of "+string(node), c.w.api.subs, func(s protocol.SubLease) bool { return s.Node == node })
}

func (c nodeCalls) DeleteSubLease(_ context.Context, m protocol.Meta) (protocol.Outcome, error) {
	sawGone := maps.Clone(c.sawGone)
	return c.write("delete of "+m.Name, func() protocol.Outcome {
		s, _ := c.w.api.subs.read(m.Name)
		out := c.w.api.subs.remove(m)
		if out == protocol.Done {
			if sawGone[s.Node] || !c.w.kind.confirmed {
				c.w.excuse(m.UID)
			}
			c.w.count("use taken over")
		}
		return out
	})
}

// ended voids what a node's pods have, if its term was ended by the rules: its Node is gone or off,
// or was when c last read it before it decided. Where only what somebody vouches for may be taken,
// a Node that is gone says nothing.
func (c *simController) ended(name protocol.NodeName, sawGone bool) {
	lost := func(n *simNode) bool { return n.name == name && (n.gone && !c.w.kind.confirmed || n.off) }
	if sawGone || slices.ContainsFunc(c.w.nodes, lost) {
		c.w.vouched(name)
	}
}

// nodeObject returns the Node of that name. That it has the taint, a person vouches:
// it is so, and stays so until the machine boots.
func (w *world) nodeObject(name protocol.NodeName) (protocol.Node, protocol.Outcome) {
	for _, n := range w.nodes {
		if n.name == name && !n.gone {
			return protocol.Node{UID: "node", Off: n.off && !w.kind.twins && w.one(3)}, protocol.Done
		}
	}
	return protocol.Node{}, protocol.NotFound
}

// giveBackFrozen deletes a lease or a use that a lost store held whose machine has
// booted since.
func (c *simController) giveBackFrozen() {
	frozen := func(l protocol.Lease) bool { return len(l.Grants) == 0 && c.w.frozen[l.Store] }
	if l, ok := pickOf(c.w, c.w.api.leases.list(frozen)); ok {
		c.ask("delete of "+l.Name, true, func() { c.w.api.leases.remove(l.Meta) }, func(bool) {})
	}
	if s, ok := pickOf(c.w, c.w.api.subs.list(func(s protocol.SubLease) bool { return c.w.frozen[s.Store] })); ok {
		c.ask("delete of "+s.Name, true, func() { c.w.api.subs.remove(s.Meta) }, func(bool) {})
	}
}

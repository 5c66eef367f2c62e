package simulation

import (
	"context"
	"maps"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// backup is a snapshot of the API server's data.
type backup struct {
	revision int
	regs     []protocol.Registration
	restore  []func()
	truth    map[protocol.UID]tenure // what each claim owned
}

// save returns what sets the table back to what it is now. Whoever watches it must begin
// anew then.
func (t *simTable[T]) save() (restore func()) {
	objects, finalizers := maps.Clone(t.objects), maps.Clone(t.finalizers)
	return func() {
		t.objects, t.finalizers = maps.Clone(objects), maps.Clone(finalizers)
		t.names, t.log = slices.Sorted(maps.Keys(objects)), nil
		for _, name := range t.names {
			t.log = append(t.log, simEvent[T]{name: name, obj: t.objects[name]})
		}
	}
}

// backUp takes a snapshot, or puts the last one back if it is old enough: every node
// that has a registration, or had one then, has beaten since.
func (w *world) backUp() {
	regs := w.api.regs.list(nil)
	if b := w.saved; b != nil && w.one(2) {
		if w.beaten(regs, *b) {
			w.restore(*b)
			w.saved = nil
		}
		return
	}
	w.logf("person: takes a snapshot at revision %d", w.api.revision)
	w.saved = &backup{
		revision: w.api.revision, regs: regs, truth: map[protocol.UID]tenure{},
		restore: []func(){w.api.leases.save(), w.api.subs.save(), w.api.regs.save(), w.api.pools.save(), w.api.claims.save(), w.api.nodes.save()},
	}
	for uid, t := range w.truth {
		w.saved.truth[uid] = *t
	}
}

// beaten reports whether each registration, of which regs are all, was written after the snapshot,
// and each agent that one named then knows of a state after it. One that has heard nothing since,
// and was taken over meanwhile, has its term and its leases again after a restore, and nothing to
// tell it that others had them: docs/contributing/protocol.md has what a person does about it.
func (w *world) beaten(regs []protocol.Registration, b backup) bool {
	if slices.ContainsFunc(regs, func(s protocol.Registration) bool { return revisionNumber(s.Revision) <= b.revision }) {
		return false
	}
	return !slices.ContainsFunc(w.nodes, func(n *simNode) bool {
		was := slices.ContainsFunc(b.regs, func(s protocol.Registration) bool { return slices.Contains(storesOf(s), n.disk.store) })
		return was && n.disk.history.Registrations <= uint64(b.revision)
	})
}

// restore puts a snapshot back as docs/contributing/protocol.md tells it: agents and controllers
// are stopped, and nothing of theirs is on its way; the agents are started, then the controllers,
// and no pod starts before that: see noPods.
func (w *world) restore(b backup) {
	w.logf("person: stops agents and controllers, and restores the API server to revision %d", b.revision)
	w.count("API restored")
	for _, n := range w.nodes {
		if n.paused {
			n.wake()
		}
		if n.agent != nil {
			n.crash()
		}
		if n.lossy() {
			w.logf("person: drains %s, and boots it", n.machine)
			n.powerOff()
			n.boot()
		}
	}
	w.part()
	for _, c := range w.ctls {
		c.kill()
		c.die()
		c.down = true
	}
	w.late, w.holding = nil, true
	w.keepVoid()
	registered := w.registeredStores()
	for _, restore := range b.restore {
		restore()
	}
	now := w.registeredStores()
	for store := range registered { // where none is named any more it is as if a person had deleted its registration
		w.unnamed[store] = w.unnamed[store] || !now[store]
	}
	w.restoreRacks()
	for uid, t := range b.truth { // those of the other claims have gone with these
		*w.truth[uid] = t
	}
	w.api.revision, w.checked = b.revision, -1
	clear(w.shown)
	for _, p := range w.api.pools.list(nil) {
		w.noteRacks(p)
	}
	if w.kind.edits && w.one(3) {
		w.remakePool()
	}
	for _, n := range w.nodes {
		n.outrun()
		n.cut = false
		if !n.off {
			n.outlive(n.start)
		}
	}
}

// keepVoid notes which attachments have lost their claim's lease to a person: the restored data
// have that lease again, and the claim has its addresses, but the right of the attachment stays
// lost.
func (w *world) keepVoid() {
	for _, n := range w.nodes {
		for k, a := range n.disk.atts {
			n.voided[k] = n.voided[k] || a.claim != nil && w.voidClaim(a.claim.UID)
		}
	}
}

// part switches one of two machines of one name off until the others have put back what
// they hold: only one of the two can be registered, and the other would never be ready.
func (w *world) part() {
	if !w.kind.twins {
		return
	}
	n := w.nodes[w.rng.IntN(2)]
	w.logf("person: drains %s, and leaves it off for a while", n.machine)
	n.powerOff()
	n.apart = true
}

// registeredStores returns which stores the registrations name.
func (w *world) registeredStores() map[protocol.StoreID]bool {
	named := map[protocol.StoreID]bool{}
	for _, s := range w.api.regs.list(nil) {
		for _, store := range storesOf(s) {
			named[store] = true
		}
	}
	return named
}

// storesOf returns the stores that a registration names.
func storesOf(s protocol.Registration) []protocol.StoreID {
	all := []protocol.StoreID{s.Store}
	for _, f := range s.Former {
		all = append(all, f.Store)
	}
	return all
}

// unsaid reports whether n holds something that the API server's data do not have since
// they went back. Should its store be lost before it has put that back, nobody knows of it.
func (n *simNode) unsaid() bool {
	return n.w.kind.restores && len(n.names(func(r protocol.Right) bool {
		if r.Kind == protocol.RightLease {
			l, out := n.w.api.leases.read(r.Name)
			return r.Phase == protocol.Held && (out != protocol.Done || l.UID != r.UID)
		}
		s, out := n.w.api.subs.read(r.Name)
		return r.Phase == protocol.Held && (out != protocol.Done || s.UID != r.UID)
	})) > 0
}

// lossy reports whether something runs on n that only a lost store knew of: the node cannot
// put back what that is on, and whoever restores drains it, and boots it again.
func (n *simNode) lossy() bool {
	return n.w.kind.losesStores && !n.off && (n.meddled || slices.ContainsFunc(n.sandboxes, func(s *sandbox) bool {
		att, known := n.disk.atts[s.key()]
		return s.uses() && (s.unread || !known || n.disk.restsOn(att, frozen))
	}))
}

// outrun notes what n has that the restored data may not know: its leases, which it is
// to put back before others have them, and what was granted since the snapshot, which
// nobody can. Nor is there a lease for two: what a claim has again that was gone is its
// own, and the node's lease of that is lost. What was lost before is put back no more:
// people delete the pods that have it before they restore once more.
func (n *simNode) outrun() {
	for _, r := range n.disk.rights {
		n.w.outrun[r.UID] = true
	}
	for k, a := range n.disk.atts {
		for _, x := range a.addrs {
			r := n.disk.rights[a.under(x)]
			uid := r.UID
			if a.claim != nil {
				uid = a.claim.UID
			}
			n.voided[k] = n.voided[k] || a.use != "" && !n.w.granted(x.addr, uid) || a.use == "" && (n.w.claimed(r) || r.Phase == protocol.Lost)
		}
	}
	for _, s := range n.sandboxes {
		s.void = s.void || n.voided[s.key()]
	}
}

// disown notes that the pool does not take a lease back that had vanished with the API
// server's data: it is gone or about to go, or has not these addresses, be it that a person
// has edited it since or that an edit went back. They may have been another pool's
// meanwhile: so the lease is Lost, although nobody has taken it, and CHECK says so.
func (n *simNode) disown(r protocol.Right, p protocol.Pool, out protocol.Outcome) {
	if !n.w.kind.restores || r.Phase != protocol.Held || out == protocol.Done && p.UID == r.PoolUID && !p.Deleting && p.Covers(r.Block) {
		return
	}
	for k, a := range n.disk.atts {
		n.disowned[k] = n.disowned[k] || n.disk.restsOn(a, func(o protocol.Right) bool { return o.Name == r.Name })
	}
}

// ofEarlierPool reports whether a right is a lease of a pool that goes, is gone, or was made again
// when the data went back. An earlier holder's lease of that is not waited for: the right is lost.
func (w *world) ofEarlierPool(r protocol.Right) bool {
	p, out := w.api.readPool(r.Pool)
	return w.kind.restores && r.Kind == protocol.RightLease && (out != protocol.Done || p.Deleting || p.UID != r.PoolUID)
}

// inherits reports whether the restored data have a lease in the name of a store that n has
// lost: what n has leased of the block since is lost, although nobody else has it.
func (n *simNode) inherits(lease string) bool {
	l, _ := n.w.api.leases.read(lease)
	earlier := false
	for i := 1; i < n.stores; i++ {
		earlier = earlier || l.Store == storeID(n.machine, i)
	}
	return n.w.kind.restores && l.Holder.Node == n.name && earlier
}

// claimed reports whether addresses of the block of r, a node's lease, are granted to
// claims on a lease that is not r.
func (w *world) claimed(r protocol.Right) bool {
	return slices.ContainsFunc(w.api.leases.list(func(l protocol.Lease) bool { return l.UID != r.UID && l.Block.Overlaps(r.Block) }), func(l protocol.Lease) bool {
		return slices.ContainsFunc(l.Grants, func(g protocol.Grant) bool { return g.To.Kind == protocol.GranteeClaim })
	})
}

// everyAgent reports whether every machine that is on has an agent, of which it is so.
func (w *world) everyAgent(so func(*simNode) bool) bool {
	return !slices.ContainsFunc(w.nodes, func(n *simNode) bool { return !n.off && (n.agent == nil || !so(n)) })
}

// told reports whether the agent has told the API server, since it started, what its node
// holds: it is ready. For what is another's it does not wait.
func (n *simNode) told() bool {
	ready, _ := n.agent.agent.Ready(context.Background())
	return ready
}

// noPods reports whether nobody is to start a pod: after a restore, until every machine
// that is on has an agent that is ready. People wait until the pools are closed; here pods do that
// only where the block size was changed since the backup.
func (w *world) noPods() bool {
	w.holding = w.holding && (!w.everyAgent((*simNode).told) || w.resized())
	return w.holding
}

// resized reports whether an open pool has a lease of another block size than its own.
func (w *world) resized() bool {
	return slices.ContainsFunc(w.api.leases.list(nil), func(l protocol.Lease) bool {
		p, out := w.api.readPool(l.Pool)
		return out == protocol.Done && p.Open && p.UID == l.PoolUID && p.BlockBits(l.Block.Addr()) != l.Block.Bits()
	})
}

// putBack reports whether all that n holds has been said in its term.
func (n *simNode) putBack() bool {
	r := n.disk.history.Restored
	return n.told() && (r == nil || r.Back)
}

package simulation

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// provable reports whether the node's store is provably the latest: the counter in
// /run has followed it.
func (n *simNode) provable() bool {
	switch {
	case n.disk.gone:
		return false
	case n.w.fault == M8:
		return true
	case n.run.present:
		return n.run.store == n.disk.store && n.run.commits <= n.disk.commits
	}
	return n.disk.boot != n.bootID() || n.w.fault == M50
}

// replaceStore begins with a new store after one that was lost, is older than it
// was, or is damaged. It knows of nothing that runs.
func (n *simNode) replaceStore() {
	n.w.logf("%s: the store is not the latest: begins a new one", n.machine)
	n.w.count("store replaced")
	n.newStore()
	if n.w.fault != M50 {
		n.run = witness{present: true, store: n.disk.store}
	}
	for _, s := range n.sandboxes {
		s.unread = true
	}
}

// listFormer takes up what stores left that this machine has lost: frozen, and
// given back at once where another boot has come since.
func (n *simNode) listFormer() {
	for _, f := range n.agent.registrar.Seen.Former {
		if f.Store == n.disk.store || f.Machine != n.machine && n.w.fault != M48 {
			continue
		}
		var found []protocol.Right
		n.ask("list of what store "+string(f.Store)+" left", false, func() { found = n.frozenOf(f.Store) }, func(known bool) {
			if known && len(found) > 0 {
				n.freeze(f, found)
			}
		})
	}
}

// frozenOf returns what the API server has in the name of a lost store of this
// node's.
func (n *simNode) frozenOf(store protocol.StoreID) (found []protocol.Right) {
	for _, l := range n.w.api.leases.list(func(l protocol.Lease) bool { return l.Holder.Node == n.name && l.Store == store }) {
		found = append(found, protocol.FrozenLease(l))
	}
	for _, s := range n.w.api.subs.list(func(s protocol.SubLease) bool { return s.Node == n.name && s.Store == store }) {
		found = append(found, protocol.FrozenSubLease(s))
	}
	return found
}

// freeze records what a lost store held, with what runs at this moment, and reads
// back the attachments that it knew.
func (n *simNode) freeze(f protocol.Former, found []protocol.Right) {
	n.commit(func(d *simDisk) {
		if _, ok := d.lost[f.Store]; !ok {
			moment := lostStore{boot: f.Boot, waiting: map[string]bool{}}
			for _, s := range n.sandboxes {
				if s.netns {
					moment.waiting[s.cid] = true
				}
			}
			d.lost[f.Store] = moment
		}
		for _, r := range found {
			if _, known := d.rights[r.Name]; known || n.agent.busy[r.Name] {
				continue
			}
			n.w.logf("%s: takes up %s of the lost store %s", n.machine, r.Name, f.Store)
			n.w.count("frozen")
			if n.w.fault == M6 && r.Kind == protocol.RightLease { // as empty
				r.Phase = protocol.Releasing
			}
			d.rights[r.Name] = r
			if r.Kind == protocol.RightLease {
				n.openBlock(d, protocol.Right{Kind: r.Kind, LeaseRight: protocol.LeaseRight{Pool: r.Pool, PoolUID: r.PoolUID, Block: r.Block}}, protocol.Result{Next: r})
			}
		}
	})
	if n.w.fault == M6 {
		for _, r := range found {
			n.drive(r, protocol.Event{Kind: protocol.EventWant}, nil)
		}
		return
	}
	if f.Boot != n.bootID() {
		return
	}
	for _, s := range n.sandboxes {
		if s.unread && s.uses() && !s.unwritten {
			n.readBack(f.Store, s)
		}
	}
}

// readBack records what the runtime knows of a sandbox whose addresses are of a lost
// store's rights.
func (n *simNode) readBack(store protocol.StoreID, s *sandbox) {
	if n.w.one(10) { // the runtime had not written the result down when the store went
		s.unwritten = true
		return
	}
	a := simAsk{key: s.key(), pod: s.pod.ref, boot: n.bootID()}
	var addrs []attAddr
	for _, x := range s.addrs {
		for _, name := range n.names(func(r protocol.Right) bool { return r.Phase == protocol.Frozen && r.Store == store }) {
			switch r := n.disk.rights[name]; {
			case r.Kind == protocol.RightUse && r.Use.Pod.UID == s.pod.ref.UID:
				a.use, a.claim = name, &r.Use.Claim
				addrs = append(addrs, attAddr{addr: x, pool: claimPool})
			case r.Kind == protocol.RightRequest && r.Request.Pod.UID == s.pod.ref.UID && slices.Contains(r.Addrs, x):
				a.use = name
				addrs = append(addrs, attAddr{addr: x, pool: poolName})
			case r.Kind == protocol.RightLease && r.Block.Contains(x):
				addrs = append(addrs, attAddr{addr: x, pool: r.Pool, lease: name})
			}
		}
	}
	if len(addrs) != len(s.addrs) {
		return
	}
	n.commit(func(d *simDisk) {
		if _, known := d.atts[a.key]; known {
			return
		}
		for _, x := range addrs {
			if x.lease == "" {
				continue
			}
			if err := d.space(x.pool, nil).Take(x.addr); err != nil {
				return // it is known already, or has been given back meanwhile
			}
		}
		n.w.logf("%s: reads back %v", n.machine, s)
		d.put(a, addrs)
		n.voided[a.key] = s.void
		s.unread = false
	})
}

// thawed reports whether nothing runs any more of what ran when a store was lost.
func (n *simNode) thawed(d *simDisk, store protocol.StoreID) bool {
	l := d.lost[store]
	if l.boot != n.bootID() || n.w.fault == M49 {
		return true
	}
	for cid := range l.waiting {
		if n.netnsOf(cid) {
			return false
		}
	}
	return true
}

// cutRange reads "first-last".
func cutRange(text string) (first, last netip.Addr, ok bool) {
	a, b, _ := strings.Cut(text, "-")
	first, err := netip.ParseAddr(a)
	if err != nil {
		return first, last, false
	}
	last, err = netip.ParseAddr(b)
	return first, last, err == nil
}

// meddle puts an image of the disk back, as people and hypervisors do, or the disk
// is lost. The agent does not run.
func (n *simNode) meddle() {
	w := n.w
	if w.holding || n.unsaid() {
		return
	}
	switch w.rng.IntN(3) {
	case 0, 1:
		if n.image == nil {
			return
		}
		w.logf("%s: the disk goes back to an image with %d of %d commits", n.machine, n.image.commits, n.disk.commits)
		w.count("disk put back")
		n.disk = n.image.clone()
	case 2:
		w.logf("%s: the disk is lost", n.machine)
		w.count("disk lost")
		n.disk = newDisk(protocol.StoreID(fmt.Sprintf("%s-none", n.machine)))
		n.disk.gone = true
	}
	n.synced = nil
}

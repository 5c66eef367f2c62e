package simulation

import (
	"fmt"
	"net/netip"
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
// was, or is damaged. What runs on the machine at this moment is noted, and what
// the runtime knows of it read back.
func (n *simNode) replaceStore() {
	w := n.w
	w.logf("%s: the store is not the latest: begins a new one", n.machine)
	w.count("store replaced")
	n.newStore()
	n.run = witness{}
	now := lostStore{boot: n.bootID(), waiting: map[string]bool{}}
	for _, s := range n.sandboxes {
		if !s.netns {
			continue
		}
		now.waiting[s.cid] = true
		if len(s.addrs) == 0 || s.ending {
			continue
		}
		if w.one(6) { // its result was not written yet when the store went
			s.unread = true
			continue
		}
		att := attachment{key: s.key(), pod: s.pod.ref, boot: n.bootID()}
		if s.claim != "" {
			att.claim = &protocol.ClaimRef{Namespace: "ns", Name: s.pod.claim, UID: s.claim}
		}
		for _, x := range s.addrs {
			pool, _ := w.leaseOf(x, protocol.Pool{})
			att.addrs = append(att.addrs, attAddr{addr: x, pool: pool})
		}
		n.disk.serial++
		att.gen = n.disk.serial
		n.disk.atts[att.key] = att
	}
	n.disk.moment = now
}

// thawed reports whether nothing runs any more of what ran when the store before
// this one was lost.
func (n *simNode) thawed(d *simDisk) bool {
	if d.moment.boot != n.bootID() || n.w.fault == M49 {
		return true
	}
	for cid := range d.moment.waiting {
		if n.netnsOf(cid) {
			return false
		}
	}
	return true
}

// listFormer takes up what stores left that this machine has lost: to be given back
// at once where another boot has come since, else frozen.
func (n *simNode) listFormer() {
	for _, f := range n.agent.sitting.Seen.Former {
		if f.Store == n.disk.store || f.Ended || f.Machine != n.machine && n.w.fault != M48 {
			continue
		}
		var found []protocol.Right
		n.ask("list of what store "+string(f.Store)+" left", false, func() { found = n.listOf(f.Store) }, func(known bool) {
			for _, r := range found {
				if _, ok := n.disk.rights[r.Name]; !known || ok || n.agent.busy[r.Name] {
					continue
				}
				r.Store = f.Store
				n.takeUp(r, f)
			}
		})
	}
}

func (n *simNode) takeUp(r protocol.Right, f protocol.Former) {
	phase := protocol.Frozen
	if f.Boot != n.bootID() {
		phase = protocol.Releasing
	}
	n.w.logf("%s: takes up %s of the lost store %s as %s", n.machine, r.Name, f.Store, phase)
	n.w.count("frozen")
	if n.w.fault == M6 && r.Kind == protocol.RightLease { // as its own, and empty
		phase, r.Store = protocol.Noted, ""
	}
	n.adopt(r, phase)
}

// rightOf returns the lease, of this node's records, that x lies in.
func (d *simDisk) rightOf(x netip.Addr) (found protocol.Right) {
	for _, r := range d.rights {
		if r.Kind == protocol.RightLease && r.Block.Contains(x) && (found.Name == "" || r.Name < found.Name) {
			found = r
		}
	}
	return found
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

// meddle keeps a copy of the disk, or puts one back, as people and hypervisors
// do; or the disk is lost. The agent does not run.
func (n *simNode) meddle() {
	w := n.w
	switch w.rng.IntN(3) {
	case 0:
		n.image = n.disk.clone()
		return
	case 1:
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

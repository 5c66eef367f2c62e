package simulation

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// check holds the invariants against this moment.
func (w *world) check() {
	var gives []giver
	for _, n := range w.nodes {
		if len(n.disk.rights) == 0 || !n.serving() {
			continue
		}
		for _, r := range n.disk.rights {
			if r.Kind == protocol.RightLease && n.serves(r) {
				gives = append(gives, giver{n, r})
			}
		}
	}
	for i, g := range gives {
		if w.excused[g.UID] {
			continue
		}
		l, out := w.api.leases.read(g.Name)
		switch {
		case out != protocol.Done:
			w.fail(I1, "%s serves %s, which does not exist", g.node.machine, g.Name)
		case l.Holder.Node != g.node.name || l.Store != g.node.disk.store:
			w.fail(I1, "%s serves %s, which names %v, store %s", g.node.machine, g.Name, l.Holder, l.Store)
		}
		for _, o := range gives[:i] {
			if o.node != g.node && o.Block.Overlaps(g.Block) && !w.excused[o.UID] {
				w.fail(I1, "%s serves %s while %s serves %s", g.node.machine, g.Name, o.node.machine, o.Name)
			}
		}
	}
	if w.kind.uses {
		w.checkUses()
	}
}

// giver is a node and one of the leases that it gives addresses of.
type giver struct {
	node *simNode
	protocol.Right
}

// checkUses holds against this moment that a claim's address is its pods', and
// that two pods that have it are siblings.
func (w *world) checkUses() {
	type user struct {
		node *simNode
		use  protocol.Right
		pod  protocol.PodRef
	}
	var users []user
	for _, n := range w.nodes {
		for name, att := range n.disk.used {
			r, ok := n.disk.rights[name]
			if ok && w.excused[r.UID] {
				att.void = true
				n.disk.used[name] = att
			}
			if ok && r.Kind == protocol.RightUse && !n.off && att.boot == n.bootID() && !att.void {
				users = append(users, user{n, r, att.pod})
			}
		}
	}
	l, _ := w.api.leases.read(claimLease)
	for i, u := range users {
		uid := u.use.Use.Claim.UID
		if len(l.GrantsOf(uid)) == 0 {
			w.fail(I3, "%s has pod %s on claim %s, whose address was freed", u.node.machine, u.pod.Name, uid)
		}
		for _, o := range users[:i] {
			if o.use.Use.Claim.UID == uid && o.node != u.node && !mayShare(o.pod, u.pod) {
				w.fail(I1, "claim %s has pod %s on %s and pod %s on %s", uid, o.pod.Name, o.node.machine, u.pod.Name, u.node.machine)
			}
		}
	}
}

// settle ends the faults and all use, lets everybody look as often as they would,
// and holds that within an hour and a half every node serves, every record is
// forgotten and every object gone. The hourly list runs at once and twice more.
func (w *world) settle() {
	w.calm = true
	w.logf("the faults end")
	for len(w.late) > 0 {
		w.lateWrite(0)
	}
	for name := range maps.Clone(w.api.leases.finalizers) {
		w.api.leases.finalize(name)
	}
	nodes := w.nodes
	if w.kind.twins { // X26: somebody stops the second agent, and gives up its disk
		twin := nodes[1]
		if twin.agent != nil {
			twin.crash()
		}
		w.frozen[twin.disk.store] = true
		clear(twin.disk.used)
		nodes = slices.Delete(slices.Clone(nodes), 1, 2)
	}
	for round := range 90 {
		w.now += time.Minute
		for _, n := range nodes {
			n.cut, n.gone = false, false
			clear(n.disk.used)
			n.recover()
			if round%40 == 0 {
				n.listOwn()
			}
			n.letGo()
			n.lookDue()
		}
		w.ctl.recover(nodes)
		for busy := true; busy && w.failure == nil; {
			busy = w.ctl.work()
			for _, n := range nodes {
				busy = n.work() || busy
			}
			w.now += 10 * time.Millisecond
			w.check()
		}
		if w.failure != nil || w.unrest(nodes) == "" {
			return
		}
	}
	w.fail(I4, "after the faults have ended, %s", w.unrest(nodes))
}

// unrest says what is left undone, if anything.
func (w *world) unrest(nodes []*simNode) string {
	for _, n := range nodes {
		if ok, why := n.agent.sitting.Serving(n.now()); !ok {
			return fmt.Sprintf("%s does not serve: %s", n.machine, why)
		}
		for _, name := range n.names(func(protocol.Right) bool { return true }) {
			return fmt.Sprintf("%s does not get rid of %s: %s", n.machine, name, recordText(n.disk.rights[name]))
		}
		for _, l := range w.api.leases.list(func(l protocol.Lease) bool { return l.Store == n.disk.store }) {
			if _, ok := n.disk.rights[l.Name]; !ok {
				return fmt.Sprintf("lease %s names %s, which has no record of it", l.Name, n.machine)
			}
		}
		for _, s := range w.api.subs.list(func(s protocol.SubLease) bool { return s.Store == n.disk.store }) {
			if _, ok := n.disk.rights[s.Name]; !ok {
				return fmt.Sprintf("use %s names %s, which has no record of it", s.Name, n.machine)
			}
		}
	}
	if p, _ := w.api.pools.read(string(poolName)); !p.Open {
		return "the pool is closed"
	}
	return ""
}

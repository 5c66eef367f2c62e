package simulation

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// settleRounds is how many minutes everybody has to come to rest: longer than the longest F, for
// which a pool may wait after a restore, and then an hour, so that the hourly list runs at least
// once more.
const settleRounds = 120

// settle ends the faults, lets everybody do what there is to do, ends all use, and
// holds that every node serves, every record is forgotten and every object gone.
func (w *world) settle() {
	w.calm = true
	w.rng.begin()
	w.logf("the faults end")
	for len(w.late) > 0 {
		w.lateWrite(0)
	}
	for len(w.ctls) > 1 { // they have found out: two leaders would put off each other's questions for ever
		w.ctls[1].kill()
		w.ctls = slices.Delete(w.ctls, 1, 2)
	}
	for _, name := range slices.Sorted(maps.Keys(w.api.leases.finalizers)) {
		w.api.leases.finalize(name)
	}
	for _, name := range slices.Sorted(maps.Keys(w.api.claims.finalizers)) {
		w.api.claims.finalize(name)
	}
	if w.other != nil {
		w.other.switched, w.other.joined = true, true
	}
	nodes := w.nodes
	if w.kind.twins { // somebody stops the second agent, and gives up its disk
		twin := nodes[1]
		twin.powerOff()
		twin.sandboxes = nil
		for i := range twin.stores {
			w.frozen[storeID(twin.machine, i+1)] = true
		}
		nodes = slices.Delete(slices.Clone(nodes), 1, 2)
	}
	w.rest(nodes)
	w.logf("the agents are started again") // a create that landed after all its rechecks a list alone finds
	for _, n := range nodes {
		n.crash()
	}
	w.rest(nodes)
	w.startAll(nodes)
	w.quench(nodes)
	if w.failure == nil && w.kind.fills {
		w.fill(nodes)
	}
	w.logf("all pods end")
	for _, p := range w.all {
		p.there = false
	}
	for range settleRounds {
		w.rng.begin()
		w.round(nodes)
		if w.failure != nil || w.unrest(nodes) == "" {
			return
		}
	}
	w.fail(I4, "after the faults have ended, %s", w.unrest(nodes))
}

// round is a minute without faults: everybody does all there is to do.
func (w *world) round(nodes []*simNode) { w.pass(nodes, time.Minute) }

// rest waits until every node serves, which one that is new on its machine does after
// half of F.
func (w *world) rest(nodes []*simNode) {
	w.until(nodes, restRounds, func() bool {
		return !slices.ContainsFunc(nodes, func(n *simNode) bool { return !n.serving() })
	})
}

// until has round follow round until it is so, or so many are over. It reports whether it is so, or
// the run has failed before.
func (w *world) until(nodes []*simNode, rounds int, so func() bool) bool {
	for range rounds {
		if w.failure != nil || so() {
			return true
		}
		w.rng.begin()
		w.round(nodes)
	}
	return so()
}

// restRounds is how many minutes rest lasts at most: more than half of the longest F.
const restRounds = 30

// pass has d go by without faults: everybody does all there is to do.
func (w *world) pass(nodes []*simNode, d time.Duration) {
	w.now += d
	for _, n := range nodes {
		n.cut, n.gone, n.full = false, false, false
		n.outlive(func() { n.recover() })
	}
	w.syncRacks()
	w.letGoOfDevices()
	w.restorePools()
	if w.other != nil {
		w.reap(func(r record) bool { return len(w.guests(func(g *guest) bool { return g.cid == r.cid })) == 0 })
	}
	w.makeWay()
	w.clearStrays(nodes)
	for _, c := range w.ctls {
		c.recover(nodes, d < time.Minute)
	}
	w.allWork(nodes)
	w.answerLooks(nodes)
}

// allWork has everybody go on until there is nothing to go on with.
func (w *world) allWork(nodes []*simNode) {
	for busy := true; busy && w.failure == nil; {
		busy = false
		for _, c := range w.ctls {
			busy = c.work() || busy
		}
		for _, n := range nodes {
			n.outlive(func() { busy = n.work() || n.host.work() || n.agent != nil && n.agent.goOn() || busy })
		}
		w.now += 10 * time.Millisecond
		w.check()
	}
}

// clearStrays deletes what names a store that only a deleted registration knew, if it was
// lost, too: agents say so in their logs, and leave it to a person.
func (w *world) clearStrays(nodes []*simNode) {
	stray := func(node protocol.NodeName, store protocol.StoreID) bool {
		return w.unnamed[store] && slices.ContainsFunc(nodes, func(n *simNode) bool {
			return n.name == node && n.disk.store != store && len(n.sandboxes) == 0
		})
	}
	for _, l := range w.api.leases.list(func(l protocol.Lease) bool { return !l.Holder.Cluster && stray(l.Holder.Node, l.Store) }) {
		w.logf("person: deletes lease %s of store %s, which is lost", l.Name, l.Store)
		w.voidGrants(l)
		w.api.leases.remove(l.Meta)
	}
	for _, s := range w.api.subs.list(func(s protocol.SubLease) bool { return stray(s.Node, s.Store) }) {
		w.logf("person: deletes sub-lease %s of store %s, which is lost", s.Name, s.Store)
		w.api.subs.remove(s.Meta)
	}
}

// recover is what a node does when nothing befalls it.
func (n *simNode) recover() {
	if n.agent == nil {
		n.restart()
	}
	if n.paused {
		n.wake()
	}
	for _, s := range n.sandboxes {
		if !s.pod.there {
			n.end(s)
		}
	}
	for range 4 {
		n.sendDels()
	}
	n.bury()
	if n.w.other != nil {
		n.recoverGuests()
	}
	n.recoverAgent()
}

// unrest says what is left undone, if anything.
func (w *world) unrest(nodes []*simNode) string {
	for _, n := range nodes {
		if ok, why := n.agent.agent.Serving(); !ok {
			return fmt.Sprintf("%s does not serve: %s", n.machine, why)
		}
		for k, a := range n.disk.atts {
			return fmt.Sprintf("%s has %v for %s, which is gone", n.machine, a.addrs, k.cid)
		}
		if why := w.rackUnrest(n); why != "" {
			return why
		}
		if len(n.guests) > 0 {
			return fmt.Sprintf("%s has sandboxes of the other IPAM: %v", n.machine, n.guests)
		}
		if len(n.sandboxes)+n.journalled() > 0 {
			return fmt.Sprintf("%s has %d sandboxes and %d journalled DELs", n.machine, len(n.sandboxes), n.journalled())
		}
		for _, name := range n.names(func(r protocol.Right) bool { return !w.ofClaims(r.Name) && !n.homes(r.Name) }) {
			return fmt.Sprintf("%s does not get rid of %s: %s", n.machine, name, recordText(n.disk.rights[name]))
		}
		for _, l := range w.api.leases.list(func(l protocol.Lease) bool { return l.Holder.Node == n.name && !w.ofClaims(l.Name) && !n.homes(l.Name) }) {
			return fmt.Sprintf("lease %s names %s, store %s, which has no record of it", l.Name, n.machine, l.Store)
		}
		for _, s := range w.api.subs.list(func(s protocol.SubLease) bool { return s.Node == n.name }) {
			return fmt.Sprintf("sub-lease %s names %s, store %s, which has no record of it", s.Name, n.machine, s.Store)
		}
	}
	for _, name := range poolNames {
		if p, _ := w.api.pools.read(string(name)); !p.Pool.Open {
			return fmt.Sprintf("pool %s is closed: %s", name, p.why())
		}
	}
	for _, l := range w.api.leases.list(func(l protocol.Lease) bool { return slices.ContainsFunc(l.Grants, keptForPod) }) {
		return fmt.Sprintf("lease %s keeps addresses for pods that are gone: %v", l.Name, l.Grants)
	}
	for _, l := range w.api.leases.list(func(l protocol.Lease) bool { return l.Holder.Cluster && len(l.Grants) == 0 }) {
		return fmt.Sprintf("the cluster does not get rid of %s", l.Name)
	}
	return w.claimUnrest()
}

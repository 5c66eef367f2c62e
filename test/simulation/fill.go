package simulation

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// How long things may take once nothing befalls anybody.
const (
	// fillWait is how long a pod may wait while there is an address for it: requests
	// that nobody wants any more are kept for two minutes, and a holder that had
	// nothing is left alone for 80 seconds at most.
	fillWait = 5 * time.Minute
	// fillMore is how many pods more come than there are addresses, and fillTurns how
	// often two pods go then: their addresses are those of two that wait.
	fillMore, fillTurns = 3, 2
)

// fill holds I5 for pods, while others have what they have: pods come to nodes until
// the nodes' pool has no address left, and some more. Each is served that there is an
// address for; when others go, so are those that wait.
func (w *world) fill(nodes []*simNode) {
	w.rng.begin()
	w.round(nodes)                      // no answer is under way for longer than a minute
	w.pass(nodes, protocol.LastRecheck) // what creates left that came late is found
	if w.failure != nil || slices.ContainsFunc(nodes, func(n *simNode) bool { return !n.serving() }) {
		return // the end of the run says so
	}
	w.until(nodes, settleRounds, func() bool { // what a restore has pods wait for passes
		return !slices.ContainsFunc(nodes, func(n *simNode) bool { return n.disk.history.Restored != nil })
	})
	free := w.unowned(nodes)
	for _, a := range free { // some ask for one by name, while there are others
		if w.one(3) {
			w.come(nodes, a)
		}
	}
	if !w.serveAll(nodes) {
		return
	}
	for range len(w.unowned(nodes)) + fillMore {
		w.come(nodes, netip.Addr{})
	}
	for range fillTurns {
		if !w.serveAll(nodes) {
			return
		}
		for range 2 {
			if s, ok := pickOf(w, w.served(nodes)); ok {
				w.logf("pod %s is deleted", s.pod.ref.UID)
				s.pod.there = false
				s.node.outlive(func() { s.node.end(s) })
			}
		}
	}
	w.serveAll(nodes)
}

// come has a pod come to some node, which asks for exact, if that is an address.
func (w *world) come(nodes []*simNode, exact netip.Addr) {
	p := &simPod{node: nodes[w.rng.IntN(len(nodes))], there: true, at: w.now, ref: w.podRef(), exact: exact}
	if w.kind.devices && !exact.IsValid() && w.one(2) {
		w.giveResource(p)
	}
	w.all = append(w.all, p)
	w.logf("pod %s comes to %s, for %v", p.ref.UID, p.node.machine, exact)
}

// podRef names a new pod.
func (w *world) podRef() protocol.PodRef {
	w.pods++
	uid := protocol.UID(fmt.Sprintf("p%d", w.pods))
	return protocol.PodRef{Namespace: "ns", Name: "pod-" + string(uid), UID: uid}
}

// serveAll waits until no pod waits that there is an address for.
func (w *world) serveAll(nodes []*simNode) bool {
	since := map[*simPod]time.Duration{}
	for w.failure == nil && w.opened("lan") {
		waits := w.waiting(nodes)
		free := w.unowned(nodes)
		done := true
		for _, p := range waits {
			here := w.here(p.node.name, free)
			if len(here) == 0 || p.exact.IsValid() && !slices.Contains(here, p.exact) {
				delete(since, p)
				continue
			}
			done = false
			if at, ok := since[p]; !ok {
				since[p] = w.now
			} else if w.now-at > fillWait {
				w.fail(I5, "pod %s on %s waits for an address, and nobody has %v", p.ref.UID, p.node.machine, w.leasesOf(here))
				return false
			}
		}
		if done {
			return true
		}
		w.rng.begin()
		for _, p := range waits {
			if p.node.live(p) == nil {
				p.node.outlive(func() { p.node.newSandbox(p) })
			}
		}
		w.pass(nodes, time.Second)
	}
	return false
}

// waiting returns the pods that lack an address of the nodes' pool.
func (w *world) waiting(nodes []*simNode) []*simPod {
	var all []*simPod
	for _, p := range w.all {
		if s := p.node.live(p); p.there && p.node.guestOf(p) == nil && p.claim == "" && slices.Contains(nodes, p.node) && (s == nil || len(s.addrs) == 0) {
			all = append(all, p)
		}
	}
	return all
}

// served returns the sandboxes that have an address of the nodes' pool of their own.
func (w *world) served(nodes []*simNode) []*sandbox {
	var all []*sandbox
	for _, n := range nodes {
		all = append(all, n.with(func(s *sandbox) bool { return s.uses() && s.claim == "" })...)
	}
	return all
}

// unowned returns the ordinary addresses of the nodes' pool that nobody has: no
// attachment, no claim, and neither lease nor request of a store that does not
// answer, nor a lease that its node was refused after it had vanished, nor a block of
// another size by a lease that was deleted while pods had addresses of it, or one that
// overlaps that.
func (w *world) unowned(nodes []*simNode) []netip.Addr {
	taken := map[netip.Addr]bool{}
	rested := map[string]bool{}
	pool, _ := w.api.readPool(poolName)
	for _, n := range nodes {
		for _, r := range n.disk.rights {
			if r.Kind == protocol.RightLease && r.Phase == protocol.Lost && r.Pool == poolName && r.Block.Bits() != pool.Bits4 {
				block := r.Block // its node leases no block that overlaps it
				if pool.Open && pool.Bits4 < block.Bits() {
					block = netip.PrefixFrom(block.Addr(), pool.Bits4).Masked()
				}
				for a := block.Addr(); block.Contains(a); a = a.Next() {
					taken[a] = true
				}
			}
		}
		for _, a := range n.disk.atts {
			if n.leftOver(a) {
				continue
			}
			rested[a.use] = true
			for _, x := range a.addrs {
				taken[x.addr] = true
			}
		}
	}
	answers := func(node protocol.NodeName, store protocol.StoreID) bool {
		return slices.ContainsFunc(nodes, func(n *simNode) bool { return n.name == node && n.disk.store == store })
	}
	for _, l := range w.api.leases.objects {
		for _, g := range l.Grants {
			s, out := w.api.subs.read(g.To.Name)
			stale := g.To.Kind == protocol.GranteeSubLease && (out != protocol.Done || s.UID != g.To.UID || answers(s.Node, s.Store) && !rested[s.Name])
			taken[g.Addr] = taken[g.Addr] || !stale
		}
		lost := slices.ContainsFunc(nodes, func(n *simNode) bool {
			return n.name == l.Holder.Node && n.disk.rights[l.Name].Phase == protocol.Lost
		})
		if l.Holder.Cluster || answers(l.Holder.Node, l.Store) && !lost {
			continue
		}
		for a := l.Block.Addr(); l.Block.Contains(a); a = a.Next() {
			taken[a] = true
		}
	}
	return slices.DeleteFunc(w.addresses(), func(a netip.Addr) bool { return taken[a] })
}

// leasesOf says what the leases of addresses say of them.
func (w *world) leasesOf(addrs []netip.Addr) (all []string) {
	for _, a := range addrs {
		text := fmt.Sprintf("%v: in no lease", a)
		for _, l := range w.api.leases.list(func(l protocol.Lease) bool { return l.Pool == poolName && l.Block.Contains(a) }) {
			text = fmt.Sprintf("%v: %s of %v", a, l.Name, l.Holder)
			if slices.Contains(l.Ceded, a) {
				text += ", ceded"
			}
			for _, n := range w.nodes {
				if r, ok := n.disk.rights[l.Name]; ok && n.name == l.Holder.Node {
					text += fmt.Sprintf(" (%s: %s, ceded %v)", n.machine, recordText(r), r.Ceded)
				}
			}
			if g, ok := l.GrantOf(a); ok {
				text += fmt.Sprintf(", granted to %v, freeing %v", g.To, g.Freeing)
			}
		}
		all = append(all, text)
	}
	return all
}

package simulation

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A guest is a sandbox that has its address by the other IPAM.
type guest struct {
	cid  string
	pod  *simPod
	node *simNode

	netns  bool       // its network namespace exists
	adding bool       // an ADD is under way
	addr   netip.Addr // what it has, invalid before
	cached bool       // the CNI library has written down what the ADD was answered
	ending bool       // a DEL has begun: it uses nothing any more
	owes   bool       // a DEL is to be sent
	tries  int
	// void says that its address is not its own any more, on the word of a person.
	void bool
}

// uses reports whether g has an address now.
func (g *guest) uses() bool { return g.addr.IsValid() && g.netns && !g.ending }

func (g *guest) String() string {
	return fmt.Sprintf("sandbox %s of pod %s on %s", g.cid, g.pod.ref.UID, g.node.machine)
}

// guestOf returns the sandbox that p has by the other IPAM, if any.
func (n *simNode) guestOf(p *simPod) *guest {
	return firstOf(n.guests, func(g *guest) bool { return g.pod == p && !g.ending })
}

// settled puts a sandbox there that has had its address for long.
func (n *simNode) settled(status bool) {
	g := n.newGuest(n.newOldPod())
	g.adding, g.cached = false, true
	g.addr, _ = n.w.other.lowest(n.w.other.records)
	if !g.addr.IsValid() {
		n.endGuest(g)
		return
	}
	n.w.other.records[g.addr] = record{g.pod.ref.Name, g.cid}
	if status {
		g.pod.shows = []netip.Addr{g.addr}
	}
	n.w.logf("%v has %v by the other IPAM", g, g.addr)
}

// lowest returns the lowest address that has no record.
func (o *otherIPAM) lowest(records map[netip.Addr]record) (netip.Addr, bool) {
	for _, a := range o.gives {
		if _, taken := records[a]; !taken {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// newOldPod makes a pod of the definition that is the other IPAM's first.
func (n *simNode) newOldPod() *simPod {
	p := &simPod{node: n, there: true, at: n.w.now, ref: n.w.podRef(), old: true}
	n.w.all = append(n.w.all, p)
	return p
}

func (n *simNode) newGuest(p *simPod) *guest {
	n.w.cids++
	g := &guest{cid: fmt.Sprintf("c%d", n.w.cids), pod: p, node: n, netns: true, adding: true}
	n.guests = append(n.guests, g)
	return g
}

// runPod gives a pod a sandbox, by the IPAM that its definition names as this node's
// meta-plugin knows it.
func (n *simNode) runPod(p *simPod) {
	if !p.old {
		n.newSandbox(p)
		return
	}
	if n.switched {
		p.exact = p.forged
		n.newSandbox(p)
		return
	}
	g := n.newGuest(p)
	n.w.logf("%s: runs %v, by the other IPAM", n.machine, g)
	n.host.later(func() { n.readOther(g) })
}

// readOther is the first call of an ADD of the other IPAM.
func (n *simNode) readOther(g *guest) {
	var seen map[netip.Addr]record
	rev := 0
	n.host.ask("read of the other IPAM's object", false, func() { seen, rev = maps.Clone(n.w.other.records), n.w.other.revision }, func(known bool) {
		x, free := n.w.other.lowest(seen)
		if !known || !free || g.ending {
			n.failOther(g)
			return
		}
		n.host.later(func() { n.allocateOther(g, x, rev) })
	})
}

// allocateOther is the second: it records the address.
func (n *simNode) allocateOther(g *guest, x netip.Addr, rev int) {
	o := n.w.other
	out := protocol.Unknown
	n.host.ask(n.w.text("allocation of %v for %s", x, g.cid), true, func() {
		switch {
		case n.w.refuses():
			out = protocol.Refused
		case rev != o.revision:
			out = protocol.Conflict
		default:
			out = protocol.Done
			o.records[x] = record{g.pod.ref.Name, g.cid}
			o.revision++
		}
		n.w.logf("server: allocation of %v for %s: %v", x, g.cid, out)
	}, func(known bool) {
		switch {
		case g.ending || !g.netns:
			n.failOther(g)
		case known && out == protocol.Done:
			n.host.later(func() { n.configure(g, x) })
		case known && out == protocol.Conflict && g.tries < 5:
			g.tries++
			n.host.later(func() { n.readOther(g) })
		default:
			n.failOther(g)
		}
	})
}

// configure gives the sandbox its address; the result is written down, and later the
// pod's status, or, rarely, never.
func (n *simNode) configure(g *guest, x netip.Addr) {
	if g.ending || !g.netns {
		n.failOther(g)
		return
	}
	g.addr = x
	n.w.logf("%s: %v has %v, by the other IPAM", n.machine, g, x)
	n.w.count("ADD by another")
	n.host.later(func() {
		g.adding, g.cached = false, true
		if !n.w.one(10) {
			n.showLater(g.pod, func() []netip.Addr {
				if !g.uses() {
					return nil
				}
				return []netip.Addr{g.addr}
			})
		}
	})
}

// failOther ends an ADD without an address: the pod gets another sandbox.
func (n *simNode) failOther(g *guest) {
	g.adding = false
	n.w.count("ADD by another failed")
	n.endGuest(g)
}

// showLater has the status of p show, some time later, what now returns then.
func (n *simNode) showLater(p *simPod, now func() []netip.Addr) {
	n.shows = append(n.shows, statusWrite{n.w.now + n.w.upTo(30*time.Second), p, now})
}

// statusWrite is a pod's status that is to be written.
type statusWrite struct {
	at  time.Duration
	pod *simPod
	now func() []netip.Addr
}

// writeStatus writes a status whose time has come.
func (n *simNode) writeStatus() {
	i := slices.IndexFunc(n.shows, func(s statusWrite) bool { return s.at <= n.w.now })
	if i < 0 {
		return
	}
	s := n.shows[i]
	n.shows = slices.Delete(n.shows, i, i+1)
	addrs, was := s.now(), s.pod.written
	if addrs == nil {
		return
	}
	done := false
	n.host.ask(n.w.text("status of pod %s: %v", s.pod.ref.UID, addrs), true, func() {
		if done = s.pod.written == was; done {
			s.pod.shows = addrs
			s.pod.written++
		}
	}, func(known bool) {
		if !known || !done {
			n.shows = append(n.shows, s)
		}
	})
}

// endGuest begins the end of g.
func (n *simNode) endGuest(g *guest) {
	if g.ending {
		return
	}
	g.ending, g.owes = true, true
	if n.w.one(2) {
		g.netns = false
	}
}

// delGuest sends the DEL of g to the other IPAM, which forgets what it has.
func (n *simNode) delGuest(g *guest) {
	g.owes = false
	n.host.ask("release of "+g.cid, true, func() {
		n.w.reap(func(r record) bool { return r.cid == g.cid })
	}, func(known bool) {
		if !known {
			g.owes = true
			return
		}
		n.w.logf("%s: %v is gone", n.machine, g)
		g.netns, g.cached, g.adding = false, false, false
		n.guests = slices.DeleteFunc(n.guests, func(o *guest) bool { return o == g })
	})
}

// otherWork is what the kubelet, its runtime and the meta-plugin do about pods of the
// other IPAM.
func (n *simNode) otherWork() {
	w := n.w
	for range 1 + w.rng.IntN(4) {
		if !n.host.work() {
			break
		}
	}
	switch w.rng.IntN(8) {
	case 0, 1:
		running := len(w.podsOf(n))
		if !n.cut && !w.calm && running < 4 && len(n.guests) < 3 {
			n.runPod(n.newOldPod())
		}
	case 2:
		if g, ok := pickOf(w, n.guests); ok && !g.adding {
			if w.one(2) {
				w.logf("%s: pod %s is deleted", n.machine, g.pod.ref.UID)
				g.pod.there = false
			}
			if w.one(2) {
				w.logf("%s: %v ends", n.machine, g)
				n.endGuest(g)
			}
		}
	case 3:
		for _, g := range n.guests {
			if !g.pod.there && w.one(8) { // the kubelet has seen that its pod is gone
				n.endGuest(g)
			}
		}
	case 4, 5:
		if g, ok := pickOf(w, slices.DeleteFunc(slices.Clone(n.guests), func(g *guest) bool { return !g.owes || g.adding })); ok {
			n.delGuest(g)
		}
	case 6:
		n.writeStatus()
	case 7:
		if w.other.switched && !n.switched && w.one(2) {
			w.logf("%s: the meta-plugin sees the new definition", n.machine)
			n.switched = true
		}
	}
}

// podsOf returns the pods of a node that are there.
func (w *world) podsOf(n *simNode) (all []*simPod) {
	for _, p := range w.all {
		if p.node == n && p.there {
			all = append(all, p)
		}
	}
	return all
}

// endGuests is what befalls the guests of a machine whose power goes.
func (n *simNode) endGuests() {
	if n.w.other == nil {
		return
	}
	n.host.die()
	n.shows = nil
	for _, g := range n.guests {
		g.ending, g.owes, g.netns, g.cached, g.adding = true, true, false, false, false
	}
}

// recoverGuests is otherWork when nothing befalls anybody.
func (n *simNode) recoverGuests() {
	n.switched = n.switched || n.w.other.switched
	for _, g := range slices.Clone(n.guests) {
		if !g.pod.there {
			n.endGuest(g)
		}
		if g.owes && !g.adding {
			n.delGuest(g)
		}
	}
	for range len(n.shows) {
		n.writeStatus()
	}
}

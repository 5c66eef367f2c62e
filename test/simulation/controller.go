package simulation

import (
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// fenceMargin is what the controller waits beyond F.
const fenceMargin = time.Minute

// simController is the controller as docs/leases.md has it, as far as it bears on
// nodes' rights: it ends the terms of dead nodes, takes their leases and uses, and
// opens and closes the pool. What it does for claims is in simclaims_test.go.
type simController struct {
	caller
	watched map[protocol.NodeName]*watch // forgotten by a new leader
	busy    bool                         // the pool is being closed and opened
}

// watch is since when, by the controller's own clock, a seat has stood still.
type watch struct {
	revision protocol.Revision
	since    time.Duration
}

func newSimController(w *world) *simController {
	c := &simController{watched: map[protocol.NodeName]*watch{}}
	c.caller = caller{w: w, who: "controller", deaf: func() bool { return false }}
	w.api.pools.create(protocol.Pool{Meta: protocol.Meta{Name: string(poolName)}, Open: true, Bits4: 31})
	w.api.leases.create(protocol.Lease{
		Meta: protocol.Meta{Name: claimLease}, Protocol: protocol.Version, Pool: claimPool, Block: claimBlock, Holder: protocol.Holder{Cluster: true},
	})
	return c
}

func (c *simController) act() {
	w := c.w
	if w.one(100) {
		w.logf("controller: another leader")
		c.die()
		c.watched, c.busy = map[protocol.NodeName]*watch{}, false
		return
	}
	if w.rng.IntN(10) < 8 && c.work() {
		return
	}
	if w.kind.uses && w.one(2) {
		c.claims()
		return
	}
	switch w.rng.IntN(6) {
	case 0, 1, 2:
		c.look(w.nodes[w.rng.IntN(len(w.nodes))])
	case 3:
		c.giveBack()
	case 4:
		c.grant()
		c.recall(w.nodes[w.rng.IntN(len(w.nodes))])
	case 5:
		if w.kind.resizes {
			c.resize()
		}
	}
}

// recover is what the controller does when nothing else happens.
func (c *simController) recover(nodes []*simNode) {
	for _, n := range nodes {
		c.look(n)
	}
	c.giveBack()
	c.grant()
	c.claims()
	if p, _ := c.w.api.pools.read(string(poolName)); !p.Open && !c.busy {
		c.resize()
	}
}

// look reads a node's seat, and ends its term if the node is dead.
func (c *simController) look(n *simNode) {
	var seat protocol.Seat
	var out protocol.Outcome
	c.ask("read of seat "+string(n.name), false, func() { seat, out = c.w.api.seats.read(string(n.name)) }, func(known bool) {
		if !known || out != protocol.Done {
			return
		}
		if seat.Store == "" { // a leader ended its term: whatever it left undone
			c.takeAll(n, seat.Term-1)
			return
		}
		for _, f := range seat.Former {
			if f.Ended {
				c.takeAll(n, f.Term)
			}
		}
		seen := c.watched[n.name]
		if seen == nil || seen.revision != seat.Revision {
			seen = &watch{revision: seat.Revision, since: c.w.now}
			c.watched[n.name] = seen
		}
		wait := seat.Fence + fenceMargin
		if c.w.fault == M18 {
			wait = seat.Fence / 2
		}
		since := seen.since
		if c.w.fault == M51 {
			since = seat.Beat.Sub(epoch)
		}
		silent := seat.Fence > 0 && c.w.now-since >= wait
		if c.tainted(n) || n.gone && silent {
			c.endTerm(n, seat)
		}
	})
}

// tainted reports whether a person vouches that the machine is off. What it says
// is true, and stays true until the machine boots.
func (c *simController) tainted(n *simNode) bool { return n.off && !c.w.kind.twins && c.w.one(3) }

// endTerm ends the term of a dead node, by compare-and-swap.
func (c *simController) endTerm(n *simNode, seat protocol.Seat) {
	keep := c.w.one(2)
	var out protocol.Outcome
	c.ask("end of the term of "+string(n.name), true, func() {
		_, out = c.w.api.seats.update(seat.Meta, func(s *protocol.Seat) {
			f := s.Occupant()
			f.Ended = true
			s.Former = append(slices.Clip(s.Former), f)
			s.Term++
			s.Turn++
			s.Store, s.Boot = "", ""
			if !keep {
				s.Machine = ""
			}
		})
		if out == protocol.Done {
			c.w.vouched(n.name)
		}
		c.w.logf("server: end of term %d of %s: %v", seat.Term, n.name, out)
	}, func(known bool) {
		if known && out == protocol.Done {
			c.w.count("term ended")
			c.takeAll(n, seat.Term)
		}
	})
}

// takeAll takes what a node held in a term that has ended: leases for the
// cluster, and uses away.
func (c *simController) takeAll(n *simNode, term int64) {
	var leases []protocol.Lease
	var uses []protocol.SubLease
	c.ask("list of what is held by "+string(n.name), false, func() {
		leases = c.w.api.leases.list(func(l protocol.Lease) bool { return l.Holder.Node == n.name && l.Term <= term })
		uses = c.w.api.subs.list(func(s protocol.SubLease) bool { return s.Node == n.name && s.Term <= term })
	}, func(known bool) {
		if !known {
			return
		}
		for _, l := range leases {
			c.later(func() { c.takeLease(l) })
		}
		for _, s := range uses {
			c.later(func() { c.takeUse(s) })
		}
	})
}

func (c *simController) takeLease(l protocol.Lease) {
	c.ask("take-over of "+l.Name, true, func() {
		_, out := c.w.api.leases.update(l.Meta, func(l *protocol.Lease) {
			l.Holder, l.Store, l.Term, l.Turn = protocol.Holder{Cluster: true}, "", 0, l.Turn+1
		})
		c.w.logf("server: take-over of %s at rev %s: %v", l.Name, l.Revision, out)
		if out == protocol.Done {
			c.w.count("lease taken over")
		}
	}, func(bool) {})
}

func (c *simController) takeUse(s protocol.SubLease) {
	c.ask("removal of use "+s.Name, true, func() {
		if out := c.w.api.subs.remove(s.Meta); out == protocol.Done {
			c.w.logf("server: use %s of a dead node removed", s.Name)
			c.w.excuse(s.UID)
			c.w.count("use taken over")
		}
	}, func(bool) {})
}

// giveBack deletes a lease that the cluster holds for nothing, or that a lost
// store held whose machine has booted since.
func (c *simController) giveBack() {
	idle := func(l protocol.Lease) bool {
		return l.Name != claimLease && len(l.Grants) == 0 && (l.Holder.Cluster || c.w.frozen[l.Store])
	}
	if l, ok := pickOf(c.w, c.w.api.leases.list(idle)); ok {
		c.ask("delete of "+l.Name, true, func() { c.w.api.leases.remove(l.Meta) }, func(bool) {})
	}
	if s, ok := pickOf(c.w, c.w.api.subs.list(func(s protocol.SubLease) bool { return c.w.frozen[s.Store] })); ok {
		c.ask("delete of "+s.Name, true, func() { c.w.api.subs.remove(s.Meta) }, func(bool) {})
	}
}

// recall writes into a node's seat what it asks back.
func (c *simController) recall(n *simNode) {
	seat, out := c.w.api.seats.read(string(n.name))
	if out != protocol.Done {
		return
	}
	c.ask("recall on seat "+string(n.name), true, func() {
		c.w.api.seats.update(seat.Meta, func(s *protocol.Seat) {
			s.Recalls = append(slices.Clip(s.Recalls), protocol.Recall{Lease: "lan"})
			s.Turn++
		})
	}, func(bool) {})
}

// grant grants an address of a node's lease to somebody, as of one that was
// ceded, or takes the grant back.
func (c *simController) grant() {
	l, ok := pickOf(c.w, c.w.api.leases.list(func(l protocol.Lease) bool { return l.Name != claimLease }))
	if !ok || (c.w.calm && len(l.Grants) == 0) {
		return
	}
	c.ask("change of the grants of "+l.Name, true, func() {
		c.w.api.leases.update(l.Meta, func(l *protocol.Lease) {
			if len(l.Grants) > 0 {
				l.Grants = nil
				return
			}
			l.Grants = []protocol.Grant{{Addr: l.Block.Addr(), To: protocol.Grantee{Kind: protocol.GranteeSubLease, UID: "somebody"}}}
		})
	}, func(bool) {})
}

// resize changes the pool's block size: close, list live, change, open.
func (c *simController) resize() {
	if c.busy {
		return
	}
	c.busy = true
	p, _ := c.w.api.pools.read(string(poolName))
	bits := 63 - p.Bits4
	c.setPool(p, func(p *protocol.Pool) { p.Open = c.w.fault == M46 }, func(p protocol.Pool) {
		var held []protocol.Lease
		c.ask("list of the pool's leases", false, func() {
			held = c.w.api.leases.list(func(l protocol.Lease) bool { return l.Pool == poolName })
		}, func(known bool) {
			change := func(p *protocol.Pool) { p.Open, p.Bits4 = true, bits }
			if !known || slices.ContainsFunc(held, func(l protocol.Lease) bool { return l.Block.Bits() != bits }) {
				change = func(p *protocol.Pool) { p.Open = true }
			}
			c.setPool(p, change, func(p protocol.Pool) {
				if p.Bits4 == bits {
					c.w.count("pool resized")
				}
				c.busy = false
			})
		})
	})
}

func (c *simController) setPool(p protocol.Pool, change func(*protocol.Pool), then func(protocol.Pool)) {
	var out protocol.Outcome
	c.ask("change of the pool", true, func() {
		p, out = c.w.api.pools.update(p.Meta, change)
		c.w.logf("server: pool open %v, /%d: %v", p.Open, p.Bits4, out)
	}, func(known bool) {
		if known && out == protocol.Done {
			c.later(func() { then(p) })
			return
		}
		c.busy = false
	})
}

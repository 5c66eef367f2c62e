package simulation

import (
	"fmt"
	"net/netip"

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
			// One that is ceded whole gives nothing: the cluster may be its holder.
			if r.Kind == protocol.RightLease && n.serves(r) && len(r.Ceded) < 1<<(r.Block.Addr().BitLen()-r.Block.Bits()) {
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
		case w.outrun[g.UID]:
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
	w.checkSandboxes()
	w.checkDevices()
	w.checkSubnetsApart()
	w.checkGuests()
	if w.kind.uses {
		w.checkClaims()
	}
}

// giver is a node and one of the leases that it gives addresses of.
type giver struct {
	node *simNode
	protocol.Right
}

// checkSandboxes holds against this moment that no two sandboxes believe to have
// one address, unless they are siblings on a claim (I1), that what they were
// answered is on the disk (I2), and that a claim's address which a pod has is still
// the claim's (I3).
func (w *world) checkSandboxes() {
	type user struct {
		*sandbox
		addr netip.Addr
	}
	var users []user
	for _, n := range w.nodes {
		disk := n.disk
		for _, s := range n.sandboxes {
			if !s.uses() || s.void {
				continue
			}
			if n.agent != nil && !s.unread {
				if why := disk.differs(s); why != "" {
					w.fail(I2, "%s", why)
				}
			}
			if s.claim != "" && w.truth[s.claim].void {
				continue // whoever deleted the lease gave its addresses to others
			}
			for _, a := range s.addrs {
				users = append(users, user{s, a})
			}
		}
	}
	for i, u := range users {
		if u.claim != "" && !w.granted(u.addr, u.claim) {
			w.fail(I3, "%v has %v of claim %s, which has been freed", u.sandbox, u.addr, u.claim)
		}
		for _, o := range users[:i] {
			if o.addr != u.addr || o.sandbox == u.sandbox {
				continue
			}
			if u.claim == "" || u.claim != o.claim || u.node == o.node || !mayShare(u.pod.ref, o.pod.ref) {
				w.fail(I1, "%v and %v both have %v", o.sandbox, u.sandbox, u.addr)
			}
		}
	}
}

// granted reports whether an address is granted to a UID.
func (w *world) granted(a netip.Addr, uid protocol.UID) bool {
	for _, l := range w.api.leases.objects {
		if g, ok := l.GrantOf(a); ok && l.Block.Contains(a) && g.To.UID == uid {
			return true
		}
	}
	return false
}

// check sends a CHECK, which must find what an ADD was answered, and that it was not
// taken, as the agent's does: a running pod is not restarted for an address that it
// rightly has.
func (n *simNode) check() {
	s, ok := pickOf(n.w, n.with(func(s *sandbox) bool { return s.uses() && !s.void && !s.unread && !n.w.voidClaim(s.claim) }))
	if !ok || n.agent == nil || n.paused {
		return
	}
	if why := n.disk.differs(s); why != "" {
		n.w.fail(I2, "CHECK of %v: %s", s, why)
	}
	att := n.disk.atts[s.key()]
	for _, x := range att.addrs {
		if r := n.disk.rights[att.under(x)]; r.Phase == protocol.Lost && !n.disowned[s.key()] && !n.inherits(r.Name) && !n.w.ofEarlierPool(r) {
			n.w.fail(I2, "CHECK of %v: %v rests on %s, which counts as taken, and nobody took it", s, x.addr, r.Name)
		}
	}
}

// differs says in what d contradicts what s was answered.
func (d *simDisk) differs(s *sandbox) string {
	a, ok := d.atts[s.key()]
	if !ok {
		return fmt.Sprintf("%s was answered %v, and nothing is recorded", s, s.addrs)
	}
	for _, x := range s.addrs {
		if !a.has(x) {
			return fmt.Sprintf("%s was answered %v, and %v is recorded", s, s.addrs, a.addrs)
		}
	}
	return ""
}

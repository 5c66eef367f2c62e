package simulation

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// The claims' block is the cluster's, and always there.
var (
	claimBlock = netip.MustParsePrefix("10.9.0.0/31")
	claimLease = protocol.LeaseName(claimPool, claimBlock)
)

// simPods are pods that may come up on any node: two of a virtual machine on the
// move, a StatefulSet's, and two replicas.
var simPods = []protocol.PodRef{
	{Namespace: "ns", Name: "virt-a", UID: "p0", Owner: protocol.OwnerRef{Kind: "VirtualMachineInstance", Name: "vm", UID: "vmi"}},
	{Namespace: "ns", Name: "virt-b", UID: "p1", Owner: protocol.OwnerRef{Kind: "VirtualMachineInstance", Name: "vm", UID: "vmi"}},
	{Namespace: "ns", Name: "db-0", UID: "p2", Owner: protocol.OwnerRef{Kind: "StatefulSet", Name: "db", UID: "sts"}},
	{Namespace: "ns", Name: "db-0", UID: "p3", Owner: protocol.OwnerRef{Kind: "StatefulSet", Name: "db", UID: "sts"}},
	{Namespace: "ns", Name: "db-1", UID: "p4", Owner: protocol.OwnerRef{Kind: "StatefulSet", Name: "db", UID: "sts"}},
	{Namespace: "ns", Name: "web-1", UID: "p5", Owner: protocol.OwnerRef{Kind: "ReplicaSet", Name: "web-5f", UID: "rs"}},
	{Namespace: "ns", Name: "web-2", UID: "p6", Owner: protocol.OwnerRef{Kind: "ReplicaSet", Name: "web-5f", UID: "rs"}},
}

// mayShare reports whether two of simPods, on two nodes, may have one address at
// once: the two of the virtual machine, and those of one name in the StatefulSet.
func mayShare(a, b protocol.PodRef) bool {
	return a.Owner.UID == b.Owner.UID && (a.Owner.UID == "vmi" || a.Owner.UID == "sts" && a.Name == b.Name)
}

// personClaims makes a claim, or deletes one.
func (w *world) personClaims() {
	busy := func(c protocol.Claim) bool { // an ADD is at it
		return slices.ContainsFunc(w.nodes, func(n *simNode) bool { return n.agent != nil && n.agent.busy[string(c.UID)] })
	}
	if c, ok := pickOf(w, w.api.claims.list(busy)); ok && w.one(2) {
		w.logf("person: deletes claim %s (%s)", c.Name, c.UID)
		w.api.claims.remove(c.Meta)
		return
	}
	name := fmt.Sprintf("c%d", w.rng.IntN(3))
	c, out := w.api.claims.read(name)
	if out == protocol.Done {
		if w.one(3) {
			w.logf("person: deletes claim %s (%s)", name, c.UID)
			w.api.claims.remove(c.Meta)
		}
		return
	}
	owners := []protocol.OwnerRef{{}, simPods[0].Owner, simPods[2].Owner}
	c = protocol.Claim{Meta: protocol.Meta{Name: name}, Namespace: "ns", Owner: owners[w.rng.IntN(len(owners))]}
	c, _ = w.api.claims.create(c)
	w.logf("person: makes claim %s (%s)", name, c.UID)
}

// claims does one thing for a claim: it grants and writes the status, or frees.
func (c *simController) claims() {
	l, _ := c.w.api.leases.read(claimLease)
	claims := c.w.api.claims.list(func(protocol.Claim) bool { return true })
	if g, ok := pickOf(c.w, l.Grants); ok && c.w.one(2) {
		i := slices.IndexFunc(claims, func(cl protocol.Claim) bool { return cl.UID == g.To.UID })
		switch {
		case i < 0:
			c.free(l, g)
		case len(claims[i].IPs) == 0:
			c.ask("status of claim "+claims[i].Name, true, func() {
				c.w.api.claims.update(claims[i].Meta, func(cl *protocol.Claim) { cl.IPs = []netip.Prefix{netip.PrefixFrom(g.Addr, 24)} })
			}, func(bool) {})
		}
		return
	}
	cl, ok := pickOf(c.w, claims)
	if !ok || len(l.GrantsOf(cl.UID)) > 0 || len(l.Grants) == 2 {
		return
	}
	addr := claimBlock.Addr()
	if _, taken := l.GrantOf(addr); taken {
		addr = addr.Next()
	}
	c.changeGrants(l, func(l *protocol.Lease) {
		l.Grants = append(l.Grants, protocol.Grant{Addr: addr, To: protocol.Grantee{Kind: protocol.GranteeClaim, UID: cl.UID, Name: cl.Name}})
	})
}

// free frees an address whose claim is gone: mark, read both names live, clear.
func (c *simController) free(l protocol.Lease, g protocol.Grant) {
	if !g.Freeing && c.w.fault != M24 {
		c.changeGrants(l, func(l *protocol.Lease) {
			l.Grants[slices.Index(l.Grants, g)].Freeing = true
		})
		return
	}
	clear := func() {
		c.changeGrants(l, func(l *protocol.Lease) {
			l.Grants = slices.DeleteFunc(l.Grants, func(have protocol.Grant) bool { return have == g })
		})
	}
	if c.w.fault == M25 {
		clear()
		return
	}
	c.readUse(protocol.UseName(g.To.UID, 0), func() { c.readUse(protocol.UseName(g.To.UID, 1), clear) })
}

// readUse goes on to then if no use of that name exists.
func (c *simController) readUse(name string, then func()) {
	var out protocol.Outcome
	c.ask("read of use "+name, false, func() { _, out = c.w.api.subs.read(name) }, func(known bool) {
		if known && out == protocol.NotFound {
			c.later(then)
		}
	})
}

func (c *simController) changeGrants(l protocol.Lease, change func(*protocol.Lease)) {
	c.ask("change of the claims' grants", true, func() {
		now, out := c.w.api.leases.update(l.Meta, change)
		c.w.logf("server: the claims' grants: %v: %v", out, now.Grants)
		if out == protocol.Done && len(now.Grants) < len(l.Grants) {
			c.w.count("claim freed")
		}
	}, func(bool) {})
}

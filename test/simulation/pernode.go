package simulation

import (
	"maps"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/node/agent"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// subnetBits is the length of a node's subnet, which has two ordinary addresses, and subnetSize how
// many addresses it has.
const (
	subnetBits = 30
	subnetSize = 4
)

// perNode reports whether a pool gives each node a subnet.
func (w *world) perNode(pool protocol.PoolName) bool { return w.kind.perNode && pool == poolName }

// subnetRanges are the ranges of the nodes' pool: four subnets, or two where it is narrow.
func (w *world) subnetRanges() []v1alpha1.Range {
	if w.kind.narrow {
		return []v1alpha1.Range{{CIDR: "10.0.0.8/29", Start: "10.0.0.8", End: "10.0.0.15"}}
	}
	return []v1alpha1.Range{{CIDR: "10.0.0.0/28", Start: "10.0.0.0", End: "10.0.0.15"}}
}

// takeSubnets leaves the nodes' pool some of its subnets, and the pins of these.
func (w *world) takeSubnets(s *v1alpha1.IPPoolSpec) {
	some := []string{"10.0.0.0/29", "10.0.0.8/29", "10.0.0.12/30"}
	if w.kind.narrow {
		some = []string{"10.0.0.8/30", "10.0.0.12/30"}
	}
	left, _ := pickOf(w, some)
	span := netipx.RangeOfPrefix(netip.MustParsePrefix(left))
	s.Ranges = []v1alpha1.Range{{CIDR: left, Start: span.From().String(), End: span.To().String()}}
	s.PerNode.Pinned = slices.DeleteFunc(s.PerNode.Pinned, func(p v1alpha1.PinnedSubnet) bool {
		return !span.Contains(netip.MustParsePrefix(p.CIDR).Addr())
	})
}

// pinSubnet pins a subnet of the nodes' pool to a node, or takes the pins away.
func (w *world) pinSubnet() {
	sub := netip.PrefixFrom(poolRange.Addr(), subnetBits)
	if a, ok := pickOf(w, w.addresses()); ok {
		sub = subnetOf(a)
	}
	n, away := w.nodes[w.rng.IntN(len(w.nodes))], w.one(3)
	w.editPool(poolName, func(s *v1alpha1.IPPoolSpec) {
		if s.PerNode.Pinned = slices.DeleteFunc(s.PerNode.Pinned, func(p v1alpha1.PinnedSubnet) bool {
			return away || p.Node == string(n.name) || p.CIDR == sub.String()
		}); away {
			w.logf("person: takes the pins of pool %s away", poolName)
			return
		}
		w.logf("person: pins subnet %v to node %s", sub, n.name)
		s.PerNode.Pinned = append(s.PerNode.Pinned, v1alpha1.PinnedSubnet{Node: string(n.name), CIDR: sub.String()})
	})
}

// subnetOf returns the subnet that an address of the nodes' pool lies in.
func subnetOf(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, subnetBits).Masked() }

// length returns the length that an address of a pod has.
func (w *world) length(a netip.Addr) int {
	if w.kind.perNode && poolRange.Contains(a) {
		return subnetBits
	}
	return 24
}

// may reports whether a node may have a subnet by a text of the pool.
func may(t poolspec.PoolText, node protocol.NodeName, sub netip.Prefix) bool {
	if t.PerNode == nil || !gives(t, sub) {
		return false
	}
	pin, others := t.PerNode.Pins(string(node))
	_, taken := others[sub]
	return !taken && (!pin.IsValid() || pin == sub)
}

// gives reports whether the ranges of a text have a subnet.
func gives(t poolspec.PoolText, sub netip.Prefix) bool {
	return slices.ContainsFunc(t.Ranges, func(r poolspec.RangeText) bool { return netip.MustParsePrefix(r.CIDR).Contains(sub.Addr()) })
}

// subnets returns the leases of the nodes' pool that d has, or is about to have, by name.
func (d *simDisk) subnets() map[string]protocol.Right {
	all := map[string]protocol.Right{}
	for name, r := range d.rights {
		if r.Kind == protocol.RightLease && r.Pool == poolName && (r.Phase == protocol.Noted || r.Phase == protocol.Held) {
			all[name] = r
		}
	}
	return all
}

// checkSubnets holds against each commit of an agent that it leases no subnet beside one that it
// has, and gives none back that it may keep (Subnet). It goes by what it was told of the pool last,
// or before, and gives back by what it was told a while ago, too: was is what the store had, and is
// what it has now.
func (n *simNode) checkSubnets(was, is *simDisk) {
	told := append(slices.Clone(n.heard.before), n.heard.kept)
	last := told[max(0, len(told)-2):]
	if len(last) == 1 || was.store != is.store || slices.ContainsFunc(last, func(p agent.Pool) bool { return p.Text.PerNode == nil }) {
		return
	}
	all := func(of []agent.Pool, holds func(agent.Pool) bool) bool {
		return !slices.ContainsFunc(of, func(p agent.Pool) bool { return !holds(p) })
	}
	had, has := was.subnets(), is.subnets()
	for name, r := range has {
		if _, ok := had[name]; ok {
			continue
		}
		for other, o := range had {
			if _, still := has[other]; still && all(last, func(p agent.Pool) bool { return gives(p.Text, o.Block) }) {
				n.w.fail(Subnet, "%s leases %v, and has %v, which pool %s has too", n.machine, r.Block, o.Block, poolName)
			}
		}
	}
	for name, r := range had {
		if r.Phase == protocol.Held && is.rights[name].Phase == protocol.Releasing && len(has) == 0 && all(told, func(p agent.Pool) bool { return p.Text.PerNode != nil && n.keeps(p, r) }) {
			n.w.fail(Subnet, "%s gives %v back, which is its subnet of pool %s", n.machine, r.Block, poolName)
		}
	}
}

// keeps reports whether the node keeps a lease of the nodes' pool, by what it was told of that.
func (n *simNode) keeps(known agent.Pool, r protocol.Right) bool {
	p, out := n.w.api.readPool(poolName)
	return out == protocol.Done && p.UID == r.PoolUID && known.UID == r.PoolUID && known.Open && !known.Deleting && may(known.Text, n.name, r.Block)
}

// checkSubnetsApart holds that what the pods of a node have is of no subnet of which another node's
// pods have addresses (Subnet).
func (w *world) checkSubnetsApart() {
	if !w.kind.perNode {
		return
	}
	by := map[netip.Prefix]*sandbox{}
	for _, n := range w.nodes {
		for _, s := range n.with(func(s *sandbox) bool { return s.uses() && !s.void && s.claim == "" }) {
			for _, a := range s.addrs {
				if o, ok := by[subnetOf(a)]; ok && o.node.name != n.name {
					w.fail(Subnet, "%v has %v, and %v has %v of the same subnet", s, a, o, o.addrs)
				}
				by[subnetOf(a)] = s
			}
		}
	}
}

// inSubnets leaves of addresses of the nodes' pool those that pods of a node may have now: of the
// subnet that it has, or else of those that nobody has leased and that it may have.
func (w *world) inSubnets(node protocol.NodeName, addrs []netip.Addr) []netip.Addr {
	p, out := w.api.pools.read(string(poolName))
	i := slices.IndexFunc(w.nodes, func(n *simNode) bool { return n.name == node && n.agent != nil })
	if out != protocol.Done || i < 0 {
		return nil
	}
	text := kube.PoolText(p.obj)
	own := map[netip.Prefix]bool{}
	for _, r := range w.nodes[i].disk.subnets() {
		own[r.Block] = gives(text, r.Block)
	}
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool {
		sub := subnetOf(a)
		if slices.Contains(slices.Collect(maps.Values(own)), true) {
			return !own[sub]
		}
		name := protocol.LeaseName(poolName, sub)
		_, leased := w.api.leases.read(name)
		_, known := w.nodes[i].disk.rights[name] // it has lost it, and pods have addresses of it still
		return leased != protocol.NotFound || known || !may(text, node, sub)
	})
}

// homes reports whether a lease is of the one subnet that the node keeps without pods.
func (n *simNode) homes(lease string) bool {
	p, out := n.w.api.pools.read(string(poolName))
	if !n.w.kind.perNode || out != protocol.Done {
		return false
	}
	text := kube.PoolText(p.obj)
	kept := n.names(func(r protocol.Right) bool {
		return r.Kind == protocol.RightLease && r.Pool == poolName && r.Phase == protocol.Held && may(text, n.name, r.Block)
	})
	return len(kept) > 0 && kept[0] == lease
}

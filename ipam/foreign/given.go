package foreign

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// reportedAsTenures reports whether the pod's node says that Tenure has given it the address of a
// claim, on a network that may be the pool's. Against the other IPAM's record that counts if the
// node holds the address. Of a pool that was never open no node can have given what it has seen of
// another IPAM.
func (w *weighing) reportedAsTenures(c claim) bool {
	pod, a := c.pod, c.addr
	l, leased := w.leaseOf(w.Pool, a)
	held := !w.Fresh && leased && l.Holder.Node == pod.Node && !slices.Contains(l.Ceded, a)
	if c.by == byRecord && !held || c.by == byNode && w.Fresh {
		return false
	}
	var all []given
	for _, at := range []sighted{{pod: pod.UID}, {pod: pod.uid()}, {name: pod.String()}} {
		at.node, at.addr = pod.Node, a
		all = append(all, w.given[at]...)
	}
	slices.SortFunc(all, func(x, y given) int {
		return cmp.Or(strings.Compare(x.network, y.network), strings.Compare(string(x.pool), string(y.pool)))
	})
	return slices.ContainsFunc(slices.Compact(all), func(g given) bool { return w.isGiven(g, c, held) })
}

// isGiven reports whether what Tenure has given the pod of a claim is what the claim is of: two
// networks may have the same addresses. Held says that the pod's node holds the address. What
// definitions were before, and devices of ResourceClaims, have networks that no definition may
// have.
func (w *weighing) isGiven(g given, c claim, held bool) bool {
	switch of, own, selected := w.ofNetwork(g.network, c.pod); {
	case g.pool == w.Name:
		return true
	case of && !own: // not known to be of another segment
		return w.isOn(c, g.network)
	case g.pool != "":
		return false
	case own && selected:
		return true
	case own || held:
		return !w.isOthers(g.network, c.pod, c.addr)
	}
	return false
}

// selectedOf returns the definitions of a network that a pod selects. It has what it has on that
// network by one of these: whoever writes another of the name says nothing of the pod.
func (e *Evidence) selectedOf(network string, pod *Pod) (all []*Definition) {
	for _, name := range pod.Selected {
		if d := e.known[name]; d != nil && d.Network == network {
			all = append(all, d)
		}
	}
	return all
}

// ofNetwork reports whether a network, as a pod has it, is of the segment, and whether a definition
// of it is of no other pool. What is given on a network of other pools alone says nothing of what
// the pod has of this one: it may have one number on two networks. Selected says that the pod
// selects a definition of the network: what others say of the name does not count then.
func (w *weighing) ofNetwork(network string, pod *Pod) (of, own, selected bool) {
	all := w.selectedOf(network, pod)
	if len(all) == 0 {
		return w.networks[network], w.own[network], false
	}
	for _, d := range all {
		mine := w.mine[d.String()]
		of, own = of || mine, own || mine && w.ownOf(*d)
	}
	return of, own, true
}

// isBesides reports whether a network is of definitions of other pools alone, and not that of a
// claim.
func (w *weighing) isBesides(network string, c claim) bool {
	of, own, _ := w.ofNetwork(network, c.pod)
	return of && !own && !w.isOn(c, network)
}

// isOn reports whether a claim is of a network. A record does not say of which it is. It is of this
// one if the pod selects no other of the pool's.
func (w *weighing) isOn(c claim, network string) bool {
	d := w.known[c.of]
	switch c.by {
	case byNode:
		return c.of == network
	case byStatus:
		return d != nil && d.Network == network
	case byRecord:
	}
	return !slices.ContainsFunc(c.pod.Selected, func(name string) bool {
		d := w.known[name]
		return d == nil || w.awaits(name) && d.Network != network
	})
}

// ownOf reports whether a definition of the segment is of no other pool.
func (w *weighing) ownOf(d Definition) bool { return d.IPAM != Type || w.owns(d) }

// isOthers reports whether an address that a pod has on a network is certainly of another segment.
// If the pod selects no definition of the network, it may have the address by any.
func (w *weighing) isOthers(network string, pod *Pod, a netip.Addr) bool {
	all := w.selectedOf(network, pod)
	if len(all) == 0 {
		all = w.byNetwork[network]
	}
	return slices.ContainsFunc(all, func(d *Definition) bool { return !w.mine[d.String()] && w.ofOthers(d, a) })
}

// moved returns the pods that have some addresses by definitions of p's own, as their nodes say,
// where p has not given these. Another pool has, which the definition was of before. An agent that
// does not tell the pool may have given it by the block that its node holds.
func (w *weighing) moved(of *netipx.IPSet) map[netip.Addr]mover {
	pods := map[netip.Addr]mover{}
	for node, r := range w.Reports {
		for _, s := range r.Has {
			if s.IPAM != Type || s.Freed || !of.Contains(s.Addr) {
				continue
			}
			l, leased := w.leaseOf(w.Pool, s.Addr)
			g, granted := l.GrantOf(s.Addr)
			byLease := granted && g.To.Kind != protocol.GranteePod || l.Holder.Node == node && !slices.Contains(l.Ceded, s.Addr)
			if ours := s.Pool == w.Name || s.Pool == "" && leased && !w.Fresh && byLease; ours {
				continue
			}
			if by := w.byOwn(node, s); by != "" {
				m := mover{fmt.Sprintf("%s on node %s, by definition %s", s.Pod, node, by), s.Pool}
				if pods[s.Addr].pod < m.pod { // the same in each look
					pods[s.Addr] = m
				}
			}
		}
	}
	return pods
}

// mover is a pod, its node, and its definition, which has moved, and the pool that the pod has an
// address of; "" if its node does not tell.
type mover struct {
	pod  string
	pool protocol.PoolName
}

// firstOf returns the pod that has the lowest address of a pool, or may have, "" if none has
// one. If the block is valid, the address is of that.
func firstOf(pods map[netip.Addr]mover, pool protocol.PoolName, block netip.Prefix) (pod string) {
	var lowest netip.Addr
	for a, m := range pods {
		if (m.pool == pool || m.pool == "" && block.IsValid()) && (!block.IsValid() || block.Contains(a)) && (!lowest.IsValid() || a.Less(lowest)) {
			lowest, pod = a, m.pod
		}
	}
	return pod
}

// byOwn returns the definition, one that is p's own, by which Tenure has given what a node says; ""
// if it has not. The pod's status tells by which, if that has the network, or the pod selects no
// other one that has it: its configuration may have got another name. Else the network's name
// tells: of several definitions that have it those of the pod's namespace count, and of these the
// ones that it selects; and of those that are not p's own the ones by which it may have been given.
// If none of these has it any more, the pod tells by what it selects; of another namespace only
// what no other pool's definition can be meant by. Of a pod that is gone, or selects none of them,
// as it does not where it has the network by default, one of p's own that has the network is
// enough; but not where another may have given it, and the pod's namespace may not use p.
func (w *weighing) byOwn(node protocol.NodeName, s protocol.Sighting) (by string) {
	pod, _ := w.podOf(node, s)
	there := w.pods[pod.uid()] == pod
	isOwn := func(d *Definition) bool { return w.isOwn(d, s.Pod.Namespace) }
	here := func(d *Definition) bool { return d.Namespace == s.Pod.Namespace }
	selected := func(d *Definition) bool { return slices.Contains(pod.Selected, d.String()) }
	has := func(name string) bool { d := w.known[name]; return d != nil && d.Network == s.Network }
	selectsOne, shownByOthers := slices.ContainsFunc(pod.Selected, has), false
	may := w.MayUse == nil || w.MayUse(s.Pod.Namespace)
	shows := func(own bool) string {
		i := slices.IndexFunc(pod.Shows, func(x npwg.Shown) bool {
			return has(x.Definition) && slices.Contains(x.Addrs, s.Addr) && isOwn(w.known[x.Definition]) == own
		})
		if i < 0 {
			return ""
		}
		return pod.Shows[i].Definition
	}
	if own := shows(true); own != "" || shows(false) != "" {
		return own
	}
	for _, x := range pod.Shows {
		d := w.known[x.Definition]
		switch {
		case d == nil, !slices.Contains(x.Addrs, s.Addr), d.Network != s.Network && selectsOne && !(here(d) && isOwn(d)):
		case isOwn(d):
			return x.Definition
		default:
			shownByOthers = true
		}
	}
	if shownByOthers {
		return ""
	}
	of := func(counts func(*Definition) bool) (own string, others bool) {
		for _, d := range w.byNetwork[s.Network] {
			switch {
			case !counts(d):
			case isOwn(d):
				own = cmp.Or(own, d.String())
			default:
				others = others || w.mayGive(d, s.Pool)
			}
		}
		return own, others
	}
	for _, counts := range []func(*Definition) bool{func(d *Definition) bool { return here(d) && selected(d) }, here} {
		switch own, others := of(counts); {
		case own != "" && (!others || !there):
			return own
		case own != "", others && (there || !may):
			return ""
		}
	}
	own, others := of(func(*Definition) bool { return true })
	if own != "" && (!others || may && (!there || !selectsOne)) {
		return own
	}
	if w.among.byName[protocol.PoolName(s.Network)] != nil { // of a ResourceClaim, by the pool's profile
		return ""
	}
	i := slices.IndexFunc(pod.Selected, func(name string) bool {
		d := w.known[name]
		return isOwn(d) && (here(d) || !others) || w.madeAnew(name, s.Pod.Namespace)
	})
	if i < 0 {
		return ""
	}
	return pod.Selected[i]
}

// mayGive reports whether a definition may be that by which Tenure has given an address of a pool,
// which is "" if it is not known. Its namespace may use that pool.
func (w *weighing) mayGive(d *Definition, pool protocol.PoolName) bool {
	o := w.among.byName[pool]
	if o == nil || o.Whole == nil {
		return true
	}
	return d.IPAM == Type && (o.MayUse == nil || o.MayUse(d.Namespace)) &&
		(d.ByNamespace || slices.Contains(slices.Collect(w.poolsOf(*d)), o))
}

// isOwn reports whether a definition, nil if it is gone, is p's own: its namespace, or that of a
// pod that has an address by it, may use p, and p's owner has not said that it shares nothing. One
// by which another IPAM may give addresses of p is not: p waits for that one anyway.
func (w *weighing) isOwn(d *Definition, namespace string) bool {
	return d != nil && w.mine[d.String()] && w.owns(*d) && !slices.Contains(w.ShareWith, d.String()) &&
		(w.MayUse == nil || w.MayUse(d.Namespace) || namespace != "" && w.MayUse(namespace)) && !w.isOther(*d)
}

// madeAnew reports whether a definition is gone, and may have been made again under another name,
// as one of p's own. It is remembered, or of the namespace of a pod that its node has seen.
func (w *weighing) madeAnew(name, seen string) bool {
	namespace, _, _ := strings.Cut(name, "/")
	return w.known[name] == nil &&
		(namespace == seen || slices.ContainsFunc(w.Former, func(was Definition) bool { return was.String() == name })) &&
		slices.ContainsFunc(w.Definitions, func(d Definition) bool { return d.Namespace == namespace && w.isOwn(&d, seen) })
}

// leasesOf returns the leases of a pool as it is now, by address.
func (e *Evidence) leasesOf(p *Pool) []protocol.Lease {
	leases, known := e.sorted[p.Name]
	if known {
		return leases
	}
	for _, l := range e.Leases[p.Name] {
		if l.PoolUID == p.Object.UID && l.Block.Bits() == p.Object.BlockBits(l.Block.Addr()) {
			leases = append(leases, l)
		}
	}
	slices.SortFunc(leases, func(x, y protocol.Lease) int { return x.Block.Addr().Compare(y.Block.Addr()) })
	e.sorted[p.Name] = leases
	return leases
}

// leaseOf returns the lease of a pool for the block that an address lies in.
func (e *Evidence) leaseOf(p *Pool, a netip.Addr) (l protocol.Lease, ok bool) {
	leases := e.leasesOf(p)
	i, found := slices.BinarySearchFunc(leases, a, func(l protocol.Lease, a netip.Addr) int { return l.Block.Addr().Compare(a) })
	if !found {
		i--
	}
	if i < 0 || !leases[i].Block.Contains(a) {
		return l, false
	}
	return leases[i], true
}

// ofTenure reports whether a lease says that Tenure has given what a claim is of. If it has given
// the address to somebody else, owner says to whom.
func (w *weighing) ofTenure(c claim) (ours bool, owner string) {
	lease, leased := w.leaseOf(w.Pool, c.addr)
	if !leased {
		return false, ""
	}
	if g, ok := lease.GrantOf(c.addr); ok {
		return w.grantedByTenure(g, c.pod)
	}
	if lease.Holder.Node == "" || slices.Contains(lease.Ceded, c.addr) || w.Fresh {
		return false, ""
	}
	return published(lease, c.pod, c.addr)
}

// grantedByTenure answers as ofTenure does, for an address that is granted by g.
func (e *Evidence) grantedByTenure(g protocol.Grant, pod *Pod) (ours bool, owner string) {
	if g.To.Kind == protocol.GranteePod {
		return false, "" // kept, and not given
	}
	for _, u := range e.serves[g.To.UID] {
		if u.node == pod.Node && (u.pod == pod.uid() || u.pod == pod.UID) {
			return true, ""
		}
	}
	return false, g.To.String()
}

// published reports whether the node that holds the lease has published that the pod has an
// address of it. If it has published another owner, owner says which. What a node has not
// published, it is asked for.
func published(lease protocol.Lease, pod *Pod, a netip.Addr) (ours bool, owner string) {
	for _, text := range lease.Published.Allocations {
		rest, ok := strings.CutPrefix(text, a.String()+" ")
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(rest, " ")
		if name == pod.String() && lease.Holder.Node == pod.Node {
			return true, ""
		}
		return false, fmt.Sprintf("pod %s on %v", name, lease.Holder)
	}
	return false, ""
}

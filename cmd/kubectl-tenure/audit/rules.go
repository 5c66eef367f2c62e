package audit

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// conditions finds pools whose conditions say that something is wrong.
func (l *look) conditions() {
	for i := range l.Pools {
		p := &l.Pools[i]
		add := func(r Rule, what, remedy string) {
			if what != "" {
				l.add(r, "ippool "+p.Name, place{pool: protocol.PoolName(p.Name)}, what, remedy)
			}
		}
		add(PoolsOverlap, p.Overlaps, "do what it says; or change the ranges of one, or exclude in one what is the other's")
		add(StrangerFound, p.Strangers, "find the device by its hardware address, and give it another address, or exclude its own from the pool; then delete the IPReservation")
		add(PinsTaken, p.PinsTaken, "do what it says: until then the node to which the subnet is pinned has none of it, and pods of the pool wait there")
	}
}

// definitions finds network definitions that cannot be used.
func (l *look) definitions() {
	for _, d := range l.Faulty {
		l.add(DefinitionFaulty, d.Object, place{}, d.Why, "correct it: until then no new pod is attached by it. What pods and claims have by an earlier text they keep")
	}
}

// names finds Services that ask for names of addresses, and get none.
func (l *look) names() {
	for _, s := range l.Nameless {
		l.add(NamesAbsent, s.Object, place{}, s.Why, "kubectl describe the Service: an Event NamesRefused says what to do. If there is none, no controller serves it: see docs/howto/names.md")
	}
}

// leasesApart finds leases of one pool that share addresses.
func (l *look) leasesApart() {
	for pool, leases := range l.byPool {
		var a *protocol.Lease // of those before, the one that reaches furthest
		for _, b := range leases {
			if a != nil && a.Block.Overlaps(b.Block) {
				l.add(TwoLeases, "iplease "+b.Name, place{pool: pool}, fmt.Sprintf("its block %s shares addresses with lease %s", b.Block, a.Name),
					"close the pool to new pods, and see which of the two holders uses which of the addresses, before anything is deleted")
				if a.Block.Bits() <= b.Block.Bits() { // of two blocks that overlap the larger has all of the other
					continue
				}
			}
			a = b
		}
	}
}

// leases finds leases that are of no pool, and addresses that no range has any more.
func (l *look) leases() {
	for i := range l.Leases {
		lease := &l.Leases[i]
		at := place{pool: lease.Pool}
		p := l.pools[lease.Pool]
		switch {
		case p == nil:
			l.add(PoolGone, "iplease "+lease.Name, at, "its pool does not exist, which waits for its leases when it is deleted: its finalizer was taken off",
				"make the pool again with the same ranges; delete it once its pods and claims are gone")
			continue
		case p.UID != lease.PoolUID:
			l.add(PoolGone, "iplease "+lease.Name, at, "it is of an earlier pool of that name",
				"its holder gives it back when its last pod is gone; the pool's condition Ready says who holds such leases")
		}
		if p.Shape == nil {
			continue
		}
		for _, g := range lease.Grants {
			if p.Shape.Assignable(g.Addr) != nil {
				l.add(AddressOutside, "iplease "+lease.Name, place{lease.Pool, g.Addr}, fmt.Sprintf("it belongs to %s, and the pool's ranges do not give it out any more", g.To),
					"nothing has to be done: it is not given to anybody else, and goes with its owner")
			}
		}
	}
}

// grants finds grants whose grantee is gone, and notes whose the others are.
func (l *look) grants() {
	for i := range l.Leases {
		lease := &l.Leases[i]
		for _, g := range lease.Grants {
			at := place{lease.Pool, g.Addr}
			sub, claim := l.sub[g.To.UID], l.claim[g.To.UID]
			switch {
			case g.To.Kind == protocol.GranteePod:
				l.checkForeign(lease, g)
			case g.To.Kind == protocol.GranteeReservation && l.Reservations[g.To.UID]:
				l.ownedBy(at, "reservation "+string(g.To.UID), g.To.String())
			case g.To.Kind == protocol.GranteeSubLease && sub != nil && sub.Request != nil:
				l.ownedBy(at, podKey(sub.Request.Pod.UID, sub.Request.Interface), fmt.Sprintf("pod %s, by sub-lease %s", sub.Request.Pod, sub.Name))
			case g.To.Kind == protocol.GranteeClaim && (claim != nil || len(l.uses[g.To.UID]) > 0):
				l.ownedBy(at, claimKey(g.To.UID), g.To.String())
			default:
				l.add(GrantLeaked, "iplease "+lease.Name, at, fmt.Sprintf("it is granted to %s, which is gone", g.To),
					"see whether tenure-controller runs and what it logs: it takes back what nobody has")
				l.about(string(g.To.UID))
			}
		}
	}
}

// checkForeign looks at an address that is kept for a pod of another IPAM.
func (l *look) checkForeign(lease *protocol.Lease, g protocol.Grant) {
	at := place{lease.Pool, g.Addr}
	if g.To.UID.Several() {
		return // nobody's; the pods that show it are its owners
	}
	l.ownedBy(at, foreignKey(g.To.UID), g.To.String())
	if l.pod[g.To.UID] == nil {
		l.add(ForeignLeaked, "iplease "+lease.Name, at, fmt.Sprintf("it is kept for %s, and the pod is gone", g.To),
			fmt.Sprintf("it comes free when the agent of node %s sees nothing of the pod any more, or the node counts as dead, and the other IPAM has no record of it: see what tenure-controller logs, and what tenured logs there", g.To.Node))
		l.about(string(g.To.UID))
	}
}

func foreignKey(uid protocol.UID) string { return "pod of another IPAM " + string(uid) }

func claimKey(uid protocol.UID) string { return "claim " + string(uid) }

func podKey(uid protocol.UID, iface string) string { return "pod " + string(uid) + " " + iface }

// claims finds addresses in claims' status that no lease grants to the claim, and notes
// whose they are said to be; and grants that the status does not name.
func (l *look) claims() {
	for i := range l.Claims {
		c := &l.Claims[i]
		object := fmt.Sprintf("ipamclaim %s/%s", c.Namespace, c.Name)
		if len(c.Pools) == 0 && len(l.held[c.UID]) == 0 {
			continue // another implementation's
		}
		for _, ip := range c.IPs {
			if at, ok := l.placeGranted(c.UID, ip.Addr()); ok {
				l.ownedBy(at, claimKey(c.UID), "claim "+c.Namespace+"/"+c.Name)
				continue
			}
			at, ok := l.placeOf(c.Pools, ip.Addr())
			if ok {
				l.ownedBy(at, claimKey(c.UID), "claim "+c.Namespace+"/"+c.Name)
			} else {
				at.addr = ip.Addr()
			}
			l.add(ClaimNotBacked, object, at, "its status names the address, and no lease grants it to this claim: agents do not serve it",
				"somebody but Tenure has written the status, or a lease was deleted: delete the claim and let its owner make it again")
		}
		for at := range l.held[c.UID] {
			if len(c.IPs) > 0 && !slices.ContainsFunc(c.IPs, func(ip netip.Prefix) bool { return ip.Addr() == at.addr }) {
				l.add(GrantLeaked, object, at, "it is granted to this claim, whose status names other addresses",
					"see whether tenure-controller runs and what it logs: it takes back what the status does not name")
				l.about(string(c.UID))
			}
		}
	}
}

// placeGranted returns in which pool an address is granted to a UID.
func (l *look) placeGranted(uid protocol.UID, a netip.Addr) (place, bool) {
	for at := range l.held[uid] {
		if at.addr == a {
			return at, true
		}
	}
	return place{}, false
}

// subLeases finds sub-leases that stand on no lease, and those of pods that are gone.
func (l *look) subLeases() {
	for i := range l.SubLeases {
		s := &l.SubLeases[i]
		object := "ipsublease " + s.Name
		if s.Use != nil && len(l.held[s.Use.Claim.UID]) == 0 {
			l.add(UseNotBacked, object, place{}, fmt.Sprintf("pod %s on node %s uses claim %s, to which no lease grants anything", s.Use.Pod, s.Node, s.Use.Claim),
				"a lease was deleted by hand: delete the pod, then the claim, and let their owners make them again")
		}
		for _, g := range s.Granted {
			at, ok := l.placeGranted(s.UID, g.Addr)
			if !ok {
				at.addr = g.Addr
				l.add(UseNotBacked, object, at, fmt.Sprintf("its status names the address, and lease %s does not grant it", g.Lease),
					"a lease was deleted by hand: delete the pod, so that its node gives the sub-lease back")
			}
		}
		pod := l.podOf(s)
		if l.pod[pod.UID] == nil && l.Nodes[s.Node].UID != "" {
			l.add(SubLeaseLeaked, object, place{}, fmt.Sprintf("node %s keeps it for pod %s, which is gone", s.Node, pod),
				fmt.Sprintf("see what tenured on node %s logs: it gives back what no pod and no network namespace has", s.Node))
		}
	}
}

// podOf returns the pod that a sub-lease is for.
func (l *look) podOf(s *protocol.SubLease) protocol.PodRef {
	if s.Use != nil {
		return s.Use.Pod
	}
	if s.Request != nil {
		return s.Request.Pod
	}
	return protocol.PodRef{}
}

// pods finds pods without their networks; pods' addresses that no lease backs, and notes whose the
// others are; and addresses that nodes say to have given to pods which do not exist.
func (l *look) pods() {
	for i := range l.Pods {
		p := &l.Pods[i]
		if p.Leaving {
			continue
		}
		if _, served := l.Registrations[p.Node]; served && len(p.Lacks) > 0 && l.Now.Sub(p.Since) >= SaysWithin {
			l.add(NotAttached, "pod "+p.String(), place{}, fmt.Sprintf("it runs on node %s without the networks that it selects (%s): its sandbox was made without tenure-attach or another meta-plugin", p.Node, strings.Join(p.Lacks, ", ")),
				fmt.Sprintf("see its Events, and those of node %s: another program may keep the runtime from the configuration of tenure-attach. When that is mended, delete the pod", p.Node))
		}
		for _, a := range p.Attachments {
			for _, addr := range a.Addrs {
				if at, ok := l.placeOf(a.Pools, addr); ok {
					l.podHas(p, a, at)
				}
			}
		}
	}
	for i := range l.Leases {
		l.allocations(&l.Leases[i])
	}
}

// allocations finds addresses that a node has given to pods and devices which are gone. What it has
// published of an earlier store's lease it does not publish again: that is [StoreFrozen]'s.
func (l *look) allocations(lease *protocol.Lease) {
	node := lease.Holder.Node
	if l.Nodes[node].UID == "" || l.isFormer(node, lease.Store) {
		return
	}
	for _, text := range lease.Published.Allocations {
		at, pod, device := allocationOf(text)
		addr, err := netip.ParseAddr(at)
		if err != nil || l.named[pod] {
			continue
		}
		what := fmt.Sprintf("node %s has given it to pod %s, which is gone", node, pod)
		remedy := fmt.Sprintf("see what tenured on node %s logs: it frees what no pod and no network namespace has", node)
		if device != (Device{}) { // a ResourceClaim may outlive its pod, and keeps the address then
			if !l.LetGo[device] {
				continue
			}
			what = fmt.Sprintf("node %s has given it to device %s of ResourceClaim %s/%s, to which it is not allocated any more, and pod %s is gone", node, device.Name, device.Namespace, device.ResourceClaim, pod)
			remedy = fmt.Sprintf("see what tenured on node %s logs: with --dra-socket alone it frees what no ResourceClaim has, if no sandbox of the pod is there", node)
		}
		l.add(AllocationLeaked, "iplease "+lease.Name, place{lease.Pool, addr}, what, remedy)
		l.about(strings.Join(strings.Fields(text)[1:], " "))
	}
}

// podHas looks at one address that a pod's status shows of an attachment.
func (l *look) podHas(p *Pod, a Attachment, at place) {
	iface, leases, pod, doubtful := a.Interface, l.leasesAt(at), fmt.Sprintf("pod %s", p), l.doubtful(p.Node)
	var hostLocal protocol.NodeName
	if a.HostLocal && !slices.ContainsFunc(leases, func(lease *protocol.Lease) bool { return hasPublished(lease, at.addr, p) }) {
		hostLocal = p.Node
	}
	for _, lease := range leases {
		if g, ok := lease.GrantOf(at.addr); ok {
			key := l.granteeKey(p, iface, g.To.UID)
			switch {
			case g.To.Kind != protocol.GranteePod:
				hostLocal = "" // of what Tenure has granted there is no second owner
			case slices.Contains([]protocol.UID{p.UID, p.MirrorOf}, g.To.UID):
				key = foreignKey(g.To.UID)
			}
			l.addOwner(at, owner{key, pod, doubtful, hostLocal})
			return
		}
	}
	l.addOwner(at, owner{podKey(p.UID, iface), pod, doubtful, hostLocal})
	add, remedy := l.add, "delete the pod: its address may be given to another. If another IPAM gave it, before the network was Tenure's or beside it, the controller keeps it for the pod as soon as it has looked: the pool's conditions ForeignIPAM and Withheld say what it waits for"
	switch pool := l.pools[at.pool]; {
	case doubtful:
		add, remedy = l.note, ofNode
	case pool != nil && pool.Shape != nil && pool.Shape.Assignable(at.addr) != nil:
		add, remedy = l.note, "nothing has to be done: the pool gives this address to nobody"
	}
	switch {
	case len(leases) == 0:
		add(PodNotBacked, pod, at, fmt.Sprintf("interface %s has it, and its block is not leased", iface), remedy)
	case !slices.ContainsFunc(leases, func(lease *protocol.Lease) bool { return lease.Holder.Node == p.Node }):
		add(PodNotBacked, pod, at, fmt.Sprintf("interface %s has it, on node %s, and lease %s of its block is held by %s", iface, p.Node, leases[0].Name, leases[0].Holder), remedy)
	}
}

// hasPublished reports whether the node that holds a lease says that it has given a pod an address.
func hasPublished(lease *protocol.Lease, a netip.Addr, p *Pod) bool {
	return slices.ContainsFunc(lease.Published.Allocations, func(text string) bool {
		return strings.HasPrefix(text, a.String()+" "+p.String()+" ")
	})
}

// granteeKey returns the key of the owner of what is granted to a UID. If that serves the pod's
// interface, the owner is the claim that the pod uses, or the request that was made for it. Else
// the key is the pod's own, and so another than that of the grant.
func (l *look) granteeKey(p *Pod, iface string, to protocol.UID) string {
	uids := []protocol.UID{p.UID, p.MirrorOf}
	if slices.ContainsFunc(l.uses[to], func(u *protocol.SubLease) bool { return slices.Contains(uids, u.Use.Pod.UID) }) {
		return claimKey(to)
	}
	if sub := l.sub[to]; sub != nil && sub.Request != nil && slices.Contains(uids, sub.Request.Pod.UID) {
		return podKey(sub.Request.Pod.UID, sub.Request.Interface)
	}
	return podKey(p.UID, iface)
}

package moving

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/state"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// registrant is a pod that has an address.
type registrant struct {
	addr           netip.Addr
	namespace, pod string
	ifName         string // "" if nobody tells
}

func (o registrant) ref() string { return o.namespace + "/" + o.pod }

// occupancy is what the leases of pools say of their addresses.
type occupancy struct {
	pods []registrant // by address
	// without says which addresses claims and reservations have that no pod uses.
	without []string
	// devices says which addresses devices of ResourceClaims have.
	devices []string
	// unsettled says which addresses may still be given, or are on their way back.
	unsettled []string
}

// registrants works out who has the addresses of pools that are stopped.
type registrants struct {
	occupancy
	subLeases map[string]*v1alpha1.IPSubLease // by name
	running   map[string]*foreign.Pod         // by namespace/name
}

// lease adds what a lease says. Every address of its block that is handed out unasked belongs to
// somebody, is the cluster's again, or is unsettled.
func (o *registrants) lease(l *v1alpha1.IPLease, shape *allocator.Shape) {
	known := map[netip.Addr]bool{}
	for _, g := range l.Spec.Grants {
		addr, err := netip.ParseAddr(g.Address)
		if err != nil {
			o.unsettled = append(o.unsettled, fmt.Sprintf("lease %s: granted address %q cannot be read", l.Name, g.Address))
			continue
		}
		known[addr] = true
		o.grant(addr, g)
	}
	if l.Spec.Holder.Node == "" {
		return // what is not granted is the cluster's, and it gives none of it
	}
	for _, text := range l.Spec.Ceded {
		if addr, err := netip.ParseAddr(text); err == nil {
			known[addr] = true
		}
	}
	for _, text := range l.Status.Allocations {
		if addr, u, ok := state.ParseAllocation(text); ok && !known[addr] {
			known[addr] = true
			if u.ResourceClaim != "" {
				o.devices = append(o.devices, deviceText(addr, u))
				continue
			}
			o.pods = append(o.pods, registrant{addr, u.Namespace, u.Pod, u.Interface})
		}
	}
	open := 0
	if block, err := netip.ParsePrefix(l.Spec.Block); err == nil {
		for a := block.Masked().Addr(); block.Contains(a); a = a.Next() {
			if !known[a] && shape.Ordinary(a) {
				open++
			}
		}
	}
	if open > 0 {
		o.unsettled = append(o.unsettled, fmt.Sprintf("node %s has yet to give back %s of lease %s", l.Spec.Holder.Node, screen.Number(open, "address", "addresses"), l.Name))
	}
}

// deviceText says who has an address by a ResourceClaim.
func deviceText(addr netip.Addr, u state.Use) string {
	return fmt.Sprintf("%v of ResourceClaim %s/%s, pod %s", addr, u.Namespace, u.ResourceClaim, u.Pod)
}

// grant adds whom an address is granted to.
func (o *registrants) grant(addr netip.Addr, g v1alpha1.Grant) {
	var users []registrant
	use := func(name string) {
		sub := o.subLeases[name]
		if sub == nil {
			return
		}
		switch {
		case sub.Spec.Use != nil:
			users = append(users, registrant{addr, sub.Spec.Use.Pod.Namespace, sub.Spec.Use.Pod.Name, sub.Spec.Use.Interface})
		case sub.Spec.Request != nil:
			users = append(users, registrant{addr, sub.Spec.Request.Pod.Namespace, sub.Spec.Request.Pod.Name, sub.Spec.Request.Interface})
		}
	}
	switch g.To.Kind {
	case v1alpha1.GranteeClaim:
		use(protocol.UseName(protocol.UID(g.To.UID), 0))
		use(protocol.UseName(protocol.UID(g.To.UID), 1))
		if len(users) == 0 {
			o.without = append(o.without, fmt.Sprintf("%v of claim %s/%s", addr, g.To.Namespace, g.To.Name))
			return
		}
	case v1alpha1.GranteeReservation:
		o.without = append(o.without, fmt.Sprintf("%v of reservation %s", addr, g.To.Name))
		return
	case v1alpha1.GranteePod:
		if protocol.UID(g.To.UID).Several() {
			o.unsettled = append(o.unsettled, fmt.Sprintf("%v is kept from all, since several pods are said to have it by another IPAM: see the pool's condition TwoOwners", addr))
			return
		}
		users = append(users, registrant{addr, g.To.Namespace, g.To.Name, o.interfaceOf(g.To.Namespace+"/"+g.To.Name, addr)})
	case v1alpha1.GranteeSubLease:
		use(g.To.Name)
	}
	if len(users) == 0 || g.Freeing {
		o.unsettled = append(o.unsettled, fmt.Sprintf("%v, which was granted to %s, is being freed", addr, cmp.Or(g.To.Name, g.To.UID)))
		return
	}
	o.pods = append(o.pods, users[0]) // of two a virtual machine is moving between, either keeps the address
}

// interfaceOf returns on which interface a pod's status shows an address.
func (o *registrants) interfaceOf(pod string, addr netip.Addr) string {
	if p := o.running[pod]; p != nil {
		for _, s := range p.Shows {
			if slices.Contains(s.Addrs, addr) {
				return s.Interface
			}
		}
	}
	return ""
}

// sorted returns what was found, in an order that does not depend on that of the leases.
func (o *registrants) sorted() occupancy {
	slices.SortFunc(o.pods, func(a, b registrant) int {
		return cmp.Or(a.addr.Compare(b.addr), strings.Compare(a.ref(), b.ref()))
	})
	slices.Sort(o.without)
	slices.Sort(o.devices)
	slices.Sort(o.unsettled)
	return o.occupancy
}

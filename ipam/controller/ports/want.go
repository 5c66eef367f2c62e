package ports

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/neutron"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// mostChoices is how many ways an interface may get its addresses are tried at most.
const mostChoices = 16

// poolFacts is what is known of a pool with a source.
type poolFacts struct {
	name   protocol.PoolName
	shape  *allocator.Shape // nil: its ranges are not known yet
	status *v1alpha1.NeutronStatus
}

// A slot is one address that an interface is to have: of one of its subnets.
type slot struct {
	pool    poolFacts
	subnets []v1alpha1.NeutronSubnet // of one family, the preferred first
	addr    netip.Addr               // zero: any
}

// choices returns the ports that would do for a, the best first: they differ in the subnets of
// which addresses are asked for.
func choices(a Ask, pools []poolFacts) ([]neutron.Want, Problem) {
	slots, network, bad := slotsOf(a, pools)
	if !bad.None() {
		return nil, bad
	}
	if bad := name(a, slots); !bad.None() {
		return nil, bad
	}
	if named := slices.DeleteFunc(slices.Clone(slots), func(s slot) bool { return !s.addr.IsValid() }); a.Granted && len(named) > 0 {
		slots = named // a pool may have further subnets by now
	}
	base := neutron.Want{
		Claim: string(a.UID), Network: network, Name: clip(a.Claim.Namespace+"/"+a.Claim.Name, 255), Port: a.Port.ID,
		Description: clip(fmt.Sprintf("IPAMClaim %s of namespace %s: Tenure deletes this port with the claim", a.Claim.Name, a.Claim.Namespace), 255),
	}
	base.MAC, _ = net.ParseMAC(a.Port.MAC)
	all := []neutron.Want{base}
	for _, s := range slots {
		var longer []neutron.Want
		for _, w := range all {
			for _, subnet := range s.subnets {
				next := w
				next.Addresses = append(slices.Clip(w.Addresses), neutron.FixedIP{Subnet: subnet.ID, Addr: s.addr})
				longer = append(longer, next)
			}
		}
		all = longer
	}
	return all[:min(len(all), mostChoices)], Problem{}
}

// slotsOf returns the addresses that the interface is to have, and the network that they are of.
func slotsOf(a Ask, pools []poolFacts) (slots []slot, network string, bad Problem) {
	for i, src := range a.From {
		p := pools[i]
		if p.status == nil || p.shape == nil {
			return nil, "", Problem{Reason: NotReady, Message: fmt.Sprintf("pool %s: its subnets have not been read yet: see its condition SourceReady", p.name)}
		}
		if network != "" && network != p.status.NetworkID {
			return nil, "", Problem{Reason: TwoNetworks, Message: fmt.Sprintf(
				"pools %s and %s are of Neutron's networks %s and %s, and a port is on one network: use one pool, or two interfaces", pools[0].name, p.name, network, p.status.NetworkID)}
		}
		network = p.status.NetworkID
		for _, f := range allocator.Families() {
			if src.Families != nil && !slices.Contains(src.Families, f) {
				continue
			}
			s := slot{pool: p}
			for _, subnet := range p.status.Subnets {
				if cidr, err := netip.ParsePrefix(subnet.CIDR); err == nil && allocator.FamilyOf(cidr.Addr()) == f {
					s.subnets = append(s.subnets, subnet)
				}
			}
			if len(s.subnets) > 0 {
				slots = append(slots, s)
			}
		}
	}
	if len(slots) == 0 {
		return nil, "", Problem{Reason: NotReady, Message: "the network's pools have no subnet of the families that are wanted"}
	}
	return slots, network, Problem{}
}

// name gives each address that a wants by name to a slot.
func name(a Ask, slots []slot) Problem {
	for _, addr := range a.Addresses {
		why := fmt.Sprintf("%v is in no subnet of %s that is not asked for another address already", addr, poolNames(a))
		fits := func(s slot) bool {
			i := slices.IndexFunc(s.subnets, func(n v1alpha1.NeutronSubnet) bool {
				cidr, err := netip.ParsePrefix(n.CIDR)
				return err == nil && cidr.Contains(addr)
			})
			if i < 0 || s.addr.IsValid() {
				return false
			}
			if err := s.pool.shape.Assignable(addr); err != nil && !a.Granted {
				why = fmt.Sprintf("%v: pool %s: %v", addr, s.pool.name, err)
				return false
			}
			return true
		}
		i := slices.IndexFunc(slots, fits)
		switch {
		case i < 0 && a.Mixed: // another pool's, perhaps: who grants it says so
			continue
		case i < 0:
			return Problem{Reason: Unassignable, Message: why}
		}
		slots[i].addr = addr
		slots[i].subnets = slices.DeleteFunc(slices.Clone(slots[i].subnets), func(n v1alpha1.NeutronSubnet) bool {
			cidr, err := netip.ParsePrefix(n.CIDR)
			return err != nil || !cidr.Contains(addr)
		})
	}
	return Problem{}
}

func poolNames(a Ask) string {
	names := make([]string, len(a.From))
	for i, s := range a.From {
		names[i] = "pool " + string(s.Pool)
	}
	return strings.Join(names, ", ")
}

// addressesOf returns those of a port's addresses that were asked for.
func addressesOf(p neutron.Port, w neutron.Want) (all []netip.Addr) {
	for _, want := range w.Addresses {
		i := slices.IndexFunc(p.Addresses, func(f neutron.FixedIP) bool {
			return f.Subnet == want.Subnet && (!want.Addr.IsValid() || want.Addr == f.Addr)
		})
		if i >= 0 {
			all = append(all, p.Addresses[i].Addr)
		}
	}
	return all
}

// clip keeps a text within what Neutron admits.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}

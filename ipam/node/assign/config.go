package assign

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A Pool is what [Slots] needs to know of a pool.
type Pool struct {
	Shape *allocator.Shape
	// BlockBits4 and BlockBits6 are the prefix lengths of the pool's blocks; 0
	// where there are no leases.
	BlockBits4, BlockBits6 int
	// Rested is [Slot.Rested] of each family; nil where no address has to rest.
	Rested map[allocator.Family]uint64
}

func (p Pool) blockBits(f allocator.Family) int {
	if f == allocator.IPv4 {
		return p.BlockBits4
	}
	return p.BlockBits6
}

// Slots returns what an attachment to c's network needs: the addresses that were
// asked for by name, and one of each family of each source of which none was asked for.
// pools has every pool of c.Sources, by name. The errors are [*NoRoomError], for
// a pool without ranges, [*UnassignableError], and that of
// [poolspec.Config.CheckVersion] (C5), before anything is taken.
func Slots(c *poolspec.Config, pools map[string]Pool) ([]Slot, error) {
	slots, err := requestedSlots(c, pools)
	if err != nil {
		return nil, err
	}
	ordinary, err := ordinarySlots(c, pools)
	if err != nil {
		return nil, err
	}
	slots = append(slots, ordinary...)
	if len(slots) > len(c.Requested) && len(c.Requested) > 0 { // as without a request
		slices.SortStableFunc(slots, func(a, b Slot) int { return int(a.Family) - int(b.Family) })
	}
	var addrs []netip.Addr // CheckVersion counts them by family
	for _, s := range slots {
		switch {
		case s.Exact.IsValid():
			addrs = append(addrs, s.Exact)
		case s.Family == allocator.IPv4:
			addrs = append(addrs, netip.IPv4Unspecified())
		default:
			addrs = append(addrs, netip.IPv6Unspecified())
		}
	}
	if err := c.CheckVersion(addrs); err != nil {
		return nil, err
	}
	return slots, nil
}

// ordinarySlots returns a slot of each family of each source of which no address is asked for by
// name. Beside one that is, it leaves out a family of which the pool gives none unasked.
func ordinarySlots(c *poolspec.Config, pools map[string]Pool) (slots []Slot, err error) {
	asked := func(f allocator.Family) bool {
		return slices.ContainsFunc(c.Requested, func(r poolspec.Requested) bool { return allocator.FamilyOf(r.Addr) == f })
	}
	for _, src := range c.Sources {
		p := pools[src.Pool]
		families := src.FamiliesOf(p.Shape)
		if len(families) == 0 && len(c.Requested) == 0 && src.Families == nil {
			return nil, &NoRoomError{Slot: Slot{Pool: protocol.PoolName(src.Pool)}}
		}
		for _, f := range families {
			if len(c.Requested) == 0 || !asked(f) && p.Shape.OrdinaryCapacity(f) > 0 {
				slots = append(slots, slotOf(src, p, f))
			}
		}
	}
	if len(slots) == 0 && len(c.Requested) == 0 { // the families that are wanted are in no pool
		return nil, fmt.Errorf("%w: families: no pool of network %s has addresses of %v; leave the key out, or name the families that the pools have",
			poolspec.ErrConfig, c.Name, c.Sources[0].Families[0])
	}
	return slots, nil
}

func slotOf(src poolspec.Source, p Pool, f allocator.Family) Slot {
	s := Slot{
		Pool: protocol.PoolName(src.Pool), Shape: p.Shape, Family: f, View: src.ViewOf(p.Shape),
		BlockBits: p.blockBits(f), Answer: src.Answer,
	}
	if p.Rested != nil {
		s.Rested = new(p.Rested[f])
	}
	return s
}

func requestedSlots(c *poolspec.Config, pools map[string]Pool) ([]Slot, error) {
	var slots []Slot
	for _, r := range c.Requested {
		// Where no source may give it, [Hold] says why.
		src, _, err := c.SourceOf(r.Addr, func(pool string) (*allocator.Shape, error) { return pools[pool].Shape, nil })
		if err != nil {
			return nil, err
		}
		s := slotOf(src, pools[src.Pool], allocator.FamilyOf(r.Addr))
		s.Exact = r.Addr
		if in, ok := s.Shape.Locate(r.Addr); ok && r.Bits != 0 {
			if bits, _ := src.Answer(r.Addr, in); bits != r.Bits {
				return nil, &UnassignableError{Addr: r.Addr, Pool: s.Pool,
					Reason: fmt.Errorf("%s asks for it with the prefix length %d, and its range has %d", r.Path, r.Bits, bits)}
			}
		}
		slots = append(slots, s)
	}
	return slots, nil
}

// Result returns the result of an ADD that holds x on c's network. Its error is
// that of [poolspec.Config.CheckVersion].
func Result(c *poolspec.Config, x store.Attachment) (*agentapi.Result, error) {
	r := &agentapi.Result{DNS: agentapi.DNS(c.DNS)}
	var addrs []netip.Addr
	for _, a := range x.Addresses {
		addrs = append(addrs, a.Addr)
		r.IPs = append(r.IPs, agentapi.IP{Address: netip.PrefixFrom(a.Addr, a.Bits), Gateway: a.Gateway})
	}
	for _, route := range c.Routes {
		r.Routes = append(r.Routes, agentapi.Route(route))
	}
	if err := c.CheckVersion(addrs); err != nil {
		return nil, err
	}
	return r, nil
}

// PodOf returns the pod that the runtime names in c.
func PodOf(c *poolspec.Config) protocol.PodRef {
	return protocol.PodRef{Namespace: c.Pod.Namespace, Name: c.Pod.Name, UID: protocol.UID(c.Pod.UID)}
}

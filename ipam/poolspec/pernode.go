package poolspec

import (
	"fmt"
	"net/netip"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
)

// PerNodeText says that each node has a subnet of a pool for itself.
type PerNodeText struct {
	// PrefixLength is the length of each subnet.
	PrefixLength int `json:"prefixLength"`
	// Gateway says that the first address of each subnet is its router's.
	Gateway bool `json:"gateway,omitempty"`
	// Pinned are the subnets that certain nodes have.
	Pinned []Pin `json:"pinned,omitempty"`
}

// A Pin is the subnet that a node has.
type Pin struct {
	Node string `json:"node"`
	CIDR string `json:"cidr"`
}

// maxSubnets bounds the subnets of a pool: each is a range of its shape.
const maxSubnets = 1 << 14

// ofSubnet is how many addresses of a subnet are given at most, its first ones: a block has no more
// addresses, and a node has one block.
const ofSubnet = allocator.MaxBlockSize

// BlockSize returns how many addresses a block of the pool has.
func (t PerNodeText) BlockSize(f allocator.Family) int {
	if bits := f.BitLen() - t.PrefixLength; bits < 8 {
		return 1 << max(bits, 0)
	}
	return ofSubnet
}

// subnets parts ranges into the nodes' subnets. ranges have been checked.
func (t PerNodeText) subnets(fs *faults, ranges []allocator.Range) []allocator.Range {
	const path = "spec.perNode.prefixLength"
	var all []allocator.Range
	for i, r := range ranges {
		f := allocator.FamilyOf(r.Prefix.Addr())
		longest := f.BitLen() - 2
		whole := netipx.RangeOfPrefix(r.Prefix)
		switch n := t.PrefixLength - r.Prefix.Bits(); {
		case f != allocator.FamilyOf(ranges[0].Prefix.Addr()):
			fs.add(fmt.Sprintf("spec.ranges[%d].cidr", i), "is of another family than the first range, and perNode has one length", "make a pool for each family, and name both in the network")
			return nil
		case t.PrefixLength > longest:
			fs.addf(path, fmt.Sprintf("write %d or less", longest), "%d leaves a node no address beside its router's", t.PrefixLength)
			return nil
		case n < 0:
			fs.addf(path, fmt.Sprintf("write a length from %d to %d, or a wider cidr", r.Prefix.Bits(), longest), "subnets of /%d do not fit into spec.ranges[%d].cidr, %v", t.PrefixLength, i, r.Prefix)
			return nil
		case r.Start.IsValid() && r.Start != whole.From(), r.End.IsValid() && r.End != whole.To():
			fs.add(fmt.Sprintf("spec.ranges[%d]", i), "has a start or an end, and each node is to have a whole subnet", "leave start and end out, or exclude addresses")
			return nil
		case n > 14 || len(all)+1<<n > maxSubnets:
			fs.addf(path, fmt.Sprintf("write a shorter length, or narrower ranges, for %d subnets at most", maxSubnets), "%d makes too many subnets of the ranges", t.PrefixLength)
			return nil
		}
		for sub := netip.PrefixFrom(r.Prefix.Addr(), t.PrefixLength); r.Prefix.Contains(sub.Addr()); {
			all = append(all, t.subnet(r, sub))
			next := netipx.PrefixLastIP(sub).Next()
			if !next.IsValid() {
				break
			}
			sub = netip.PrefixFrom(next, t.PrefixLength)
		}
	}
	return all
}

// subnet returns the subnet sub of r as a range.
func (t PerNodeText) subnet(r allocator.Range, sub netip.Prefix) allocator.Range {
	span := netipx.RangeOfPrefix(sub)
	last := span.To()
	if host := sub.Addr().BitLen() - sub.Bits(); host > 8 {
		last = netipx.PrefixLastIP(netip.PrefixFrom(sub.Addr(), sub.Addr().BitLen()-8))
	}
	out := allocator.Range{Prefix: sub, Start: span.From(), End: last, Exclude: overlapping(r.Exclude, span), StaticOnly: overlapping(r.StaticOnly, span)}
	if t.Gateway {
		out.Gateway = sub.Addr().Next()
	}
	return out
}

func overlapping(all []netipx.IPRange, with netipx.IPRange) (some []netipx.IPRange) {
	for _, r := range all {
		if r.Overlaps(with) {
			some = append(some, r)
		}
	}
	return some
}

// checkPins reports pins that name no subnet, or one that is another's.
func (t PerNodeText) checkPins(fs *faults, shape *allocator.Shape) {
	byCIDR, byNode := map[netip.Prefix]string{}, map[string]bool{}
	for i, pin := range t.Pinned {
		path := fmt.Sprintf("spec.perNode.pinned[%d]", i)
		p, ok := parseNetwork(fs, path+".cidr", pin.CIDR)
		if !ok {
			continue
		}
		if in, found := shape.Locate(p.Addr()); !found || in.Prefix != p {
			fs.addf(path+".cidr", fmt.Sprintf("write one of the ranges' subnets of /%d", t.PrefixLength), "%v is no subnet of the pool", p)
		}
		if other, there := byCIDR[p]; there {
			fs.addf(path+".cidr", "pin another subnet", "%v is pinned to node %s as well", p, other)
		}
		if byNode[pin.Node] {
			fs.addf(path+".node", "pin one subnet to a node", "node %s has another pinned subnet", pin.Node)
		}
		byCIDR[p], byNode[pin.Node] = pin.Node, true
	}
}

// Pins returns the subnet that is pinned to a node, if one is, and those of other nodes.
func (t PerNodeText) Pins(node string) (own netip.Prefix, others map[netip.Prefix]string) {
	others = map[netip.Prefix]string{}
	for _, pin := range t.Pinned {
		p, err := netip.ParsePrefix(pin.CIDR)
		switch {
		case err != nil: // ParsePool refuses it
		case pin.Node == node:
			own = p
		default:
			others[p] = pin.Node
		}
	}
	return own, others
}

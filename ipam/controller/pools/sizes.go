package pools

import (
	"fmt"
	"maps"
	"net/netip"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// sizes are the prefix lengths of a pool's blocks by family; 0 is undecided.
type sizes map[allocator.Family]int

// sizesIn returns the sizes in a pool's status.
func sizesIn(st v1alpha1.IPPoolStatus) sizes {
	s := sizes{}
	if b := st.BlockPrefixLengths; b != nil {
		if b.IPv4 != nil {
			s[allocator.IPv4] = int(*b.IPv4)
		}
		if b.IPv6 != nil {
			s[allocator.IPv6] = int(*b.IPv6)
		}
	}
	return s
}

// status returns s as a pool's status has it.
func (s sizes) status() *v1alpha1.BlockPrefixLengths {
	of := func(f allocator.Family) *int32 {
		if s[f] == 0 {
			return nil
		}
		return new(int32(s[f]))
	}
	return &v1alpha1.BlockPrefixLengths{IPv4: of(allocator.IPv4), IPv6: of(allocator.IPv6)}
}

// sourcedSize is how many addresses a block has of a pool with a source that says nothing else. No
// node holds one: a large block is one lease, and one write, for many claims.
const sourcedSize = 64

// pending reports whether a pool has a source that has not been read yet. Ranges that somebody has
// written for it count for nothing.
func pending(pool *v1alpha1.IPPool) bool {
	return pool.Spec.Source != nil && (len(pool.Spec.Ranges) == 0 || pool.Status.Neutron == nil)
}

// whyShapeless returns the reason for which nobody knows what a pool's addresses are.
func whyShapeless(pool *v1alpha1.IPPool) string {
	if pending(pool) {
		return v1alpha1.ReasonSourcePending
	}
	return v1alpha1.ReasonInvalidSpec
}

// askedSize returns the size of blocks that a spec asks for, nil if it leaves that open.
func askedSize(spec v1alpha1.IPPoolSpec) *int32 {
	if spec.BlockSize == nil && spec.Source != nil {
		return new(int32(sourcedSize))
	}
	if p := spec.PerNode; p != nil && len(spec.Ranges) > 0 {
		if cidr, err := netip.ParsePrefix(spec.Ranges[0].CIDR); err == nil { // all are of one family
			return new(int32(poolspec.PerNodeText{PrefixLength: int(p.PrefixLength)}.BlockSize(allocator.FamilyOf(cidr.Addr()))))
		}
	}
	return spec.BlockSize
}

// wanted returns the sizes that the pool should have. What has been decided stays,
// also where the ranges have changed since; only the spec's own word changes it.
func (s sizes) wanted(shape *allocator.Shape, blockSize *int32) sizes {
	next := sizes{}
	maps.Copy(next, s)
	override := 0
	if blockSize != nil {
		override = int(*blockSize)
	}
	for _, f := range shape.Families() {
		if next[f] == 0 || override > 0 {
			next[f] = allocator.BlockBits(shape, f, override)
		}
	}
	return next
}

// misfit returns the first lease that keeps a pool from being opened with blocks
// of these sizes.
func (s sizes) misfit(uid protocol.UID, leases []protocol.Lease) (protocol.Lease, bool) {
	for _, l := range leases {
		if l.PoolUID != uid || s[allocator.FamilyOf(l.Block.Addr())] != l.Block.Bits() {
			return l, true
		}
	}
	return protocol.Lease{}, false
}

// leasedSizes returns the sizes of leased blocks, of those that the cluster holds alone where nodes
// is false. If leases of a family differ, it is the size of one of them.
func leasedSizes(leases []protocol.Lease, nodes bool) sizes {
	s := sizes{}
	for _, l := range leases {
		if nodes || l.Holder.Cluster {
			s[allocator.FamilyOf(l.Block.Addr())] = l.Block.Bits()
		}
	}
	return s
}

// or returns s with the sizes of o where s has none.
func (s sizes) or(o sizes) sizes {
	next := sizes{}
	maps.Copy(next, o)
	for f, bits := range s {
		if bits != 0 {
			next[f] = bits
		}
	}
	return next
}

// without returns s with the sizes of these families undecided.
func (s sizes) without(families []allocator.Family) sizes {
	next := sizes{}
	maps.Copy(next, s)
	for _, f := range families {
		delete(next, f)
	}
	return next
}

// complete reports whether there is a size for every family of shape.
func (s sizes) complete(shape *allocator.Shape) bool {
	for _, f := range shape.Families() {
		if s[f] == 0 {
			return false
		}
	}
	return true
}

// changes returns the families for which next is another size than s, which was
// decided.
func (s sizes) changes(next sizes) []allocator.Family {
	var ff []allocator.Family
	for _, f := range allocator.Families() {
		if s[f] != 0 && s[f] != next[f] {
			ff = append(ff, f)
		}
	}
	return ff
}

func (s sizes) equal(o sizes) bool {
	for _, f := range allocator.Families() {
		if s[f] != o[f] {
			return false
		}
	}
	return true
}

// String returns the sizes as "64 IPv4 and 64 IPv6 addresses".
func (s sizes) String() string {
	text, unit := "", " address"
	for _, f := range allocator.Families() {
		if s[f] == 0 {
			continue
		}
		if text != "" {
			text += " and "
		}
		text += fmt.Sprintf("%d %v", 1<<(f.BitLen()-s[f]), f)
		if s[f] < f.BitLen() {
			unit = " addresses"
		}
	}
	return text + unit
}

// takeSizes is for a pool that has waited after a restore. The nodes may have put back leases of
// another block size than its status has, for the status went back, too. Then the pool takes the
// size of the spec if all leases have it, else the size that they have. If wait is true the pool
// waits, by p.
func (s seen) takeSizes(st *v1alpha1.IPPoolStatus, now, want sizes) (p plan, wait bool) {
	switch {
	case s.restored == nil || st.Leasing == v1alpha1.LeasingOpen:
		return plan{}, false
	case s.live == nil:
		return plan{readLive: true}, true
	}
	fits := func(of sizes) bool {
		_, bad := of.misfit(protocol.UID(s.pool.UID), s.live.leases)
		return !bad && (s.shape == nil || of.complete(s.shape))
	}
	take := want
	if !fits(want) {
		take = leasedSizes(s.live.leases, true).or(now).or(want)
	}
	if len(s.live.leases) == 0 || fits(now) || !fits(take) {
		return plan{}, false
	}
	if changing := now.changes(take); len(changing) > 0 {
		st.BlockPrefixLengths = now.without(changing).status()
		return s.shut(st, v1alpha1.ReasonBlockSizeChanging, fmt.Sprintf("blocks are about to have %v, as those that are leased", take)), true
	}
	st.BlockPrefixLengths = take.status()
	return s.shut(st, v1alpha1.ReasonBlockSizeChanging, fmt.Sprintf("blocks now have %v, as those that are leased", take)), true
}

package listing

import (
	"net/netip"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// numbers are what a lease's addresses add up to.
type numbers struct{ size, used, free int }

// numbersOf counts the addresses of a lease: of a node's by what it has published, and
// where it has published nothing all that can be given out count as free.
func numbersOf(l *v1alpha1.IPLease, shape *allocator.Shape) (n numbers) {
	block, err := netip.ParsePrefix(l.Spec.Block)
	if err != nil { // the schema admits none
		return n
	}
	n.size = 1 << (block.Addr().BitLen() - block.Bits())
	n.free = n.size
	if shape != nil {
		n.free = shape.OrdinaryIn(block)
	}
	if l.Spec.Holder.Kind == v1alpha1.HolderCluster {
		n.used = len(l.Spec.Grants)
		n.free = max(0, n.free-n.used)
		return n
	}
	if l.Status.Used != nil {
		n.used = int(*l.Status.Used)
	}
	n.free = max(0, n.free-n.used-len(l.Spec.Ceded))
	if l.Status.Free != nil {
		n.free = min(n.free, int(*l.Status.Free))
	}
	return n
}

// grantsTo counts the grants of a lease to one kind of grantee.
func grantsTo(l *v1alpha1.IPLease, kind v1alpha1.GranteeKind) (n int) {
	for _, g := range l.Spec.Grants {
		if g.To.Kind == kind {
			n++
		}
	}
	return n
}

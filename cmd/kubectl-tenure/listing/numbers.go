package listing

import (
	"fmt"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
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

// regBook is the registrations, as far as this user may read them.
type regBook struct {
	regs   map[protocol.NodeName]protocol.Registration
	hidden bool
	now    time.Time
}

// outOfReach says why what is free in a node's lease can be had by nobody, or "" where
// nothing speaks against it. The controller has more to go by: it counts by its own
// clock, and knows which recalls were not answered.
func (b regBook) outOfReach(l *v1alpha1.IPLease) string {
	if l.Spec.Holder.Kind != v1alpha1.HolderNode || b.hidden {
		return ""
	}
	reg, ok := b.regs[protocol.NodeName(l.Spec.Holder.Node)]
	switch {
	case !ok:
		return "no agent is registered for the node: none runs there"
	case reg.Ended():
		return "the node counts as dead: its leases are being taken over"
	case string(reg.Store) != l.Spec.Store:
		return "of an earlier store of the node: frozen until nothing of that time runs there"
	case l.Spec.Term < reg.Term:
		return "the agent has not said it again since it registered anew"
	case reg.Fence > 0 && b.now.Sub(reg.Beat) >= reg.Fence/2:
		return fmt.Sprintf("the node's agent has not been heard of for %s", duration.HumanDuration(b.now.Sub(reg.Beat)))
	}
	return ""
}

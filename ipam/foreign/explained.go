package foreign

import (
	"net/netip"
	"slices"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// unexplained reports whether what a record or a node says of a pod is none of what the definitions
// are for that the pod selects, and one of them may be of this segment. The pod has asked for the
// address, or has it by what that definition was before. A node has to have seen it on that one's
// network, or the pod to show it of that one.
func (w *weighing) unexplained(c claim) bool {
	may := false
	for _, name := range c.pod.Selected {
		d := w.known[name]
		switch {
		case d == nil, w.mine[name]:
		case w.explains(d, c.addr):
			return false
		case !w.segment.isOther(*d):
			may = may || c.by == byRecord || d.Network == c.of || slices.ContainsFunc(c.pod.Shows, func(s npwg.Shown) bool {
				return s.Definition == name && slices.Contains(s.Addrs, c.addr)
			})
		}
	}
	return may
}

// explains reports whether an address is of d's own ranges, or of a pool that d names: whether it
// can be given by d as it is now. Another pool may have the rest of the subnet.
func (w *weighing) explains(d *Definition, a netip.Addr) bool {
	return slices.ContainsFunc(d.explains, func(v allocator.View) bool { return v.Contains(a) }) || slices.ContainsFunc(d.Pools, func(pool string) bool {
		shape := w.Shapes[protocol.PoolName(pool)]
		return shape != nil && shape.Assignable(a) == nil
	})
}

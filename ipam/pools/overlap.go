package pools

import (
	"slices"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// overlapping returns which of others share addresses with p's ranges, in one
// domain or in none that anybody has named. Older are those that were there
// first.
func overlapping(p *v1alpha1.IPPool, shape *allocator.Shape, others []v1alpha1.IPPool, shapeOf func(*v1alpha1.IPPool) *allocator.Shape) (names, older []string) {
	if shape == nil {
		return nil, nil
	}
	for i := range others {
		o := &others[i]
		if o.Name == p.Name || o.Spec.Domain != p.Spec.Domain || !share(shape, shapeOf(o)) {
			continue
		}
		names = append(names, o.Name)
		if first := o.CreationTimestamp.Compare(p.CreationTimestamp.Time); first < 0 || first == 0 && o.Name < p.Name {
			older = append(older, o.Name)
		}
	}
	slices.Sort(names)
	slices.Sort(older)
	return names, older
}

// share reports whether a and b have an address in common, given or not.
func share(a, b *allocator.Shape) bool {
	for _, x := range a.Ranges() {
		for _, y := range b.Ranges() {
			if netipx.IPRangeFrom(x.Start, x.End).Overlaps(netipx.IPRangeFrom(y.Start, y.End)) {
				return true
			}
		}
	}
	return false
}

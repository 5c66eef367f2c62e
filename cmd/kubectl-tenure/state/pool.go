package state

import (
	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// ShapeOf returns a pool's ranges, nil where they cannot be read: the pool's
// condition says why.
func ShapeOf(p *v1alpha1.IPPool) *allocator.Shape {
	shape, err := poolspec.ParsePool(kube.PoolText(p))
	if err != nil {
		return nil
	}
	return shape
}

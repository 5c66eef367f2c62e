package pools

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// Shapes keeps the shape of each pool's spec: to parse one of many subnets for each event takes
// long. It may be used concurrently.
type Shapes struct {
	known sync.Map // types.UID -> knownShape
	whole sync.Map // types.UID -> wholeShape
}

type wholeShape struct {
	generation int64
	shape      *allocator.Shape // nil: the spec is faulty
}

type knownShape struct {
	generation int64
	unpooled   string // see [kube.Unpooled]
	pending    bool
	shape      *allocator.Shape
	fault      string
}

// Of returns the shape of a pool's spec, without what its status withholds or says that routers
// have, or what is wrong with it.
func (s *Shapes) Of(pool *v1alpha1.IPPool) (shape *allocator.Shape, fault string) {
	unpooled := kube.Unpooled(pool)
	if k, ok := s.known.Load(pool.UID); ok {
		k := k.(knownShape) //nolint:forcetypeassert // nothing else is stored
		if k.generation == pool.Generation && k.unpooled == unpooled && k.pending == pending(pool) {
			return k.shape, k.fault
		}
	}
	shape, err := poolspec.ParsePool(kube.PoolText(pool))
	switch {
	case pending(pool):
		shape, fault = nil, "its subnets have not been read yet: see its condition "+v1alpha1.PoolSourceReady
	case err != nil:
		shape, fault = nil, oneLine(err)
	}
	s.known.Store(pool.UID, knownShape{pool.Generation, unpooled, pending(pool), shape, fault})
	return shape, fault
}

// Whole returns the shape of a pool's spec, whatever its status says. It is not ok if the spec is
// faulty.
func (s *Shapes) Whole(pool *v1alpha1.IPPool) (shape *allocator.Shape, ok bool) {
	if k, there := s.whole.Load(pool.UID); there {
		k := k.(wholeShape) //nolint:forcetypeassert // nothing else is stored
		if k.generation == pool.Generation {
			return k.shape, k.shape != nil
		}
	}
	shape, err := poolspec.ParsePool(kube.SpecText(pool))
	s.whole.Store(pool.UID, wholeShape{pool.Generation, shape})
	return shape, err == nil
}

// Forget drops what is kept of a pool.
func (s *Shapes) Forget(uid types.UID) {
	s.known.Delete(uid)
	s.whole.Delete(uid)
}

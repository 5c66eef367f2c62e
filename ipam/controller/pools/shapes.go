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
type Shapes struct{ known sync.Map } // shapeKey -> knownShape

// shapeKey says of what a shape is: of a pool, or of its whole spec whatever its status says.
type shapeKey struct {
	uid   types.UID
	whole bool
}

type knownShape struct {
	generation int64
	unpooled   string           // see [kube.Unpooled]
	shape      *allocator.Shape // nil: the spec is faulty
	fault      string
}

// Of returns the shape of a pool's spec, without what its status withholds or says that routers
// have, or what is wrong with it.
func (s *Shapes) Of(pool *v1alpha1.IPPool) (shape *allocator.Shape, fault string) {
	if pending(pool) {
		return nil, "its subnets have not been read yet: see its condition " + v1alpha1.PoolSourceReady
	}
	return s.parsed(shapeKey{uid: pool.UID}, pool, kube.Unpooled(pool), kube.PoolText)
}

// Whole returns the shape of a pool's spec, whatever its status says. It is not ok if the spec is
// faulty.
func (s *Shapes) Whole(pool *v1alpha1.IPPool) (shape *allocator.Shape, ok bool) {
	shape, _ = s.parsed(shapeKey{pool.UID, true}, pool, "", kube.SpecText)
	return shape, shape != nil
}

// parsed returns the shape of what text has of a pool, which changes with unpooled.
func (s *Shapes) parsed(of shapeKey, pool *v1alpha1.IPPool, unpooled string, text func(*v1alpha1.IPPool) poolspec.PoolText) (shape *allocator.Shape, fault string) {
	if k, ok := s.known.Load(of); ok {
		k := k.(knownShape) //nolint:forcetypeassert // nothing else is stored
		if k.generation == pool.Generation && k.unpooled == unpooled {
			return k.shape, k.fault
		}
	}
	shape, err := poolspec.ParsePool(text(pool))
	if err != nil {
		shape, fault = nil, oneLine(err)
	}
	s.known.Store(of, knownShape{pool.Generation, unpooled, shape, fault})
	return shape, fault
}

// Forget drops what is kept of a pool.
func (s *Shapes) Forget(uid types.UID) {
	s.known.Delete(shapeKey{uid: uid})
	s.known.Delete(shapeKey{uid, true})
}

package pools

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// calm is how long nobody must have starved before a pool's pressure falls back
// from Exhausted, and then only as [allocator.NextPressure] has it: agents that
// heard of less pressure at the first free address would keep what they free, and
// the next who asks would starve again.
const calm = 30 * time.Second

// lastStarved is when somebody last starved in a pool: by node selector, and for the whole pool by
// [wholePool].
type lastStarved map[string]time.Time

// wholePool stands for a pool with all its ranges. No selector is written so.
const wholePool = "*"

// starves reports whether somebody asks for an address of pool in vain, or of the part of it that
// has a node selector, or did so within the calm that must follow. A controller that starts does
// not know what was before, and takes what is exhausted for where somebody just did. pressure is
// that of the status.
func (r *Reconciler) starves(pool *v1alpha1.IPPool, selector string, part *allocator.Shape, pressure v1alpha1.Pressure, now time.Time) bool {
	starving := r.Starving != nil && r.Starving(protocol.PoolName(pool.Name), part)
	r.mu.Lock()
	defer r.mu.Unlock()
	last, known := r.starved[pool.UID][selector]
	if starving || !known && pressure == v1alpha1.PressureExhausted {
		last = now
	}
	if r.starved == nil {
		r.starved = map[types.UID]lastStarved{}
	}
	if r.starved[pool.UID] == nil {
		r.starved[pool.UID] = lastStarved{}
	}
	r.starved[pool.UID][selector] = last
	return !last.IsZero() && now.Sub(last) < calm
}

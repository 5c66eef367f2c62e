package pools

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// calm is how long nobody must have starved before a pool's pressure falls back
// from Exhausted, and then only as [allocator.NextPressure] has it: agents that
// heard of less pressure at the first free address would keep what they free, and
// the next who asks would starve again.
const calm = 30 * time.Second

// starves reports whether somebody asks for an address of pool in vain, or did so
// within the calm that must follow. A controller that starts does not know what
// was before, and takes an exhausted pool for one in which somebody just did.
func (r *Reconciler) starves(pool *v1alpha1.IPPool, now time.Time) bool {
	starving := r.Starving != nil && r.Starving(protocol.PoolName(pool.Name))
	r.mu.Lock()
	defer r.mu.Unlock()
	last, known := r.starved[pool.UID]
	if starving || !known && pool.Status.Pressure == v1alpha1.PressureExhausted {
		last = now
	}
	if r.starved == nil {
		r.starved = map[types.UID]time.Time{}
	}
	r.starved[pool.UID] = last
	return !last.IsZero() && now.Sub(last) < calm
}

package agent

import (
	"context"

	"github.com/tenure-ipam/tenure/ipam/node/leasestatus"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// publish tells, on the statuses of leases, who has what.
func (a *Agent) publish(ctx context.Context) {
	now := a.sched.Now()
	a.public.Round(ctx, leasestatus.Moment{Now: now, Term: a.term()}, func(name protocol.PoolName) bool { return a.hurried(name, now) })
}

// publishAnswer publishes a lease at once, with the answer to a recall.
func (a *Agent) publishAnswer(ctx context.Context, rc protocol.Recall) bool {
	return a.public.Answer(ctx, leasestatus.Moment{Now: a.sched.Now(), Term: a.term()}, rc.Lease, rc.ID)
}

// hurried reports whether there is a burst in a pool.
func (a *Agent) hurried(name protocol.PoolName, now protocol.Instant) bool {
	a.mu.Lock()
	p, ok := a.pools[name]
	a.mu.Unlock()
	return ok && p.demands.calm(now) < burstOver
}

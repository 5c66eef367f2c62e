package agent

import (
	"context"

	"github.com/tenure-ipam/tenure/ipam/node/leasestatus"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// publish tells, on the statuses of leases, who has what.
func (a *Agent) publish(ctx context.Context) {
	a.public.Round(ctx, leasestatus.Moment{Now: a.sched.Now(), Term: a.term()})
}

// publishAnswer publishes a lease at once, with the answer to a recall.
func (a *Agent) publishAnswer(ctx context.Context, rc protocol.Recall) bool {
	return a.public.Answer(ctx, leasestatus.Moment{Now: a.sched.Now(), Term: a.term()}, rc.Lease, rc.ID)
}

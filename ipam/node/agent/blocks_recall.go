package agent

import (
	"context"
	"sync"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

const (
	// recallTries is how often a recall is answered before it is left to the next
	// one, and recallRetry how long after one that failed.
	recallTries = 4
	recallRetry = 300 * time.Millisecond

	// recallFresh is how old a recall may be that stands on the registration as the agent starts.
	recallFresh = time.Minute
)

// recalls are those that have been taken up. The zero value is ready.
type recalls struct {
	mu    sync.Mutex
	taken map[string]bool // guarded by mu; by ID
}

// hear returns those of all recalls on the registration that have not been taken up, and takes them
// up; first says that none was heard before.
func (r *recalls) hear(all []protocol.Recall) (fresh []protocol.Recall, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first = r.taken == nil
	taken := make(map[string]bool, len(all))
	for _, rc := range all {
		taken[rc.ID] = true
		if !r.taken[rc.ID] {
			fresh = append(fresh, rc)
		}
	}
	r.taken = taken // what is not on the registration any more does not come again
	return fresh, first
}

// hearRecalls begins to answer the recalls of a registration that have not been answered.
func (bs *blocks) hearRecalls(s protocol.Registration) {
	now := bs.sched.Now().Wall
	fresh, first := bs.recalls.hear(s.Recalls)
	for _, rc := range fresh {
		made, known := rc.Made()
		stale := first && known && now.Sub(made) > recallFresh
		bs.background(func(ctx context.Context) { bs.answerRecall(ctx, rc, stale) })
	}
}

// answerRecall cedes what is free of a lease in the ranges of a recall, and says in
// the lease's status that it has, and who has the rest. A lease that this node does
// not hold is answered by nothing: the controller passes over. One that it has no record
// of is in its name all the same, by a create that has come late: a list finds it, and it
// is given back.
//
// One that is stale is answered alone: a leader that is gone has left it on the registration, and
// who waited then has been served, or has had the next leader recall.
func (bs *blocks) answerRecall(ctx context.Context, rc protocol.Recall, stale bool) {
	within, err := protocol.ParseRanges(rc.Ranges)
	if err != nil {
		bs.metrics.recalls.WithLabelValues("invalid").Inc()
		bs.log.WarnContext(ctx, "recall not understood", "recall", rc.ID, "lease", rc.Lease, "error", err)
		return
	}
	for try := range recallTries {
		if try > 0 && !bs.wait(ctx, recallRetry) {
			return
		}
		r, ok := bs.right(rc.Lease)
		if !ok {
			bs.reg.listSoon()
		}
		if !ok || r.Kind != protocol.RightLease || r.Phase != protocol.Held {
			bs.metrics.recalls.WithLabelValues("not held").Inc()
			return
		}
		if (stale || bs.cedeOf(ctx, r, within)) && bs.rights.public.Answer(ctx, rc.Lease, rc.ID) {
			bs.metrics.recalls.WithLabelValues("answered").Inc()
			return
		}
	}
	bs.metrics.recalls.WithLabelValues("failed").Inc()
}

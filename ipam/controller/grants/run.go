package grants

import (
	"context"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Run reads all leases live and then serves asks until ctx ends: it is Start and
// then RunOnce after RunOnce, in their time. No two Runs of one Broker may overlap; of
// two controllers they may.
func (b *Broker) Run(ctx context.Context) error {
	for !b.Start(ctx) {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
	look := time.NewTicker(min(b.cfg.IdleAfter/6, time.Second))
	defer look.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		sweep := false
		select {
		case <-ctx.Done():
			return nil
		case <-b.work:
		case <-retry.C:
		case <-look.C:
			sweep = true
		}
		if at, ok := b.RunOnce(ctx, sweep); ok {
			retry.Reset(max(at.Sub(b.cfg.Now()), 0))
		}
	}
}

// Start reads all leases live, and has everybody that holds grants looked at: they
// may be gone since the last run. It reports whether that worked.
func (b *Broker) Start(ctx context.Context) bool {
	begun := b.begin()
	leases, err := b.cluster.Leases(ctx)
	if err != nil {
		// What could be read counts; a lease that cannot be understood keeps
		// its name, and so its block, all the same.
		b.log.ErrorContext(ctx, "leases cannot be read", "error", err)
	}
	if err != nil && len(leases) == 0 {
		return false
	}
	for _, l := range leases {
		b.observe(l, begun)
	}
	b.notifyGrantees(b.granteesOfKind(protocol.GranteeClaim))
	b.notifyGrantees(b.granteesOfKind(protocol.GranteeSubLease))
	b.notifyGrantees(b.granteesOfKind(protocol.GranteeReservation))
	return true
}

// RunOnce does once what there is to do: it gives leases back that are not needed, if sweep says so or
// what was seen since the last RunOnce, reads those again that no watch shows, if sweep says so, and
// works on the asks and changes that wait. It returns when one of them is to be tried again, if one
// is. No two Turns of one Broker may overlap.
func (b *Broker) RunOnce(ctx context.Context, sweep bool) (at time.Time, ok bool) {
	b.mu.Lock()
	b.sweep = b.sweep || sweep
	b.mu.Unlock()
	b.giveBack(ctx)
	if sweep {
		b.verifyUnwatched(ctx)
	}
	b.round(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.book.due()
}

package grants

import (
	"context"
	"time"

	"github.com/tenure-ipam/tenure/ipam/pause"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Run reads all leases live and then works on asks until ctx ends. It calls Start, and then RunOnce
// again and again. Two Runs of one Broker must not overlap; Runs of two controllers may.
func (b *Broker) Run(ctx context.Context) error {
	for !b.Start(ctx) {
		if !pause.For(ctx, time.Second) {
			return nil
		}
	}
	sweeps := time.NewTicker(min(b.cfg.IdleAfter/6, time.Second))
	defer sweeps.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		sweep := false
		select {
		case <-ctx.Done():
			return nil
		case <-b.work:
		case <-retry.C:
		case <-sweeps.C:
			sweep = true
		}
		if at, ok := b.RunOnce(ctx, sweep); ok {
			retry.Reset(max(at.Sub(b.cfg.Now()), 0))
		}
	}
}

// Start reads all leases live, and notifies every grantee: some may be gone since the last run. It
// reports whether it could read leases.
func (b *Broker) Start(ctx context.Context) bool {
	begun := b.begin()
	leases, err := b.cluster.Leases(ctx)
	if err != nil {
		// What could be read counts. A lease that cannot be understood still has its name, so
		// nobody else can lease its block.
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

// RunOnce does what there is to do now. If sweep is true, or a pool needs it, it gives back leases
// that are not needed. If sweep is true it reads leases again that no watch shows. Then it works on
// the asks and changes that wait. It returns the time at which one of them is to be tried again, if
// there is one. Two calls for one Broker must not overlap.
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

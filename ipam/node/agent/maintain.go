package agent

import (
	"context"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/sched"
)

// How often maintain does what.
const (
	// dueEvery is how often jobs look that find something only now and then.
	dueEvery     = time.Second
	idleEvery    = 5 * time.Second
	journalEvery = 5 * time.Second
	ownEvery     = time.Hour
	ownRetry     = 10 * time.Second // after a list that failed
	forgetEvery  = time.Hour
)

// maintain does what no request asks for, until ctx ends: rechecks rights that are
// in doubt, journalled DELs, idle leases and uses, publication, garbage, and the
// hourly list of what the API server has in this node's name. Each job has its own
// pace: one that waits for the API server holds up no other.
func (a *Agent) maintain(ctx context.Context) error {
	jobs := []struct {
		every            time.Duration
		after            time.Duration // the first time
		needRegistration bool          // put off while there is none
		do               func(context.Context)
	}{
		{every: journalEvery, do: a.attachments.drainJournal},
		{every: dueEvery, needRegistration: true, do: a.rights.recheckDue},
		{every: dueEvery, do: a.pools.mend},
		{every: time.Minute, needRegistration: true, do: a.rights.planRechecks},
		{every: ownEvery, do: a.attachments.sweepJournal},
		{every: time.Minute, do: a.attachments.countDamaged},
		{every: ownEvery, after: ownEvery, do: a.checkStore}, // it was checked as it was opened
		{every: forgetEvery, after: forgetEvery, needRegistration: true, do: a.pools.forget},
		{every: forgetEvery, after: forgetEvery, do: a.strangers.forget},
		{every: min(idleEvery, a.cfg.Idle), needRegistration: true, do: a.blocks.giveBack},
		{every: dueEvery, needRegistration: true, do: a.blocks.cedeExhausted},
		{every: min(idleEvery, a.cfg.KeepRequest), needRegistration: true, do: a.expireRequests},
		{every: max(dueEvery, a.cfg.PublishEvery/6), needRegistration: true, do: a.rights.public.Round},
		{every: a.cfg.SweepEvery, do: a.attachments.sweep},
		{every: a.cfg.SweepEvery, needRegistration: true, do: a.losses.thaw},
	}
	g, ctx := sched.NewGroup(ctx, a.sched)
	g.Go(func() error { a.losses.keepListing(ctx); return nil })
	for _, job := range jobs {
		g.Go(func() error {
			for pause := job.after; a.wait(ctx, pause); pause = a.spread(job.every) {
				if job.needRegistration && !a.reg.await(ctx) {
					return nil
				}
				job.do(ctx)
			}
			return nil
		})
	}
	return g.Wait()
}

// checkStore checks the whole store. What it finds needs a person, or the next start,
// which reads the file before it believes it.
func (a *Agent) checkStore(ctx context.Context) {
	err := a.st.Check()
	a.storeFaults.Store(int64(countErrors(err)))
	if err != nil {
		a.log.ErrorContext(ctx, "the store contradicts itself", "store", a.st.Path(), "error", err)
	}
}

// countErrors returns how many errors are joined in err.
func countErrors(err error) int {
	if err == nil {
		return 0
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return 1
	}
	n := 0
	for _, e := range joined.Unwrap() {
		n += countErrors(e)
	}
	return max(n, 1)
}

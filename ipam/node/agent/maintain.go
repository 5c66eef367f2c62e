package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/delqueue"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// How often maintain does what.
const (
	lookEvery    = time.Second
	idleEvery    = 5 * time.Second
	journalEvery = 5 * time.Second
	ownEvery     = time.Hour
	ownRetry     = 10 * time.Second // after a list that failed
	forgetEvery  = time.Hour
)

// maintain does what no request asks for, until ctx ends: looks at rights that are
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
		{every: journalEvery, do: a.drainJournal},
		{every: lookEvery, needRegistration: true, do: a.lookAgain},
		{every: lookEvery, do: a.mend},
		{every: time.Minute, needRegistration: true, do: a.planLooks},
		{every: ownEvery, do: a.sweepJournal},
		{every: time.Minute, do: a.countDamaged},
		{every: ownEvery, after: ownEvery, do: a.checkStore}, // it was checked as it was opened
		{every: forgetEvery, after: forgetEvery, needRegistration: true, do: a.forgetPools},
		{every: min(idleEvery, a.cfg.Idle), needRegistration: true, do: a.giveBack},
		{every: lookEvery, needRegistration: true, do: a.cedeExhausted},
		{every: min(idleEvery, a.cfg.KeepRequest), needRegistration: true, do: a.expireRequests},
		{every: max(lookEvery, a.cfg.PublishEvery/6), needRegistration: true, do: a.publish},
		{every: a.cfg.SweepEvery, do: a.sweep},
		{every: a.cfg.SweepEvery, needRegistration: true, do: a.thaw},
	}
	g, ctx := sched.NewGroup(ctx, a.sched)
	g.Go(func() error { a.keepListing(ctx); return nil })
	for _, job := range jobs {
		g.Go(func() error {
			for pause := job.after; a.wait(ctx, pause); pause = a.spread(job.every) {
				if job.needRegistration && !a.awaitRegistration(ctx) {
					return nil
				}
				job.do(ctx)
			}
			return nil
		})
	}
	return g.Wait()
}

// awaitRegistration waits until the agent has a registration, or ctx ends.
func (a *Agent) awaitRegistration(ctx context.Context) bool {
	for !a.registered() {
		if !a.wait(ctx, lookEvery) {
			return false
		}
	}
	return true
}

// lookAgain looks at the rights whose time has come, a few at once.
func (a *Agent) lookAgain(ctx context.Context) {
	names := a.schedule.due(a.sched.Now().Boot)
	sched.Each(ctx, a.sched, a.cfg.Parallel, names, func(name string) {
		r, ok := a.right(name)
		if !ok {
			return
		}
		if a.waitsForPool(r) { // nothing is to be written to find that out
			a.lookIn(name, a.retryLater())
			return
		}
		ev := protocol.Event{Kind: protocol.EventLook}
		if r.Phase == protocol.Noted && (r.Kind == protocol.RightUse || r.Kind == protocol.RightLease && a.withholds(r.Pool)) {
			// The ADD that wanted the use is gone, or asks again. A lease that was
			// created when the API server had gone back may be another's.
			ev.Kind = protocol.EventLetGo
		}
		if _, res, err := a.drive(ctx, r, a.beginWith(ev)); err != nil && ctx.Err() == nil {
			a.lookIn(name, a.retryLater())
			a.log.DebugContext(ctx, "look put off", "right", name, "error", err, "verdict", res.Verdict)
		}
	})
}

// planLooks plans a look at every right that does not serve and has no plan: none
// may be forgotten, whatever ended the drive that was to plan it.
func (a *Agent) planLooks(ctx context.Context) {
	term := a.term()
	err := a.st.View(func(tx *store.Tx) error {
		for r, err := range tx.Rights() {
			if err != nil {
				return err
			}
			if !r.Serves(term) && a.schedule.planned(r.Name) == nil {
				a.lookIn(r.Name, 0)
			}
		}
		return nil
	})
	if err != nil {
		a.log.ErrorContext(ctx, "store not read", "error", err)
	}
}

// right returns what the store has of a right. It does not wait for a disk that hangs, as
// an ADD must not that comes here on its way to the API server. That is safe: what is to
// be done with a right each step of a drive finds out anew, in an Update; a right of which
// the step of a drive was recorded nobody else changes meanwhile; and the UID, revision and
// turn of a record are those of an answer, of which the API server must not come short,
// whether or not it is on disk.
func (a *Agent) right(name string) (r protocol.Right, ok bool) {
	err := a.st.Peek(func(tx *store.Tx) error {
		var err error
		r, ok, err = tx.Right(name)
		return err
	})
	if err != nil {
		a.log.Error("right not read", "right", name, "error", err)
	}
	return r, ok && err == nil
}

// drainJournal applies the DELs that found no agent.
func (a *Agent) drainJournal(ctx context.Context) {
	entries, damaged, err := delqueue.List(a.cfg.JournalDir)
	for _, name := range damaged {
		a.log.WarnContext(ctx, "journal entry damaged, set aside", "file", name)
	}
	if err != nil {
		a.log.WarnContext(ctx, "journal not read", "error", err)
	}
	for _, e := range entries {
		key := store.Key{Network: e.Network, ContainerID: e.ContainerID, IfName: e.IfName}
		unlock, err := a.keys.Lock(ctx, a.sched, key)
		if err != nil {
			return
		}
		// Under the lock an ADD may have consumed it meanwhile: read again.
		own, _, err := delqueue.OfKey(a.cfg.JournalDir, e.Network, e.ContainerID, e.IfName)
		if err == nil {
			err = a.applyJournal(ctx, key, own)
		}
		unlock()
		if err != nil {
			a.log.WarnContext(ctx, "journalled DEL not applied", "sandbox", e.ContainerID, "interface", e.IfName, "error", err)
		}
	}
}

// sweepJournal removes what killed plugins have left in the journal's directory.
func (a *Agent) sweepJournal(ctx context.Context) {
	if err := delqueue.Sweep(a.cfg.JournalDir, a.sched.Now().Wall.Add(-ownEvery)); err != nil {
		a.log.WarnContext(ctx, "journal not swept", "error", err)
	}
}

// giveBack lets go of leases and uses that nothing has needed for a while.
func (a *Agent) giveBack(ctx context.Context) {
	rights, err := a.rightsThat(func(r protocol.Right) bool { return r.Phase == protocol.Held || r.Phase == protocol.Lost })
	if err != nil {
		a.log.ErrorContext(ctx, "store not read", "error", err)
		return
	}
	// What is Lost is given back at any time: after a restore it may stand in the way of
	// whoever puts back what is his, or of its pool. So may what a pool that is closed waits
	// for (see [protocol.Right.MayGo]), and a lease of an earlier pool of the name.
	term := a.term()
	rights = slices.DeleteFunc(rights, func(r protocol.Right) bool {
		return r.Phase != protocol.Lost && !r.MayGo(term) && a.keptBack(r) != nil
	})
	idle := a.idleRights(rights)
	sched.Each(ctx, a.sched, a.cfg.Parallel, idle, func(r protocol.Right) {
		if r.Kind == protocol.RightLease && r.Phase == protocol.Held {
			a.handBack(ctx, r)
			return
		}
		a.letGo(ctx, r)
	})
}

// rightsThat returns the rights that keep accepts.
func (a *Agent) rightsThat(keep func(protocol.Right) bool) ([]protocol.Right, error) {
	var rights []protocol.Right
	err := a.st.View(func(tx *store.Tx) error {
		rights = rights[:0]
		for r, err := range tx.Rights() {
			if err != nil {
				return err
			}
			if keep(r) {
				rights = append(rights, r)
			}
		}
		return nil
	})
	return rights, err
}

// asked reports whether r is a request that may serve an ADD: it goes when that does
// not come again.
func asked(r protocol.Right) bool {
	return r.Kind == protocol.RightRequest && r.Phase == protocol.Held
}

// cededWhole reports whether every address of a lease's block has been ceded: the
// cluster may take it over.
func cededWhole(r protocol.Right) bool {
	return r.Kind == protocol.RightLease && len(r.Ceded) == 1<<(r.Block.Addr().BitLen()-r.Block.Bits())
}

// idleRights returns which of rights to let go: empty for long enough, and not
// part of the reserve of a pool that the node uses.
func (a *Agent) idleRights(rights []protocol.Right) []protocol.Right {
	now, term := a.sched.Now(), a.term()
	empty := map[string]bool{}
	spare := map[protocol.PoolName]map[allocator.Family]int{} // free addresses beyond the reserve
	var info map[assign.BlockKey]allocator.BlockInfo
	err := a.st.View(func(tx *store.Tx) error {
		var err error
		if info, err = assign.Blocks(tx); err != nil {
			return err
		}
		for _, r := range rights {
			if asked(r) {
				continue
			}
			err := unused(tx, r)
			if err != nil && !errors.Is(err, errInUse) {
				return err
			}
			empty[r.Name] = err == nil
			if _, ok := spare[r.Pool]; r.Kind == protocol.RightLease && !ok {
				spare[r.Pool] = a.spare(tx, r.Pool)
			}
		}
		return nil
	})
	if err != nil {
		a.log.Error("store not read", "error", err)
		return nil
	}
	var idle []protocol.Right
	for _, r := range rights {
		if !empty[r.Name] {
			a.idle.end(r.Name)
			continue
		}
		since := a.idle.since(r.Name, now)
		after := a.cfg.Idle
		if r.Phase == protocol.Lost || r.Kind == protocol.RightLease && a.pressed(r.Pool) && !cededWhole(r) {
			after = 0
		}
		if now.Since(since) < after {
			continue
		}
		if r.Kind == protocol.RightLease && r.Serves(term) { // another gives nothing, and is no reserve
			// Not the block's size: at the edges of a pool, and where addresses are
			// excluded or static-only, a block has fewer to give, or none.
			f, free := allocator.FamilyOf(r.Block.Addr()), info[assign.BlockKey{Pool: r.Pool, Block: r.Block}].Free
			if free > 0 && spare[r.Pool][f] < free {
				continue // part of the reserve
			}
			spare[r.Pool][f] -= free
		}
		a.idle.end(r.Name)
		idle = append(idle, r)
	}
	return idle
}

// spare returns how many free addresses the node has in a pool beyond the reserve
// that its use of the pool suggests.
func (a *Agent) spare(tx *store.Tx, name protocol.PoolName) map[allocator.Family]int {
	more := map[allocator.Family]int{}
	pressure := allocator.PressureLow
	if known, absent := a.heard(name); known != nil {
		pressure = known.Pressure
		if absent || known.Deleting || !known.Open {
			pressure = allocator.PressureExhausted
		}
	}
	for _, f := range allocator.Families() {
		c, err := a.counts(tx, name, f)
		if err != nil {
			a.log.Error("pool state not read", "pool", name, "error", err)
			continue
		}
		reserve := 0
		if c.Taken > 0 {
			reserve = allocator.Reserve(c.Taken, pressure)
		}
		more[f] = c.Free - reserve
	}
	return more
}

// pressed reports whether idle leases of a pool go back at once.
func (a *Agent) pressed(name protocol.PoolName) bool {
	known, absent := a.heard(name)
	return absent || known != nil && (known.Pressure != allocator.PressureLow || known.Deleting || !known.Open)
}

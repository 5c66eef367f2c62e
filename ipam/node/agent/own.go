package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// keepListing has listOwn be made at start, once an hour, and when the API server was seen
// to go back: it may have more in the node's name then, and less. And sooner after a start
// that has found a store of this machine lost: a create of that one may still come, and
// only a list finds it, since nobody has noted its name.
func (a *Agent) keepListing(ctx context.Context) {
	began := a.sched.Now()
	for pause := time.Duration(0); a.waitToList(ctx, pause) && a.awaitRegistration(ctx); pause = a.nextList(began) {
		a.listOwn(ctx)
	}
}

// waitToList pauses for d, or until a list is wanted at once; it reports whether ctx has
// not ended.
func (a *Agent) waitToList(ctx context.Context, d time.Duration) bool {
	return a.sched.Wait(ctx, d, a.listNow) != sched.Ended
}

// wakeList has listOwn be made now.
func (a *Agent) wakeList() {
	sched.Signal(a.listNow)
}

// nextList returns how long to wait before the next list of an agent that began to list
// then.
func (a *Agent) nextList(began protocol.Instant) time.Duration {
	now := a.sched.Now()
	lost := slices.ContainsFunc(a.current().Seen.Former, func(f protocol.Former) bool {
		return f.Machine == a.cfg.Machine && f.Store != a.st.ID()
	})
	// Of a create that nobody has noted nobody knows the time. It was sent before the start.
	var start time.Time
	at := start.Add(now.Since(began))
	if next, ok := protocol.NextLook(start, at); ok && lost {
		d := next.Sub(at)
		return d + sched.N(a.sched, d/4+1)
	}
	return a.spread(ownEvery)
}

// listOwn compares what the API server has in this node's name with what the store
// has: a create whose answer was lost may have landed after its looks, an object may
// have been deleted by hand, and what was ceded on disk may not have come into the lease
// before the agent's end. If the API server is seen to go back, it is made anew.
func (a *Agent) listOwn(ctx context.Context) {
	for {
		err := a.compareOwn(ctx)
		if err == nil || ctx.Err() != nil || errors.Is(err, errRewound) {
			return
		}
		a.log.WarnContext(ctx, "what the API server has in this node's name is not known", "error", err)
		if !a.wait(ctx, a.jittered(ownRetry)) {
			return
		}
	}
}

// compareOwn is listOwn once.
func (a *Agent) compareOwn(ctx context.Context) error {
	rewinds := a.epoch().rewinds
	leases, _, err := a.cl.Leases.NodeLeases(ctx, a.cfg.Node)
	if err != nil {
		return err
	}
	subs, _, err := a.cl.SubLeases.NodeSubLeases(ctx, a.cfg.Node)
	if err != nil {
		return err
	}
	if err := a.reclaim(ctx, leases, subs); err != nil {
		return err
	}
	a.readAll()
	there, tell := map[string]protocol.UID{}, map[string]protocol.Lease{}
	for _, l := range leases {
		if l.Store == a.st.ID() {
			there[l.Name], tell[l.Name] = l.UID, l
			a.adoptStray(ctx, protocol.Right{Kind: protocol.RightLease, Name: l.Name, LeaseRight: protocol.LeaseRight{Pool: l.Pool, PoolUID: l.PoolUID, Block: l.Block}})
		}
	}
	for _, s := range subs {
		if s.Store != a.st.ID() {
			continue
		}
		there[s.Name] = s.UID
		r := protocol.Right{Kind: protocol.RightUse, Name: s.Name, SubLeaseRight: protocol.SubLeaseRight{Use: s.Use}}
		if s.Request != nil {
			r = protocol.Right{Kind: protocol.RightRequest, Name: s.Name, SubLeaseRight: protocol.SubLeaseRight{Request: s.Request}}
		}
		a.adoptStray(ctx, r)
	}
	otherwise, err := a.rightsThat(func(r protocol.Right) bool { return r.ListedOtherwise(there[r.Name], tell[r.Name]) })
	if err == nil {
		a.compared(rewinds, otherwise) // before a look can answer
	}
	for _, r := range otherwise {
		a.lookIn(r.Name, 0)
	}
	return err
}

// adoptStray takes up an object in this store's name that the store has no record
// of: a create that came late, from which nothing was given. It goes back.
func (a *Agent) adoptStray(ctx context.Context, r protocol.Right) {
	if _, known := a.right(r.Name); known {
		return
	}
	unlock, err := a.rights.Lock(ctx, a.sched, r.Name)
	if err != nil {
		return
	}
	defer unlock()
	err = a.st.Update(ctx, func(tx *store.Tx) error {
		if _, known, err := tx.Right(r.Name); err != nil || known {
			return err
		}
		r.Phase = protocol.Releasing // a read follows before anything is deleted
		return tx.PutRight(r)
	})
	if err != nil {
		a.log.WarnContext(ctx, "stray right not taken up", "right", r.Name, "error", err)
		return
	}
	a.log.InfoContext(ctx, "stray right found, giving it back", "right", r.Name)
	a.lookIn(r.Name, 0)
}

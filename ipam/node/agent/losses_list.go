package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// keepListing has listOwn be made at start, once an hour, and when the API server was seen
// to go back: it may have more in the node's name then, and less. And sooner after a start
// that has found a store of this machine lost: a create of that one may still come, and
// only a list finds it, since nobody has noted its name.
func (ls *losses) keepListing(ctx context.Context) {
	began := ls.sched.Now()
	for pause := time.Duration(0); ls.sched.Wait(ctx, pause, ls.reg.listNow) != sched.Ended && ls.reg.await(ctx); pause = ls.nextList(began) {
		ls.listOwn(ctx)
	}
}

// nextList returns how long to wait before the next list of an agent that began to list
// then.
func (ls *losses) nextList(began protocol.Instant) time.Duration {
	now := ls.sched.Now()
	lost := slices.ContainsFunc(ls.reg.current().Seen.Former, func(f protocol.Former) bool {
		return f.Machine == ls.cfg.Machine && f.Store != ls.st.ID()
	})
	// Of a create that nobody has noted nobody knows the time. It was sent before the start.
	var start time.Time
	at := start.Add(now.Since(began))
	if next, ok := protocol.NextRecheck(start, at); ok && lost {
		d := next.Sub(at)
		return d + sched.N(ls.sched, d/4+1)
	}
	return ls.spread(ownEvery)
}

// listOwn compares what the API server has in this node's name with what the store
// has: a create whose answer was lost may have landed after its rechecks, an object may
// have been deleted by hand, and what was ceded on disk may not have come into the lease
// before the agent's end. If the API server is seen to go back, it is made anew.
func (ls *losses) listOwn(ctx context.Context) {
	for {
		err := ls.compareOwn(ctx)
		if err == nil || ctx.Err() != nil || errors.Is(err, errRewound) {
			return
		}
		ls.log.WarnContext(ctx, "what the API server has in this node's name is not known", "error", err)
		if !ls.wait(ctx, ls.jittered(ownRetry)) {
			return
		}
	}
}

// compareOwn is listOwn once.
func (ls *losses) compareOwn(ctx context.Context) error {
	rewinds := ls.reg.era().rewinds
	leases, _, err := ls.cl.Leases.NodeLeases(ctx, ls.cfg.Node)
	if err != nil {
		return err
	}
	subs, _, err := ls.cl.SubLeases.NodeSubLeases(ctx, ls.cfg.Node)
	if err != nil {
		return err
	}
	if err := ls.reclaim(ctx, leases, subs); err != nil {
		return err
	}
	ls.reg.readAll()
	there, tell := map[string]protocol.UID{}, map[string]protocol.Lease{}
	for _, l := range leases {
		if l.Store == ls.st.ID() {
			there[l.Name], tell[l.Name] = l.UID, l
			ls.rights.adoptStray(ctx, protocol.Right{Kind: protocol.RightLease, Name: l.Name, LeaseRight: protocol.LeaseRight{Pool: l.Pool, PoolUID: l.PoolUID, Block: l.Block}})
		}
	}
	for _, s := range subs {
		if s.Store != ls.st.ID() {
			continue
		}
		there[s.Name] = s.UID
		r := protocol.Right{Kind: protocol.RightUse, Name: s.Name, SubLeaseRight: protocol.SubLeaseRight{Use: s.Use}}
		if s.Request != nil {
			r = protocol.Right{Kind: protocol.RightRequest, Name: s.Name, SubLeaseRight: protocol.SubLeaseRight{Request: s.Request}}
		}
		ls.rights.adoptStray(ctx, r)
	}
	otherwise, err := ls.rightsThat(func(r protocol.Right) bool { return r.ListedOtherwise(there[r.Name], tell[r.Name]) })
	if err == nil {
		ls.reg.compared(rewinds, otherwise) // before a recheck is answered
	}
	for _, r := range otherwise {
		ls.rights.recheckIn(r.Name, 0)
	}
	return err
}

package agent

import (
	"cmp"
	"context"
	"math"
	"reflect"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// requestPoll is how often a request is rechecked without a word from its watch. Many may wait at
// once: rechecks in vain would take the API server's time from the answers.
const requestPoll = 2 * time.Second

// holdGranted gives the attachment what the cluster has granted to a request for its
// interface already: the ADD that asked was given up, or its sandbox is gone. ok is
// false where there is nothing.
func (a *Agent) holdGranted(ctx context.Context, add *addCall) (att store.Attachment, ok bool, err error) {
	r, _, err := a.pickRequest(ctx, add)
	if err != nil || r.Phase != protocol.Held {
		return att, false, err
	}
	if !r.Usable(a.reg.term()) { // to be confirmed in a new term first
		if r, ok, err = a.await(ctx, add, r); err != nil || !ok {
			if is[*RefusedError](err) {
				err = nil
			}
			return att, false, err
		}
	}
	att, lacks, err := a.commitGranted(ctx, add, r)
	if lacks.grant || is[*notServingError](err) { // it may have others, which it keeps
		return att, false, nil
	}
	err = cmp.Or(err, lacks.why)
	return att, err == nil, err
}

// waits reports whether there is a request that add waits for.
func (a *Agent) waits(ctx context.Context, add *addCall) bool {
	if len(a.rights.requests.namesOf(add.requester())) == 0 {
		return false
	}
	r, _, err := a.pickRequest(ctx, add)
	return err == nil && r.Name != ""
}

// holdRequested has the cluster give the attachment its addresses. unmet is why the node has none
// itself. The cluster has none of a pool that gives each node a subnet.
func (a *Agent) holdRequested(ctx context.Context, add *addCall, unmet error) (store.Attachment, error) {
	if a.pools.perNode(add.demand.Slots) {
		return store.Attachment{}, &waitingError{Why: unmet.Error()}
	}
	return a.ask(ctx, add, unmet)
}

// ask gives the attachment what the cluster grants to a request for all of its addresses, and waits
// for that. The request stays when the wait is over: the next try finds it, in the place that it
// has come to. why is why the cluster is asked.
func (a *Agent) ask(ctx context.Context, add *addCall, why error) (store.Attachment, error) {
	if add.demand.Pod.UID == "" || add.demand.Pod.Name == "" {
		return store.Attachment{}, &unaskableError{Cause: why}
	}
	unlock, err := a.asking.Lock(ctx, a.sched, add.requester())
	if err != nil {
		return store.Attachment{}, err
	}
	defer unlock()
	for {
		r, err := a.requestFor(ctx, add)
		if err != nil {
			return store.Attachment{}, err
		}
		r, ok, err := a.await(ctx, add, r)
		switch {
		case err != nil:
			return store.Attachment{}, err
		case !ok:
			continue
		}
		att, lacks, err := a.commitGranted(ctx, add, r)
		if err != nil || !lacks.grant || ctx.Err() != nil {
			return att, cmp.Or(err, lacks.why)
		}
		// The pool has changed since it was asked: what was granted does not do.
		if add.demand.Slots, err = a.slots(ctx, add, a.pools.ready); err != nil {
			return store.Attachment{}, err
		}
	}
}

// requestFor returns the request that add is to wait for: the one that there is, or a
// new one, of no phase. Where there is nothing to ask for the error is an [*OutsideError].
// What was asked for and is not wanted any more is given back.
func (a *Agent) requestFor(ctx context.Context, add *addCall) (protocol.Right, error) {
	r, stale, err := a.pickRequest(ctx, add)
	if err != nil {
		return r, err
	}
	for _, r := range stale {
		a.background(func(ctx context.Context) { a.rights.letGo(ctx, r) })
	}
	if r.Name != "" {
		return r, nil
	}
	wants := assign.Wants(add.demand.Slots)
	for i, w := range wants {
		if len(w.Ranges) == 0 {
			return r, &OutsideError{Slot: add.demand.Slots[i]}
		}
	}
	name := protocol.RequestName(a.cfg.Node, a.sched.Uint64N(math.MaxUint64))
	a.log.InfoContext(ctx, "the cluster is asked for addresses", "request", name, "pod", add.demand.Pod.String(), "interface", add.key.IfName, "wants", wants)
	return protocol.Right{
		Kind: protocol.RightRequest, Name: name,
		SubLeaseRight: protocol.SubLeaseRight{Request: &protocol.Request{Pod: add.demand.Pod, Interface: add.key.IfName, Wants: wants}},
	}, nil
}

// pickRequest returns the request that serves add, granted before waiting; it has no
// name if there is none. stale are those that serve nobody. One that a live sandbox
// of the interface rests on is neither.
func (a *Agent) pickRequest(ctx context.Context, add *addCall) (best protocol.Right, stale []protocol.Right, err error) {
	names := a.rights.requests.namesOf(add.requester())
	wants := assign.Wants(add.demand.Slots)
	err = a.st.ViewContext(ctx, func(tx *store.Tx) error {
		best, stale = protocol.Right{}, nil
		for _, name := range names {
			r, ok, err := tx.Right(name)
			if err != nil {
				return err
			}
			if !ok || r.Phase != protocol.Noted && r.Phase != protocol.Held {
				continue
			}
			used, live, err := a.restedOn(tx, name, add.key)
			switch {
			case err != nil:
				return err
			case live, add.stopped != "" && !used: // nothing new is given of a pool that is stopped
			case best.Phase != protocol.Held && serves(r, add.demand.Slots, wants):
				if best.Name != "" {
					stale = append(stale, best)
				}
				best = r
			case !used:
				stale = append(stale, r)
			}
		}
		return nil
	})
	return best, stale, err
}

// serves reports whether r is, or may be granted, what slots want.
func serves(r protocol.Right, slots []assign.Slot, wants []protocol.Wanted) bool {
	if r.Phase == protocol.Held {
		_, ok := assign.Granted(slots, r.Request.Wants, r.Addrs)
		return ok
	}
	return reflect.DeepEqual(r.Request.Wants, wants)
}

// restedOn reports whether an attachment rests on the request of that name, and
// whether one other than key does whose sandbox may still be there.
func (a *Agent) restedOn(tx *store.Tx, name string, key store.Key) (used, live bool, err error) {
	for att, err := range tx.OfUse(name) {
		if err != nil {
			return false, false, err
		}
		used = true
		live = live || att.Key != key && !a.host.Gone(att)
	}
	return used, live, nil
}

// await waits until the controller has granted r, and returns it as it is then,
// serving; ok is false if it was given back or lost meanwhile. Its errors are a [*RefusedError], a
// [*waitingError] when the time is up, and those of the API server.
func (a *Agent) await(ctx context.Context, add *addCall, r protocol.Right) (_ protocol.Right, ok bool, err error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var announced <-chan struct{}
	ev := protocol.Event{Kind: protocol.EventWant}
	for {
		entry := a.rights.requests.try(r.Name, add.requester(), a.sched.Now())
		now, res, err := a.rights.settleForADD(ctx, r, a.rights.beginWith(ev), nil)
		switch res.Verdict {
		case protocol.VerdictUsable:
			a.metrics.asked.WithLabelValues("granted").Inc()
			return now, true, nil
		case protocol.VerdictRefused:
			if why := a.rights.requests.refusal(entry); why != nil {
				a.metrics.asked.WithLabelValues("refused").Inc()
				return now, false, &RefusedError{*why}
			}
			return now, false, &waitingError{Why: "the request is refused: " + res.Why}
		case protocol.VerdictDenied:
			return now, false, &waitingError{Why: "the cluster cannot be asked for an address: " + res.Why}
		case protocol.VerdictTaken, protocol.VerdictGone:
			return now, false, context.Cause(ctx)
		case protocol.VerdictLater, protocol.VerdictNone:
		}
		if announced == nil {
			announced = a.followRequest(watching, now)
		}
		if a.sched.Wait(ctx, requestPoll, announced) == sched.Ended {
			a.metrics.asked.WithLabelValues("waiting").Inc()
			return now, false, a.stillWaits(ctx, add, r, err)
		}
		ev.Kind = protocol.EventRecheck
		if now.UID == "" {
			ev.Kind = protocol.EventWant
		}
	}
}

// followRequest watches a request, as it was just seen, until ctx ends. announced has something
// whenever the request is answered or gone.
func (a *Agent) followRequest(ctx context.Context, r protocol.Right) (announced <-chan struct{}) {
	tell := make(chan struct{}, 1)
	a.background(func(context.Context) {
		err := a.cl.SubLeases.FollowSubLease(ctx, r.Name, r.Revision, func(s protocol.SubLease, exists bool) {
			if exists && !s.Answered() {
				return
			}
			sched.Signal(tell)
		})
		if err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "request not followed", "request", r.Name, "error", err)
		}
	})
	return tell
}

// commitGranted commits the ADD with what r was granted.
func (a *Agent) commitGranted(ctx context.Context, add *addCall, r protocol.Right) (store.Attachment, lack, error) {
	granted, ok := assign.Granted(add.demand.Slots, r.Request.Wants, r.Addrs)
	if !ok {
		return store.Attachment{}, lacksGrant(), nil
	}
	own := *add
	own.demand.Slots, own.demand.Granted, own.demand.Use = nil, granted, r.Name
	return a.commit(ctx, &own)
}

// dropRequests gives back the requests of an interface that has got its addresses
// otherwise.
func (a *Agent) dropRequests(names []string, has store.Attachment) {
	for _, name := range names {
		if name != has.Use {
			a.background(func(ctx context.Context) {
				a.rights.letGo(ctx, protocol.Right{Kind: protocol.RightRequest, Name: name})
			})
		}
	}
}

// expireRequests gives back the requests that no ADD has come for again.
func (a *Agent) expireRequests(ctx context.Context) {
	now := a.sched.Now()
	old := a.rights.requests.untried(func(tried protocol.Instant) bool { return now.Since(tried) >= a.cfg.KeepRequest })
	sched.Each(ctx, a.sched, a.cfg.Parallel, old, func(q *request) {
		used := false
		err := a.st.View(func(tx *store.Tx) error {
			var err error
			used, _, err = a.restedOn(tx, q.name, store.Key{})
			return err
		})
		if err != nil || used {
			a.rights.requests.try(q.name, q.by, now) // it is rechecked as much later
			return
		}
		a.rights.letGo(ctx, protocol.Right{Kind: protocol.RightRequest, Name: q.name})
		a.metrics.asked.WithLabelValues("given back").Inc()
	})
}

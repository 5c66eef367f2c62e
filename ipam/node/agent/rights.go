package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/leasestatus"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// rights are the leases, and the uses of claims and requests, that this node has. The store has the
// records; what memory has beside them follows each step.
type rights struct {
	*base
	reg       *registration
	pools     *pools
	locks     sched.Locks[string] // serialises the steps of one right
	schedule  schedule
	requests  requests
	unserving unservingLeases
	idle      idleTimes
	public    *leasestatus.Publisher
}

// maxSteps bounds how many calls it takes to settle a right: a right that changes under its
// holder's hands so often is rechecked later.
const maxSteps = 12

// errInUse stops a right from being let go while something rests on it.
var errInUse = errors.New("something rests on it")

// errUnanswered says that a right is not settled because the API server did not answer.
var errUnanswered = errors.New("the API server does not answer")

// A beginning returns the event of the first step by which a right is settled. It runs in that
// step's transaction, and may write what the event says. self is whom the step acts as, r the
// right as it is. If it returns an error nothing is written, and the right is not settled.
type beginning func(tx *store.Tx, self protocol.Self, r protocol.Right) (protocol.Event, error)

// beginWith returns a beginning with the event ev.
func (rs *rights) beginWith(ev protocol.Event) beginning {
	return func(tx *store.Tx, self protocol.Self, r protocol.Right) (protocol.Event, error) {
		switch {
		case ev.Kind == protocol.EventWant && r.Kind == protocol.RightRequest && r.Phase == protocol.Noted && r.UID != "":
			recheck := ev
			recheck.Kind = protocol.EventRecheck // it is there, and a create would only say so
			return recheck, nil
		case ev.Kind != protocol.EventLetGo:
			return ev, nil
		case r.Phase == protocol.Frozen: // pods of its time may run that no attachment tells of: see giveBackLost
			return ev, errInUse
		}
		if r.Phase == protocol.Held && !r.MayGo(self.Term) {
			if err := rs.pools.keptBack(r); err != nil {
				return ev, err
			}
		}
		return ifUnused(tx, r)
	}
}

// ifUnused returns the event that lets go of r, or errInUse if an attachment rests on it.
func ifUnused(tx *store.Tx, r protocol.Right) (protocol.Event, error) {
	used, err := inUse(tx, r)
	if used {
		err = errInUse
	}
	return protocol.Event{Kind: protocol.EventLetGo}, err
}

// settle steps a right, from the event that begin returns, until there is nothing to call: each
// step is a store transaction, each call is sent after its commit. fresh is the record to
// begin with where the store has none. A right that cannot be settled now is rechecked by
// itself.
func (rs *rights) settle(ctx context.Context, fresh protocol.Right, begin beginning) (protocol.Right, protocol.Result, error) {
	release, err := rs.locks.Lock(ctx, rs.sched, fresh.Name)
	if err != nil {
		return fresh, protocol.Result{Verdict: protocol.VerdictLater, Why: err.Error()}, err
	}
	defer release()
	return rs.steps(ctx, fresh, begin)
}

// settleForADD is settle for an ADD, whose context is ctx. The ADD waits no longer than ctx allows;
// what is begun goes on in the background. Once the ADD has ended, no further step is begun for it:
// a later ADD may have been answered with the right by then. The right stays locked all the while.
// A right that was found gone is begun anew, once. ended, if it is not nil, is called when nothing
// goes on any more.
func (rs *rights) settleForADD(ctx context.Context, fresh protocol.Right, begin beginning, ended func()) (protocol.Right, protocol.Result, error) {
	r, res := fresh, protocol.Result{Verdict: protocol.VerdictLater}
	var err error
	done := make(chan struct{})
	rs.background(func(running context.Context) {
		defer close(done)
		if ended != nil {
			defer ended()
		}
		var release func()
		if release, err = rs.locks.Lock(running, rs.sched, fresh.Name); err != nil {
			return
		}
		defer release()
		for range 2 {
			if err = context.Cause(ctx); err != nil {
				return
			}
			if r, res, err = rs.steps(running, fresh, begin); err != nil || res.Verdict != protocol.VerdictGone {
				return
			}
		}
	})
	if rs.sched.Wait(ctx, sched.Forever, done) != 0 {
		return fresh, protocol.Result{Verdict: protocol.VerdictLater}, context.Cause(ctx)
	}
	return r, res, err
}

// steps is settle for a caller that has locked the right.
func (rs *rights) steps(ctx context.Context, fresh protocol.Right, begin beginning) (protocol.Right, protocol.Result, error) {
	var refused protocol.Result // while the right is being given back
	var why string              // the last reason that a step gave
	var unanswered error
	var request protocol.SubLease // as the last answer showed it, of a request
	var answer protocol.Event
	var before *plannedRecheck // the one that was planned before the first call
	for i := range maxSteps {
		self, res, err := rs.step(ctx, fresh, begin)
		if err != nil {
			if i > 0 { // what the call has changed is not in the record
				rs.recheckIn(fresh.Name, rs.retryLater())
			}
			return fresh, protocol.Result{Verdict: protocol.VerdictLater, Why: err.Error()}, err
		}
		rs.reg.seen(fresh.Name, answer)
		if res.Verdict == protocol.VerdictRefused {
			refused = res
		}
		why = cmp.Or(res.Why, why)
		if res.Call == protocol.CallNone {
			res.Why = why
			rs.planNext(self, res, before)
			switch {
			case refused.Verdict == protocol.VerdictRefused:
				res.Verdict, res.Passes, res.Why = refused.Verdict, refused.Passes, refused.Why
			case res.Verdict == protocol.VerdictLater && unanswered != nil:
				return res.Next, res, unanswered
			}
			return res.Next, res, nil
		}
		if i == 0 { // what is planned from now on may be about what no answer shows
			before = rs.schedule.planned(fresh.Name)
		}
		ev, err := rs.call(ctx, self, res, &request)
		switch {
		case res.Call == protocol.CallFence && is[*restoreError](err): // not sent: there is nothing to find out
			rs.recheckIn(fresh.Name, retryAfter)
			return res.Next, protocol.Result{Next: res.Next, Verdict: protocol.VerdictLater, Why: err.Error()}, nil
		case ev.Outcome != protocol.Unknown, err == nil: // it has answered, if only that something has to come first
			unanswered = nil
		case is[*poolWaitsError](err), is[*restoreError](err):
			unanswered = err
		default:
			unanswered = fmt.Errorf("%s: %w: %s", fresh.Name, errUnanswered, ev.Why)
		}
		answer = ev
		begin = func(*store.Tx, protocol.Self, protocol.Right) (protocol.Event, error) { return ev, nil }
	}
	rs.recheckIn(fresh.Name, rs.retryLater())
	return fresh, protocol.Result{Verdict: protocol.VerdictLater, Why: fresh.Name + " changes too often"}, nil
}

// step runs one step in a store transaction, with everything that follows from it
// on this node.
func (rs *rights) step(ctx context.Context, fresh protocol.Right, begin beginning) (self protocol.Self, res protocol.Result, err error) {
	registered := rs.reg.registered()
	written := false
	err = rs.st.Update(ctx, func(tx *store.Tx) error {
		written = false
		id, err := tx.Identity()
		if err != nil {
			return err
		}
		self = protocol.Self{Node: rs.cfg.Node, Store: id.Store}
		if registered {
			self.Term = id.Term
		}
		was, known, err := tx.Right(fresh.Name)
		if err != nil {
			return err
		}
		if !known {
			was = fresh
			was.Phase = ""
		}
		ev, err := begin(tx, self, was)
		if err != nil {
			return err
		}
		ev.Now = cmp.Or(ev.Now, rs.sched.Now().Wall)
		if ev.Object.Used, err = used(tx, was, ev.Object.Ceded); err != nil {
			return err
		}
		res = protocol.Step(was, self, ev)
		err = rs.record(tx, was, known, res)
		if errors.Is(err, allocator.ErrOverlap) {
			// Pods here still use a block of another size, whose lease was lost: while
			// they do, this one gives nothing, and it must not be kept from others.
			why := fmt.Sprintf("a pod of this node still has an address of it, by a lease that was deleted: %v", err)
			res = protocol.Step(was, self, protocol.Event{Kind: protocol.EventLetGo, Now: ev.Now})
			res.Why = why
			err = rs.record(tx, was, known, res)
		}
		written = err == nil
		return err
	})
	switch {
	case err == nil:
		rs.follows(self, res)
	case written: // the disk may have it all the same, and nobody sends the call: what is ceded would be nobody's
		rs.recheckIn(fresh.Name, rs.retryLater())
	}
	return self, res, err
}

// letGo gives a right back if nothing rests on it. One that is Frozen stays.
func (rs *rights) letGo(ctx context.Context, r protocol.Right) {
	_, res, err := rs.settle(ctx, r, rs.beginWith(protocol.Event{Kind: protocol.EventLetGo}))
	rs.logLetGo(ctx, r, res, err)
}

func (rs *rights) logLetGo(ctx context.Context, r protocol.Right, res protocol.Result, err error) {
	switch {
	case errors.Is(err, errInUse), errors.Is(err, errUnanswered), is[*restoreError](err): // it is rechecked
	case err != nil:
		rs.log.WarnContext(ctx, "right not given back", "right", r.Name, "error", err)
	case res.Forget:
		rs.log.DebugContext(ctx, "right given back", "right", r.Name)
	}
}

// adoptStray takes up an object in this store's name that the store has no record
// of: a create that came late, from which nothing was given. It goes back.
func (rs *rights) adoptStray(ctx context.Context, r protocol.Right) {
	if _, known := rs.right(r.Name); known {
		return
	}
	unlock, err := rs.locks.Lock(ctx, rs.sched, r.Name)
	if err != nil {
		return
	}
	defer unlock()
	err = rs.st.Update(ctx, func(tx *store.Tx) error {
		if _, known, err := tx.Right(r.Name); err != nil || known {
			return err
		}
		r.Phase = protocol.Releasing // a read follows before anything is deleted
		return tx.PutRight(r)
	})
	if err != nil {
		rs.log.WarnContext(ctx, "stray right not taken up", "right", r.Name, "error", err)
		return
	}
	rs.log.InfoContext(ctx, "stray right found, giving it back", "right", r.Name)
	rs.recheckIn(r.Name, 0)
}

// endEarlier gives back soon this node's other use of a claim, which was met beside the one that is
// wanted: a claim has two names for uses. It does so only if this store has made it. The next list
// of the node's own objects, which would find it, too, may be an hour away. A lost store's use is
// the business of [losses], another machine's that of the dead-node rule.
func (rs *rights) endEarlier(ctx context.Context, s protocol.SubLease) {
	if s.Store != rs.st.ID() {
		return
	}
	rs.adoptStray(ctx, protocol.Right{Kind: protocol.RightUse, Name: s.Name, SubLeaseRight: protocol.SubLeaseRight{Use: s.Use}})
	rs.recheckIn(s.Name, 0)
}

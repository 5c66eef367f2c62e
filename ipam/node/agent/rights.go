package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// maxSteps bounds how many calls one drive makes: a right that changes under its
// holder's hands so often is looked at again later.
const maxSteps = 12

// errInUse stops a right from being let go while something rests on it.
var errInUse = errors.New("something rests on it")

// beginWith returns the beginning of a drive from ev on.
func (a *Agent) beginWith(ev protocol.Event) beginning {
	return func(tx *store.Tx, self protocol.Self, r protocol.Right) (protocol.Event, error) {
		switch {
		case ev.Kind == protocol.EventWant && r.Kind == protocol.RightRequest && r.Phase == protocol.Noted && r.UID != "":
			look := ev
			look.Kind = protocol.EventLook // it is there, and a create would only say so
			return look, nil
		case ev.Kind != protocol.EventLetGo:
			return ev, nil
		case r.Phase == protocol.Frozen: // pods of its time may run that no attachment tells of: see giveBackLost
			return ev, errInUse
		}
		if r.Phase == protocol.Held && !r.MayGo(self.Term) {
			if err := a.keptBack(r); err != nil {
				return ev, err
			}
		}
		return ev, unused(tx, r)
	}
}

// A beginning returns the event that a drive begins with. It runs in the
// transaction of the first step, and may write what the event says is so. self is whom
// that step acts as, and r the right as it is. Its error ends the drive, with nothing
// written.
type beginning func(tx *store.Tx, self protocol.Self, r protocol.Right) (protocol.Event, error)

// drive steps a right, from the event that begin returns, until there is nothing to call: each
// step is a store transaction, each call is sent after its commit. fresh is the record to
// begin with where the store has none. A right that cannot be settled now is looked at again
// by itself.
func (a *Agent) drive(ctx context.Context, fresh protocol.Right, begin beginning) (protocol.Right, protocol.Result, error) {
	release, err := a.rights.Lock(ctx, a.sched, fresh.Name)
	if err != nil {
		return fresh, protocol.Result{Verdict: protocol.VerdictLater, Why: err.Error()}, err
	}
	defer release()
	return a.driveLocked(ctx, fresh, begin)
}

// driveLocked is drive for a caller that has locked the right.
func (a *Agent) driveLocked(ctx context.Context, fresh protocol.Right, begin beginning) (protocol.Right, protocol.Result, error) {
	var refused protocol.Result // while the right is being given back
	var why string              // the last reason that a step gave
	var unanswered error
	var request protocol.SubLease // as the last answer showed it, of a request
	var answer protocol.Event
	var before *plannedLook // the look that was planned before the first call
	for i := range maxSteps {
		self, res, err := a.step(ctx, fresh, begin)
		if err != nil {
			if i > 0 { // what the call has changed is not in the record
				a.lookIn(fresh.Name, a.retryLater())
			}
			return fresh, protocol.Result{Verdict: protocol.VerdictLater, Why: err.Error()}, err
		}
		a.seen(fresh.Name, answer)
		if res.Verdict == protocol.VerdictRefused {
			refused = res
		}
		why = cmp.Or(res.Why, why)
		if res.Call == protocol.CallNone {
			res.Why = why
			a.settle(self, res, before)
			switch {
			case refused.Verdict == protocol.VerdictRefused:
				res.Verdict, res.Passes, res.Why = refused.Verdict, refused.Passes, refused.Why
			case res.Verdict == protocol.VerdictLater && unanswered != nil:
				return res.Next, res, unanswered
			}
			return res.Next, res, nil
		}
		if i == 0 { // what is planned from now on may be about what no answer shows
			before = a.schedule.planned(fresh.Name)
		}
		ev, err := a.call(ctx, self, res, &request)
		switch {
		case res.Call == protocol.CallFence && is[*withheldError](err): // not sent: there is nothing to find out
			a.lookIn(fresh.Name, retryAfter)
			return res.Next, protocol.Result{Next: res.Next, Verdict: protocol.VerdictLater, Why: err.Error()}, nil
		case ev.Outcome != protocol.Unknown, is[*awaitedError](err):
			unanswered = nil
		case is[*poolWaitsError](err):
			unanswered = err
		default:
			unanswered = fmt.Errorf("%s: %w: %s", fresh.Name, errUnanswered, ev.Why)
		}
		answer = ev
		begin = func(*store.Tx, protocol.Self, protocol.Right) (protocol.Event, error) { return ev, nil }
	}
	a.lookIn(fresh.Name, a.retryLater())
	return fresh, protocol.Result{Verdict: protocol.VerdictLater, Why: fresh.Name + " changes too often"}, nil
}

// retryAfter is when a right that could not be settled is looked at again.
const retryAfter = 5 * time.Second

// retryLater is retryAfter, or up to half of it sooner: an API server that comes back
// answers all agents at once, and must not have them back all at once.
func (a *Agent) retryLater() time.Duration { return retryAfter - sched.N(a.sched, retryAfter/2) }

// frozenLook is how often a frozen right is looked at: somebody may have deleted
// it, or taken it over.
const frozenLook = 10 * time.Minute

// settle plans the next look at a right that a drive has left, whose last step self
// made. The look that was planned before the drive asked anything is superfluous if the right is
// settled.
func (a *Agent) settle(self protocol.Self, res protocol.Result, before *plannedLook) {
	r, now := res.Next, a.sched.Now().Wall
	switch {
	case res.Forget || res.Verdict == protocol.VerdictServes:
		a.schedule.drop(r.Name, before)
	case res.Verdict == protocol.VerdictRefused && r.Phase == protocol.Held:
		a.schedule.drop(r.Name, before) // a renewal was refused; what rests on it goes on
	case r.Kind == protocol.RightUse && r.Serves(self.Term):
		a.lookIn(r.Name, time.Minute) // a renewal has to wait; likewise
	case r.Kind == protocol.RightRequest && r.Phase == protocol.Noted && r.UID != "":
		a.schedule.drop(r.Name, before) // it waits for the controller: its ADD watches it
	case r.Phase == protocol.Noted && r.UID != "":
		a.lookIn(r.Name, retryAfter) // it is there, and only waits to be confirmed
	case r.Phase == protocol.Noted && self.Term == 0:
		a.lookIn(r.Name, retryAfter) // nothing could be asked: that was no look
	case r.Phase == protocol.Noted:
		if at, ok := protocol.NextLook(r.NotedAt, now); ok {
			a.lookIn(r.Name, at.Sub(now))
		} else {
			a.lookIn(r.Name, time.Minute)
		}
	case r.Phase == protocol.Lost:
		a.lookIn(r.Name, time.Minute)
	case r.Phase == protocol.Frozen: // it waits for pods to end, not for the API server
		a.lookIn(r.Name, frozenLook)
	default:
		a.lookIn(r.Name, a.retryLater())
	}
	if taken := res.Verdict == protocol.VerdictTaken || res.Verdict == protocol.VerdictRefused; taken && r.Phase == protocol.Lost && !cededWhole(r) {
		a.sayLost(r, res.Why)
	}
}

// lookIn plans a look at a right in d.
func (a *Agent) lookIn(name string, d time.Duration) {
	a.schedule.at(name, a.sched.Now().Boot+d)
}

// errUnanswered says that a drive ended because the API server did not answer.
var errUnanswered = errors.New("the API server does not answer")

// step runs one step in a store transaction, with everything that follows from it
// on this node.
func (a *Agent) step(ctx context.Context, fresh protocol.Right, begin beginning) (self protocol.Self, res protocol.Result, err error) {
	registered := a.registered()
	written := false
	err = a.st.Update(ctx, func(tx *store.Tx) error {
		written = false
		id, err := tx.Identity()
		if err != nil {
			return err
		}
		self = protocol.Self{Node: a.cfg.Node, Store: id.Store}
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
		ev.Now = cmp.Or(ev.Now, a.sched.Now().Wall)
		if ev.Object.Used, err = used(tx, was, ev.Object.Ceded); err != nil {
			return err
		}
		res = protocol.Step(was, self, ev)
		err = a.record(tx, was, known, res)
		if errors.Is(err, allocator.ErrOverlap) {
			// Pods here still use a block of another size, whose lease was lost: while
			// they do, this one gives nothing, and it must not be kept from others.
			why := fmt.Sprintf("a pod of this node still has an address of it, by a lease that was deleted: %v", err)
			res = protocol.Step(was, self, protocol.Event{Kind: protocol.EventLetGo, Now: ev.Now})
			res.Why = why
			err = a.record(tx, was, known, res)
		}
		written = err == nil
		return err
	})
	switch {
	case err == nil:
		a.follows(self, res)
	case written: // the disk may have it all the same, and nobody sends the call: what is ceded would be nobody's
		a.lookIn(fresh.Name, a.retryLater())
	}
	return self, res, err
}

// follows keeps what memory has of a right with what a step has recorded.
func (a *Agent) follows(self protocol.Self, res protocol.Result) {
	if res.Forget { // another of the name is not idle since then
		a.idle.end(res.Next.Name)
	}
	switch res.Next.Kind {
	case protocol.RightLease:
		a.unserving.follow(self.Term, res)
	case protocol.RightRequest:
		a.requests.follow(res, a.sched.Now())
	case protocol.RightUse:
	}
}

// unused returns errInUse if an attachment rests on r.
func unused(tx *store.Tx, r protocol.Right) error {
	switch r.Kind {
	case protocol.RightUse, protocol.RightRequest:
		for _, err := range tx.OfUse(r.Name) {
			if err != nil {
				return err
			}
			return errInUse
		}
	case protocol.RightLease:
		space := allocator.NewSpace(tx.Table(r.Pool), nil)
		open, err := space.IsOpen(r.Block)
		if err != nil || !open {
			return err
		}
		for _, err := range space.Addresses(r.Block) {
			if err != nil {
				return err
			}
			return errInUse
		}
	}
	return nil
}

// used returns those of addrs, of the block of a lease that is Held, which attachments have.
func used(tx *store.Tx, r protocol.Right, addrs []netip.Addr) (taken []netip.Addr, err error) {
	if r.Kind != protocol.RightLease || r.Phase != protocol.Held {
		return nil, nil
	}
	space := allocator.NewSpace(tx.Table(r.Pool), nil)
	for _, x := range addrs {
		state, err := space.State(x)
		if err != nil {
			return nil, err
		}
		if state == allocator.Taken {
			taken = append(taken, x)
		}
	}
	return taken, nil
}

// record writes the outcome of a step: the right, and of a lease whether its
// block gives addresses.
func (a *Agent) record(tx *store.Tx, was protocol.Right, known bool, res protocol.Result) error {
	if was.Kind == protocol.RightLease {
		if err := a.openBlock(tx, was, res); err != nil {
			return err
		}
	}
	if res.Forget {
		if !known {
			return nil
		}
		return tx.DeleteRight(was.Name)
	}
	return tx.PutRight(res.Next)
}

// openBlock makes the node's allocation state follow a lease: its block is open
// while the lease is Held or Frozen, or Lost with attachments on it, and what the
// lease has ceded is barred in it. Whether addresses are given out of an open block,
// [protocol.Right.Serves] says at each ADD.
func (a *Agent) openBlock(tx *store.Tx, was protocol.Right, res protocol.Result) error {
	stays := !res.Forget && slices.Contains([]protocol.Phase{protocol.Held, protocol.Lost, protocol.Frozen}, res.Next.Phase)
	shape, err := a.shapeOf(tx, was.Pool)
	if err != nil {
		return err
	}
	space := allocator.NewSpace(tx.Table(was.Pool), shape)
	open, err := space.IsOpen(was.Block)
	switch {
	case err != nil || !open && !stays:
		return err
	case !stays:
		return space.Close(was.Block)
	case !open:
		err := space.Open(was.Block)
		if res.Next.Phase == protocol.Frozen && errors.Is(err, allocator.ErrOverlap) {
			return nil // of a pool that has other blocks by now: nothing is given out of it in any case
		}
		if err != nil {
			return err
		}
		was.Ceded = nil // nothing is barred in it yet
	}
	return a.bar(space, was, res.Next)
}

// bar brings what is barred in an open block from what its lease had ceded to what
// it has.
func (a *Agent) bar(space allocator.Space, was, now protocol.Right) error {
	for _, x := range was.Ceded {
		if slices.Contains(now.Ceded, x) {
			continue
		}
		if err := space.Bar(x, false); err != nil {
			return err
		}
	}
	for _, x := range now.Ceded {
		if slices.Contains(was.Ceded, x) {
			continue
		}
		err := space.Bar(x, true)
		if errors.Is(err, allocator.ErrTaken) { // the pod that has it keeps it: see [protocol.Object]
			a.log.Error("an address in use is ceded in its lease", "lease", was.Name, "address", x, "takenBack", slices.Contains(now.Taking, x))
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// call sends a step's call, of the step's self, and returns its answer, and what was
// wrong with it. Of a request it keeps what the answer has shown for the call after it.
func (a *Agent) call(ctx context.Context, self protocol.Self, res protocol.Result, request *protocol.SubLease) (ev protocol.Event, err error) {
	r, asked := res.Next, a.sched.Now().Wall
	ev = protocol.Event{Kind: protocol.EventAnswer, Call: res.Call}
	switch r.Kind {
	case protocol.RightLease:
		ev.Object, ev.Outcome, err = a.callLease(ctx, self, r, res.Call)
	case protocol.RightUse:
		ev, err = a.callUse(ctx, self, ev, r)
	case protocol.RightRequest:
		ev, err = a.callRequest(ctx, self, r, res.Call, request)
	}
	a.metrics.apiCall(r.Kind, res.Call, ev.Outcome)
	ev.Now = asked
	if err != nil {
		ev.Why = err.Error()
	}
	return ev, err
}

func (a *Agent) term() int64 { return a.current().Term }

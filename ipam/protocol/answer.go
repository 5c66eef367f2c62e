package protocol

import (
	"fmt"
	"slices"
)

// answer is Step for the outcome of a call.
func answer(r Right, self Self, ev Event) Result {
	switch ev.Call {
	case CallCreate:
		return created(r, ev)
	case CallRead:
		return read(r, self, ev)
	case CallConfirm:
		return confirmed(r, self, ev)
	case CallFence:
		return fenced(r, self, ev)
	case CallDelete:
		// Whatever it answered, only a read shows that the object is gone: a
		// finalizer of somebody's may keep it.
		return Result{Next: r, Call: CallRead}
	case CallNone:
	}
	panic(fmt.Sprintf("protocol: answer to call %v of %s", ev.Call, r.Name))
}

func created(r Right, ev Event) Result {
	switch ev.Outcome {
	case Done:
		// Also where it had vanished under a Held record: what was true of the pool
		// or the claim may not be so any more.
		r.take(ev.Object)
		return Result{Next: r, Call: CallConfirm}
	case Exists:
		// No earlier create of it is in doubt: it is another's. What is this store's, and
		// the store has forgotten, the hourly list of the node's own leases finds.
		if r.Kind == RightLease && r.Phase == Noted && r.UID == "" && !r.Doubtful {
			return Result{Next: r, Forget: true, Verdict: VerdictTaken, Why: r.Name + " is held by another"}
		}
		return Result{Next: r, Call: CallRead}
	case Refused:
		// A definite no: nothing was or will be created by this call. If an
		// earlier one's object has been seen, it is still there.
		if r.Phase == Noted && r.UID == "" {
			return Result{Next: r, Forget: !r.Doubtful, Verdict: VerdictDenied, Why: ev.Why}
		}
		return later(r, ev.Why)
	case Unknown, NotFound, Conflict:
		return later(r, ev.Why)
	}
	panic(fmt.Sprintf("protocol: create of %s: %v", r.Name, ev.Outcome))
}

func read(r Right, self Self, ev Event) Result {
	switch ev.Outcome {
	case NotFound:
		return readGone(r, ev)
	case Done:
		if !self.owns(r, ev.Object) || !ev.Object.Matches {
			return readOthers(r, ev)
		}
		if ev.Object.Protocol > Version {
			return later(r, fmt.Sprintf("%s was written by a newer Tenure (protocol %d; this one knows %d)", r.Name, ev.Object.Protocol, Version))
		}
		return readOwn(r, self, ev.Object)
	case Unknown, Exists, Conflict, Refused:
		return later(r, ev.Why)
	}
	panic(fmt.Sprintf("protocol: read of %s: %v", r.Name, ev.Outcome))
}

// readGone: the object does not exist now.
func readGone(r Right, ev Event) Result {
	switch r.Phase {
	case Noted:
		// A create of ours may still be on its way. If the clock has gone back, its
		// age is not known: it counts anew.
		if ev.Now.Before(r.NotedAt) {
			r.NotedAt = ev.Now
		}
		r.take(Object{})
		if ev.Now.Sub(r.NotedAt) < LastRecheck {
			return later(r, r.Name+" is not there yet, or not any more")
		}
		return Result{Next: r, Forget: true, Verdict: VerdictGone}
	case Held:
		// Somebody deleted it. Until it is ours again it must not serve: another
		// node may create it first.
		r.take(Object{})
		r.Term = 0
		if r.Kind == RightRequest { // what it was granted goes to others: another UID would get another grant
			r.Phase = Lost
			return Result{Next: r, Verdict: VerdictTaken, Why: r.Name + " was deleted, and what it was granted with it"}
		}
		return Result{Next: r, Call: CallCreate}
	case Releasing:
		return Result{Next: r, Forget: true, Verdict: VerdictGone}
	case Lost:
		return later(r, r.Name+" was deleted while this node had it")
	case Frozen:
		r.take(Object{})
		r.Phase = Lost
		return Result{Next: r, Verdict: VerdictTaken, Why: r.Name + " was deleted"}
	}
	panic(fmt.Sprintf("protocol: %s is gone in phase %q", r.Name, r.Phase))
}

// readOthers: the object exists and is not this store's.
func readOthers(r Right, ev Event) Result {
	why := fmt.Sprintf("%s is held by another (node %q, store %q)", r.Name, ev.Object.Node, ev.Object.Store)
	switch r.Phase {
	case Noted, Releasing:
		return Result{Next: r, Forget: true, Verdict: VerdictTaken, Why: why}
	case Held, Lost, Frozen:
		r.Phase, r.Term = Lost, 0
		return Result{Next: r, Verdict: VerdictTaken, Why: why}
	}
	panic(fmt.Sprintf("protocol: %s is another's in phase %q", r.Name, r.Phase))
}

// readOwn: the object exists and is this store's.
func readOwn(r Right, self Self, o Object) Result {
	switch r.Phase {
	case Noted:
		// An earlier create of ours. Nothing was ever given from it: that needs
		// the record to be Held.
		r.take(o)
		if o.Deleting {
			return later(r, r.Name+" is being deleted")
		}
		if r.Asserted != self.Term || o.Stale {
			return again(r)
		}
		return Result{Next: r, Call: CallConfirm}
	case Held:
		if o.UID != r.UID || o.Term != r.Term && r.Usable(self.Term) {
			// It was deleted, and a create of ours came late; or it does not say
			// any more what it served by. It is confirmed like a new one.
			r.Term = 0
		}
		r.take(o)
		if o.Deleting {
			return vanishing(r)
		}
		if r.awaits(self) {
			return Result{Next: r, Call: CallConfirm} // it shows the fencing write of this term
		}
		if !r.Usable(self.Term) { // a fencing write is due, or in doubt: one that succeeds decides
			return again(r)
		}
		if o.Stale { // another node judges siblings by what the use says: first that, then the confirmation
			return again(r)
		}
		if r.Kind == RightUse {
			return Result{Next: r, Call: CallConfirm}
		}
		if !r.says(o) {
			return again(r)
		}
		return Result{Next: r, Verdict: VerdictUsable}
	case Releasing:
		// Under another UID it is a create of ours that came late: as empty.
		r.take(o)
		if o.Granted && !o.Deleting { // it cannot be given back: take it back into service
			return again(r)
		}
		return later(r, r.Name+" is still there")
	case Lost:
		// The cluster gave it back to this store by hand; only a person does so.
		return later(r, r.Name+" names this store again")
	case Frozen:
		r.take(o)
		return later(r, frozen(r))
	}
	panic(fmt.Sprintf("protocol: %s is ours in phase %q", r.Name, r.Phase))
}

func confirmed(r Right, self Self, ev Event) Result {
	switch ev.Outcome {
	case Done:
		if r.Kind == RightRequest {
			// An answer is written once: this is not what was answered.
			if r.Addrs != nil && !slices.Equal(r.Addrs, ev.Addrs) {
				r.Phase, r.Term = Lost, 0
				return Result{Next: r, Verdict: VerdictTaken, Why: r.Name + " has another answer than before"}
			}
			r.Addrs, r.Leases = ev.Addrs, ev.Leases
		}
		r.Phase = Held
		return usable(r, self)
	case Refused:
		if r.Phase == Held {
			return refusedHeld(r, self, ev)
		}
		r.Phase, r.Term = Releasing, 0
		res := Result{Next: r, Call: CallDelete, Verdict: VerdictRefused, Passes: ev.Passes, Why: ev.Why}
		if r.Granted { // a later look tells whether it can go
			res.Call = CallNone
		}
		return res
	case Unknown, NotFound, Exists, Conflict:
		if r.Phase == Held && r.Term != self.Term && ev.Keeps {
			return keep(r, self, later(r, ev.Why))
		}
		return later(r, ev.Why)
	}
	panic(fmt.Sprintf("protocol: confirmation of %s: %v", r.Name, ev.Outcome))
}

// refusedHeld: attachments may rest on r, so it is not deleted under them. A use that
// was only renewed goes on for those. So does one of an earlier term whose addresses
// are still its claim's ([UseEvidence.Keeps]): while its object is there, nobody frees
// them. A lease that had vanished, or a use that has nothing any more, is lost.
func refusedHeld(r Right, self Self, ev Event) Result {
	refused := Result{Next: r, Verdict: VerdictRefused, Passes: ev.Passes, Why: ev.Why}
	switch {
	case r.Term == self.Term:
		return refused
	case ev.Keeps:
		return keep(r, self, refused)
	}
	refused.Next.Phase = Lost
	return refused
}

// keep has what rests on r go on in the term that its object carries, though nothing new
// may, as res says.
func keep(r Right, self Self, res Result) Result {
	served := usable(r, self)
	if served.Verdict != VerdictUsable {
		return served
	}
	res.Next = served.Next
	return res
}

func fenced(r Right, self Self, ev Event) Result {
	switch ev.Outcome {
	case Done:
		if !self.owns(r, ev.Object) || !ev.Object.Matches { // the record was another node's, or another claim's
			return readOthers(r, ev)
		}
		// No write before this one can land any more: what it says is so.
		r.Ceded, r.Taking = without(r.Ceded, without(r.Taking, ev.Object.Ceded)), nil
		r.take(ev.Object)
		if ev.Object.Store == self.Store {
			r.Store = ""
		}
		if ev.Object.Deleting {
			return vanishing(r)
		}
		if r.Phase == Held && r.Kind == RightLease && r.Term != 0 { // the one that was confirmed
			if !r.says(ev.Object) { // more was ceded while it was under way
				return again(r)
			}
			return usable(r, self)
		}
		// A right given away, or the use of a claim in a new term: what it rests
		// on may have changed meanwhile.
		return Result{Next: r, Call: CallConfirm}
	case Conflict, NotFound, Unknown:
		return Result{Next: r, Call: CallRead}
	case Refused, Exists:
		return later(r, ev.Why)
	}
	panic(fmt.Sprintf("protocol: fencing write of %s: %v", r.Name, ev.Outcome))
}

// vanishing: the object was deleted, by whoever, and somebody's finalizer keeps it.
// No write can save it, and once the finalizer goes another may be faster to create
// it again: until then it serves nobody.
func vanishing(r Right) Result {
	r.Term = 0
	return later(r, r.Name+" is being deleted")
}

// take records what an answer showed of the object. What it shows as ceded is so;
// what it does not show may be on its way, or have been taken back by a write
// whose answer was lost. What is in use is taken back before the cluster grants it.
func (r *Right) take(o Object) {
	r.UID, r.Revision, r.Asserted, r.Writes, r.Granted, r.Grants = o.UID, o.Revision, o.Term, o.Writes, o.Granted, o.Grants
	r.Deleting = o.Deleting
	r.Ceded, r.Taking = union(r.Ceded, o.Ceded), without(union(r.Taking, o.Used), o.Grants)
}

// says reports whether o has ceded what r has, so that nothing is to be written.
func (r LeaseRight) says(o Object) bool { return len(r.Taking) == 0 && slices.Equal(r.Ceded, o.Ceded) }

func usable(r Right, self Self) Result {
	switch { // the term of the call may have ended while it was under way
	case self.Term == 0:
		return later(r, noRegistration)
	case r.Asserted != self.Term:
		if r.Usable(self.Term) {
			r.Term = 0
		}
		return again(r)
	}
	r.Term = r.Asserted
	return Result{Next: r, Verdict: VerdictUsable}
}

func later(r Right, why string) Result { return Result{Next: r, Verdict: VerdictLater, Why: why} }

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
		// Whatever the delete answered, only a read shows that the object is gone: a finalizer
		// may keep it.
		return Result{Next: r, Call: CallRead}
	case CallNone:
	}
	panic(fmt.Sprintf("protocol: answer to call %v of %s", ev.Call, r.Name))
}

func created(r Right, ev Event) Result {
	switch ev.Outcome {
	case Done:
		// This is so for a Held right that had vanished, too: the pool or the claim may have
		// changed since.
		r.take(ev.Object)
		return Result{Next: r, Call: CallConfirm}
	case Exists:
		// No earlier create is in doubt, so another has the lease. Should it be a lease of this
		// store that the store has forgotten, the hourly list of the node's own leases finds it.
		if r.Kind == RightLease && r.Phase == Noted && r.UID == "" && !r.Doubtful {
			return Result{Next: r, Forget: true, Verdict: VerdictTaken, Why: r.Name + " is held by another"}
		}
		return Result{Next: r, Call: CallRead}
	case Refused:
		// This call has created nothing and will not. If an object of an earlier create has been
		// seen, it is still there.
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
		// A create of ours may still be on its way. If the clock has gone back, its age is not
		// known, and counts from now.
		if ev.Now.Before(r.NotedAt) {
			r.NotedAt = ev.Now
		}
		r.take(Object{})
		if ev.Now.Sub(r.NotedAt) < LastRecheck {
			return later(r, r.Name+" is not there yet, or not any more")
		}
		return Result{Next: r, Forget: true, Verdict: VerdictGone}
	case Held:
		// Somebody deleted it. It must not be used until it is ours again: another node may
		// create it first.
		r.take(Object{})
		r.Term = 0
		if r.Kind == RightRequest { // its grants go to others, and a new object would get other grants
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
			// It was deleted, and a create of ours came late; or it does not carry the term any
			// more in which it was usable. It is confirmed like a new one.
			r.Term = 0
		}
		r.take(o)
		if o.Deleting {
			return vanishing(r)
		}
		if r.awaits(self) {
			return Result{Next: r, Call: CallConfirm} // the fencing write of this term has landed
		}
		if !r.Usable(self.Term) { // a fencing write is due, or one is in doubt
			return again(r)
		}
		if o.Stale { // another node judges siblings by the use, so it is written before it is confirmed
			return again(r)
		}
		if r.Kind == RightUse {
			return Result{Next: r, Call: CallConfirm}
		}
		if !r.cededAs(o) {
			return again(r)
		}
		return Result{Next: r, Verdict: VerdictUsable}
	case Releasing:
		// Under another UID it is a create of ours that came late, and nothing is granted on it.
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
			// An answer is written once, so this is an answer to another object.
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
		if r.Granted { // a later recheck shows whether it can be deleted
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

// refusedHeld: the confirmation of a Held right was refused. Attachments may rest on it, so it is
// not deleted. A use that was only renewed stays usable for them. So does a use of an earlier term
// whose addresses are still granted to its claim ([UseEvidence.Keeps]): while its object is there,
// nobody frees them. A lease that had vanished, or a use whose addresses are gone, is lost.
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

// keep makes r usable for the attachments that rest on it, in the term that its object carries. res
// is the verdict for new attachments.
func keep(r Right, self Self, res Result) Result {
	kept := usable(r, self)
	if kept.Verdict != VerdictUsable {
		return kept
	}
	res.Next = kept.Next
	return res
}

func fenced(r Right, self Self, ev Event) Result {
	switch ev.Outcome {
	case Done:
		if !self.owns(r, ev.Object) || !ev.Object.Matches { // the record was another node's, or another claim's
			return readOthers(r, ev)
		}
		// No earlier write can land any more, so the lease is as this one has written it.
		r.Ceded, r.Taking = without(r.Ceded, without(r.Taking, ev.Object.Ceded)), nil
		r.take(ev.Object)
		if ev.Object.Store == self.Store {
			r.Store = ""
		}
		if ev.Object.Deleting {
			return vanishing(r)
		}
		if r.Phase == Held && r.Kind == RightLease && r.Term != 0 { // the one that was confirmed
			if !r.cededAs(ev.Object) { // more was ceded while it was under way
				return again(r)
			}
			return usable(r, self)
		}
		// For a right that was given away, and for a use in a new term, the pool or the claim may
		// have changed meanwhile.
		return Result{Next: r, Call: CallConfirm}
	case Conflict, NotFound, Unknown:
		return Result{Next: r, Call: CallRead}
	case Refused, Exists:
		return later(r, ev.Why)
	}
	panic(fmt.Sprintf("protocol: fencing write of %s: %v", r.Name, ev.Outcome))
}

// vanishing: somebody deleted the object, and a finalizer keeps it. No write can save it. When the
// finalizer goes, another may create it first, so it is not usable.
func vanishing(r Right) Result {
	r.Term = 0
	return later(r, r.Name+" is being deleted")
}

// take records what an answer showed of the object. Addresses that it shows as ceded are ceded.
// Others stay in r.Ceded: the write that cedes them may be on its way, or a write may have taken
// them back whose answer was lost. Addresses that pods use are taken back before the cluster grants
// them.
func (r *Right) take(o Object) {
	r.UID, r.Revision, r.Asserted, r.Writes, r.Granted, r.Grants = o.UID, o.Revision, o.Term, o.Writes, o.Granted, o.Grants
	r.Deleting = o.Deleting
	r.Ceded, r.Taking = union(r.Ceded, o.Ceded), without(union(r.Taking, o.Used), o.Grants)
}

// cededAs is cededAsListed for what an answer showed of the lease: if it is true, nothing is to be
// written.
func (r LeaseRight) cededAs(o Object) bool {
	return len(r.Taking) == 0 && slices.Equal(r.Ceded, o.Ceded)
}

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

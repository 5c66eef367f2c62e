package protocol

import "fmt"

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
		return Result{Next: r, Call: CallRead}
	case Refused:
		// A definite no: nothing was or will be created by this call. If an
		// earlier one's object has been seen, it is still there.
		if r.Phase == Noted && r.UID == "" {
			return Result{Next: r, Forget: true, Verdict: VerdictRefused, Why: ev.Why}
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
		if !self.owns(ev.Object) || !ev.Object.Matches {
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
		r.UID, r.Revision, r.Granted = "", "", false
		if ev.Now.Sub(r.NotedAt) < LooksLast {
			return later(r, "")
		}
		return Result{Next: r, Forget: true, Verdict: VerdictGone}
	case Held:
		// Somebody deleted it. Until it is ours again it must not serve: another
		// node may create it first.
		r.Term, r.UID, r.Revision, r.Granted = 0, "", "", false
		return Result{Next: r, Call: CallCreate}
	case Releasing:
		return Result{Next: r, Forget: true, Verdict: VerdictGone}
	case Lost:
		return later(r, "")
	}
	panic(fmt.Sprintf("protocol: %s is gone in phase %q", r.Name, r.Phase))
}

// readOthers: the object exists and is not this store's.
func readOthers(r Right, ev Event) Result {
	why := fmt.Sprintf("%s is held by another (node %q, store %q)", r.Name, ev.Object.Node, ev.Object.Store)
	switch r.Phase {
	case Noted, Releasing:
		return Result{Next: r, Forget: true, Verdict: VerdictTaken, Why: why}
	case Held, Lost:
		r.Phase = Lost
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
		if r.Said != self.Term || o.Stale {
			return again(r)
		}
		return Result{Next: r, Call: CallConfirm}
	case Held:
		if o.UID != r.UID || o.Term != r.Term && r.Serves(self.Term) {
			// It was deleted, and a create of ours came late; or it does not say
			// any more what it served by. It is confirmed like a new one.
			r.Term = 0
		}
		r.take(o)
		if !r.Serves(self.Term) { // a fencing write is due, or in doubt: one that succeeds decides
			return again(r)
		}
		if o.Stale { // another node judges siblings by what the use says: first that, then the confirmation
			return again(r)
		}
		if r.Kind == RightUse {
			return Result{Next: r, Call: CallConfirm}
		}
		return Result{Next: r, Verdict: VerdictServes}
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
	}
	panic(fmt.Sprintf("protocol: %s is ours in phase %q", r.Name, r.Phase))
}

func confirmed(r Right, self Self, ev Event) Result {
	switch ev.Outcome {
	case Done:
		r.Phase = Held
		return serve(r, self)
	case Refused:
		if r.Phase == Held {
			// Attachments may rest on it: it is not deleted under them. A use that
			// was only renewed goes on for those; a right that had vanished, or a
			// use of an earlier term, is not ours any more.
			if r.Term != self.Term {
				r.Phase = Lost
			}
			return Result{Next: r, Verdict: VerdictRefused, Why: ev.Why}
		}
		r.Phase, r.Term = Releasing, 0
		res := Result{Next: r, Call: CallDelete, Verdict: VerdictRefused, Why: ev.Why}
		if r.Granted { // a later look tells whether it can go
			res.Call = CallNone
		}
		return res
	case Unknown, NotFound, Exists, Conflict:
		return later(r, ev.Why)
	}
	panic(fmt.Sprintf("protocol: confirmation of %s: %v", r.Name, ev.Outcome))
}

func fenced(r Right, self Self, ev Event) Result {
	switch ev.Outcome {
	case Done:
		if !self.owns(ev.Object) || !ev.Object.Matches { // the record was another node's, or another claim's
			return readOthers(r, ev)
		}
		r.take(ev.Object)
		if r.Phase == Held && r.Kind == RightLease && r.Term != 0 { // the one that was confirmed
			return serve(r, self)
		}
		if r.Phase != Held && ev.Object.Deleting { // a delete of ours came first, and somebody's finalizer keeps it
			return later(r, r.Name+" is being deleted")
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

// take records what an answer showed of the object.
func (r *Right) take(o Object) {
	r.UID, r.Revision, r.Said, r.Turn, r.Granted = o.UID, o.Revision, o.Term, o.Turn, o.Granted
}

func serve(r Right, self Self) Result {
	switch { // the term of the call may have ended while it was under way
	case self.Term == 0:
		return later(r, noSeat)
	case r.Said != self.Term:
		if r.Serves(self.Term) {
			r.Term = 0
		}
		return again(r)
	}
	r.Term = r.Said
	return Result{Next: r, Verdict: VerdictServes}
}

func later(r Right, why string) Result { return Result{Next: r, Verdict: VerdictLater, Why: why} }

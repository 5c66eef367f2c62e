package protocol

import (
	"fmt"
	"net/netip"
	"time"
)

// Call is what to ask of the API server next about one right. There is at most
// one call after each step, and it is sent only after the step's record is on
// disk.
type Call uint8

// The calls.
const (
	// CallNone: nothing to do now.
	CallNone Call = iota
	// CallCreate creates the object, named, with this store and the registration's term.
	CallCreate
	// CallRead reads the object live.
	CallRead
	// CallConfirm reads live whatever must be true before the right is usable: the pool of a
	// lease; the claim, the grants and the other use of a use.
	CallConfirm
	// CallFence updates the object by compare-and-swap, with the write counter raised and the
	// registration's term.
	CallFence
	// CallDelete deletes the object, with UID and resourceVersion.
	CallDelete
)

func (c Call) String() string {
	names := [...]string{"None", "Create", "Read", "Confirm", "Fence", "Delete"}
	if int(c) >= len(names) {
		return fmt.Sprintf("Call(%d)", uint8(c))
	}
	return names[c]
}

// EventKind says what happened to a right.
type EventKind uint8

// The events.
const (
	// EventWant: somebody needs the right to be usable.
	EventWant EventKind = iota
	// EventRecheck: the right is to be checked again: at start, after a new term, when a watch
	// reported a change, and 1, 5 and 30 minutes after a create in doubt.
	EventRecheck
	// EventRenew: somebody needs a use that is Held for another attachment: it is
	// written and confirmed anew, for Use.
	EventRenew
	// EventLetGo: nothing needs the right. The caller has made sure, in the
	// transaction of this step, that no attachment rests on it, and of a Frozen one
	// that nothing of its time runs any more.
	EventLetGo
	// EventCede: the addresses Addrs of a lease, which nobody has, are to be the
	// cluster's. The caller, if in a term, has barred them, in this step's transaction.
	EventCede
	// EventTakeBack: the addresses Addrs of a lease that were ceded are needed
	// here. They may be used when the answer says that they are not in
	// [Right.Ceded] any more.
	EventTakeBack
	// EventAnswer: a call returned.
	EventAnswer
)

func (k EventKind) String() string {
	names := [...]string{"Want", "Recheck", "Renew", "LetGo", "Cede", "TakeBack", "Answer"}
	if int(k) >= len(names) {
		return fmt.Sprintf("EventKind(%d)", uint8(k))
	}
	return names[k]
}

// An Event is what happened to a right.
type Event struct {
	Kind EventKind
	// Now is the event's time, for rechecks after a create in doubt. Of an answer it is the time
	// of the call.
	Now time.Time

	// Of a renewal, Use is what the use is for from now on, and Addrs and Leases, where given,
	// are what it will be answered with. Of a request's confirmation, Addrs and Leases are what
	// was granted. Of EventCede and EventTakeBack, Addrs are the addresses.
	Use    *Use
	Addrs  []netip.Addr
	Leases []string

	// Of an answer: the call, its outcome, and the object as the API server showed it, where
	// Outcome is Done or the call was a read.
	Call    Call
	Outcome Outcome
	Object  Object
	// Keeps says that a use which was not confirmed, or not yet, still keeps its addresses for
	// the pods that have them: see [UseEvidence.Keeps].
	Keeps  bool
	Passes bool // another try to confirm the use may not be refused
	// Why says for people why a confirmation was refused or a call failed.
	Why string
}

// An Object is what the protocol reads of a lease or a sub-lease.
type Object struct {
	Meta
	Protocol int
	Node     NodeName // empty where the cluster holds
	Store    StoreID
	Term     int64
	Writes   int64
	// Granted says that something of it is granted: it cannot be given back.
	Granted bool
	// Matches says that it is what the name stands for: the expected pool and
	// block, or claim.
	Matches bool
	// Stale says that a use names another pod or interface than its record.
	Stale bool
	// Ceded are the ceded addresses of a lease, Grants those that are granted.
	Ceded, Grants []netip.Addr
	// Used are those of Ceded that pods of the node have. They had been taken back when the API
	// server's data went back in time, or a person has ceded them.
	Used []netip.Addr
}

// ObjectOfRequest returns what the protocol reads of s, which should be the request
// of r.
func (r SubLeaseRight) ObjectOfRequest(s SubLease) Object {
	return Object{
		Meta: s.Meta, Protocol: s.Protocol, Node: s.Node, Store: s.Store, Term: s.Term, Writes: s.Writes,
		Matches: s.Request != nil && r.Request != nil && s.Request.Pod.UID == r.Request.Pod.UID && s.Request.Interface == r.Request.Interface,
	}
}

// ObjectOf returns what the protocol reads of l, which should be the lease of r.
func (r LeaseRight) ObjectOf(l Lease) Object {
	o := Object{
		Meta: l.Meta, Protocol: l.Protocol, Node: l.Holder.Node, Store: l.Store, Term: l.Term, Writes: l.Writes,
		Granted: len(l.Grants) > 0, Ceded: union(l.Ceded, nil),
		Matches: l.Pool == r.Pool && l.Block == r.Block,
	}
	for _, g := range l.Grants {
		o.Grants = append(o.Grants, g.Addr)
	}
	return o
}

// ObjectOfUse returns what the protocol reads of s, which should be the use of r.
func (r SubLeaseRight) ObjectOfUse(s SubLease) Object {
	o := Object{Meta: s.Meta, Protocol: s.Protocol, Node: s.Node, Store: s.Store, Term: s.Term, Writes: s.Writes}
	if s.Use != nil && r.Use != nil {
		o.Matches = s.Use.Claim.UID == r.Use.Claim.UID
		o.Stale = s.Use.Pod != r.Use.Pod || s.Use.Interface != r.Use.Interface
	}
	return o
}

// Self is who acts: a node's agent in the term of its registration.
type Self struct {
	Node  NodeName
	Store StoreID
	// Term is the registration's confirmed term, 0 while there is none. Without a term
	// no right is created, fenced or deleted: steps answer VerdictLater.
	Term int64
}

// owns reports whether o is r's: this node's, under this store or, of a right of a
// lost store, under that.
func (s Self) owns(r Right, o Object) bool {
	return o.Node == s.Node && (o.Store == s.Store || r.Store != "" && o.Store == r.Store)
}

// A Result is what a step leads to.
type Result struct {
	// Next is the record to keep, unless Forget says to remove it. It must be on
	// disk before Call is sent.
	Next    Right
	Forget  bool
	Call    Call
	Verdict Verdict
	Passes  bool // after VerdictRefused another try may not be refused
	Why     string
}

// recheckTimes are the ages at which a create in doubt is looked for.
var recheckTimes = [...]time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute}

// LastRecheck is the age at which a create is given up that no recheck has found. The hourly list
// of the node's own objects finds what comes later.
const LastRecheck = 30 * time.Minute

// NextRecheck returns when to look next for a create in doubt that was noted at noted, where now is
// the last time. ok is false if it is not looked for any more. If the clock has gone back behind
// noted, the create counts as noted now.
func NextRecheck(noted, now time.Time) (time.Time, bool) {
	if now.Before(noted) {
		noted = now
	}
	for _, d := range recheckTimes {
		if at := noted.Add(d); at.After(now) {
			return at, true
		}
	}
	return time.Time{}, false
}

// Step is the life of a right, drawn at [Right]: the record and an event give the next record and
// at most one call. A record that the store does not have yet has the zero Phase; its Kind, Name
// and the fields of its kind must be set. Steps of one right must be made one after the other, from
// an event to the last answer that it leads to.
//
// The rules are those of docs/contributing/protocol.md. Before a call gives something away, the
// record says that it is gone. Only after an answer does the record say that the node has more.
// Only a live read removes a record, or a first create that has met another lease. A right that was
// given away comes back only by a fencing write, and is confirmed like a new one.
func Step(r Right, self Self, ev Event) Result {
	if ev.Kind == EventAnswer {
		return registered(answer(r, self, ev), self)
	}
	if self.Term == 0 {
		return Result{Next: r, Forget: r.Phase == "", Verdict: VerdictLater, Why: noRegistration}
	}
	switch ev.Kind {
	case EventWant:
		return want(r, self, ev)
	case EventRecheck:
		return recheck(r, self)
	case EventRenew:
		return renew(r, self, ev)
	case EventLetGo:
		return letGo(r, ev)
	case EventCede, EventTakeBack:
		return cede(r, ev)
	case EventAnswer: // above
	}
	panic(fmt.Sprintf("protocol: event %v", ev.Kind))
}

const noRegistration = "the agent has no registration"

// registered drops the call of res if it is a write and the agent has no registration.
func registered(res Result, self Self) Result {
	if self.Term != 0 || res.Call == CallNone || res.Call == CallRead || res.Call == CallConfirm {
		return res
	}
	res.Call = CallNone
	if res.Verdict == VerdictNone {
		res.Verdict, res.Why = VerdictLater, noRegistration
	}
	return res
}

func want(r Right, self Self, ev Event) Result {
	switch r.Phase {
	case "", Noted:
		r.Doubtful = r.Phase == Noted
		r.Phase, r.NotedAt = Noted, ev.Now
		return Result{Next: r, Call: CallCreate}
	case Held:
		if r.Term == self.Term {
			return Result{Next: r, Verdict: VerdictUsable}
		}
		return inTerm(r, self)
	case Releasing:
		if r.Store != "" && r.Kind != RightLease { // a sub-lease keeps its store for life: it must go first
			return remove(r)
		}
		return again(r)
	case Lost:
		return Result{Next: r, Verdict: VerdictTaken, Why: "another holds it"}
	case Frozen:
		return Result{Next: r, Verdict: VerdictTaken, Why: frozen(r)}
	}
	panic(fmt.Sprintf("protocol: phase %q of %s", r.Phase, r.Name))
}

func frozen(r Right) string {
	return fmt.Sprintf("%s is frozen: it is of the store %s, which this machine has lost, and pods of that time may still use it", r.Name, r.Store)
}

func renew(r Right, self Self, ev Event) Result {
	if r.Phase == Frozen {
		return want(r, self, ev)
	}
	r.Use = ev.Use
	if ev.Addrs != nil {
		r.Addrs, r.Leases = ev.Addrs, ev.Leases
	}
	if r.Phase != Held {
		return want(r, self, ev)
	}
	return again(r)
}

// cede gives addresses of a lease to the cluster, or begins to take them back. The fencing write
// writes what the record says. It fails if a grant comes before it.
func cede(r Right, ev Event) Result {
	if r.Kind != RightLease || r.Phase != Held {
		return Result{Next: r, Forget: r.Phase == "", Verdict: VerdictLater, Why: r.Name + " is not held"}
	}
	if ev.Kind == EventCede {
		r.Ceded, r.Taking = union(r.Ceded, ev.Addrs), without(r.Taking, ev.Addrs)
		return again(r)
	}
	r.Taking = union(r.Taking, without(without(r.Ceded, without(r.Ceded, ev.Addrs)), r.Grants))
	if len(r.Taking) == 0 {
		return later(r, "nothing of it can be taken back")
	}
	return again(r)
}

// again writes r again. If no answer has shown the object, it is read first: a fencing write that
// named no UID and no revision would change whatever has the name.
func again(r Right) Result {
	if r.UID == "" {
		return Result{Next: r, Call: CallRead}
	}
	return Result{Next: r, Call: CallFence}
}

// inTerm writes a Held right in a new term. A request is written only once in a term: if the API
// server's data have lost its answer, it may wait long for a new one.
func inTerm(r Right, self Self) Result {
	if r.awaits(self) || r.Deleting && r.PutBack(self.Term) { // no write can save what is being deleted
		return Result{Next: r, Call: CallRead}
	}
	return again(r)
}

// awaits reports whether r is a request that had its answer, has been written in a new term, and
// has no answer in it yet.
func (r Right) awaits(self Self) bool {
	return r.Kind == RightRequest && self.Term != 0 && r.Term != 0 && r.Unconfirmed(self.Term)
}

func recheck(r Right, self Self) Result {
	switch r.Phase {
	case "":
		return Result{Next: r, Forget: true, Verdict: VerdictGone}
	case Noted, Lost, Frozen:
		return Result{Next: r, Call: CallRead}
	case Held:
		if r.Term != self.Term {
			return inTerm(r, self)
		}
		return Result{Next: r, Call: CallRead}
	case Releasing:
		return remove(r)
	}
	panic(fmt.Sprintf("protocol: phase %q of %s", r.Phase, r.Name))
}

// remove goes on with a right that was given away. It deletes the object only after a live read or
// an answer has shown it without grants, and at that revision: the delete fails if a grant was made
// since.
func remove(r Right) Result {
	if r.UID == "" || r.Granted {
		return Result{Next: r, Call: CallRead}
	}
	return Result{Next: r, Call: CallDelete}
}

func letGo(r Right, ev Event) Result {
	switch r.Phase {
	case "":
		return Result{Next: r, Forget: true, Verdict: VerdictGone}
	case Noted:
		if r.UID == "" { // a read shows whether there is an object to delete
			return Result{Next: r, Call: CallRead}
		}
		r.Phase = Releasing // nothing was ever given from it
		return remove(r)
	case Held:
		if r.UID == "" { // it vanished, and a create is in doubt
			r.Phase, r.Term, r.NotedAt = Noted, 0, ev.Now
			return Result{Next: r, Call: CallRead}
		}
		if r.Granted { // a read shows whether it still is
			return Result{Next: r, Call: CallRead}
		}
		r.Phase, r.Term = Releasing, 0
		return Result{Next: r, Call: CallDelete}
	case Releasing:
		return remove(r)
	case Lost: // nothing rests on it any more; if it is ours after all, it goes back
		r.Phase, r.Term = Releasing, 0
		return Result{Next: r, Call: CallRead}
	case Frozen: // no pod of that time runs any more
		r.Phase, r.Term = Releasing, 0
		return remove(r)
	}
	panic(fmt.Sprintf("protocol: phase %q of %s", r.Phase, r.Name))
}

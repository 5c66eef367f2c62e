package protocol

import (
	"net/netip"
	"sync"
	"time"
)

// A walk is one point that a right can come to by any events and answers, lost
// ones and crashes included: what is on disk, the call under way, and the registration.
type walk struct {
	Right
	call Call  // under way; CallNone after its answer, or a crash
	last int64 // the highest term of the registration, 1 or 2
	reg  int64 // the term that the agent is registered in: last, or 0 while it has no registration

	// What the steps must not rely on being told: whether an answer has shown
	// the object as this store's in which term, and whether it was confirmed
	// since it last had to be.
	written   int64
	confirmed bool
	// known is the object that was confirmed last, in whatever term.
	known UID
}

var (
	walkNow  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	walkUses = [2]*Use{
		{Claim: ClaimRef{Namespace: "ns", Name: "c", UID: "c"}, Pod: PodRef{Name: "p0"}, Interface: "net1"},
		{Claim: ClaimRef{Namespace: "ns", Name: "c", UID: "c"}, Pod: PodRef{Name: "p1"}, Interface: "net1"},
	}
)

// walkAddr is the address of the lease that is ceded and taken back, or that the
// request is granted.
var walkAddr = netip.MustParseAddr("10.0.0.5")

// walkStart returns where a right of kind begins: the store has nothing of it.
func walkStart(kind RightKind) walk {
	block := netip.MustParsePrefix("10.0.0.0/26")
	r := Right{Kind: RightLease, Name: LeaseName("lan", block), LeaseRight: LeaseRight{Pool: "lan", PoolUID: "pool", Block: block}}
	switch kind {
	case RightLease:
	case RightUse:
		r = Right{Kind: RightUse, Name: UseName("c", 0), SubLeaseRight: SubLeaseRight{Use: walkUses[0]}}
	case RightRequest:
		r = Right{Kind: RightRequest, Name: RequestName("a", 1), SubLeaseRight: SubLeaseRight{Request: &Request{Pod: PodRef{UID: "p0"}, Interface: "net1"}}}
	}
	return walk{Right: r, last: 1, reg: 1}
}

// walkFrozen returns where a right of kind begins that another store, now lost, has
// left.
func walkFrozen(kind RightKind) walk {
	w := walkStart(kind)
	w.Phase, w.Store, w.UID, w.Revision, w.Writes = Frozen, lostStore, "u1", "1", 1
	return w
}

const lostStore = StoreID("lost")

// Self is the agent at w.
func (w walk) Self() Self { return Self{Node: "a", Store: "s", Term: w.reg} }

// events returns everything that can happen at w.
func (w walk) events() []Event {
	var all []Event
	for _, now := range w.times() {
		if w.call == CallNone {
			all = append(all, Event{Kind: EventWant, Now: now}, Event{Kind: EventRecheck, Now: now}, Event{Kind: EventLetGo, Now: now})
			switch w.Kind {
			case RightUse:
				all = append(all, Event{Kind: EventRenew, Now: now, Use: walkUses[0]}, Event{Kind: EventRenew, Now: now, Use: walkUses[1]})
			case RightLease:
				addrs := []netip.Addr{walkAddr}
				all = append(all, Event{Kind: EventCede, Now: now, Addrs: addrs}, Event{Kind: EventTakeBack, Now: now, Addrs: addrs})
			case RightRequest:
			}
			continue
		}
		for _, out := range outcomesOf(w.call) {
			ev := Event{Kind: EventAnswer, Now: now, Call: w.call, Outcome: out, Why: "why"}
			if w.Kind == RightRequest && w.call == CallConfirm && out == Done {
				ev.Addrs, ev.Leases = []netip.Addr{walkAddr}, []string{"lan.0a000000.26"}
			}
			if w.Kind == RightUse && w.call == CallConfirm && out == Refused {
				kept := ev
				kept.Keeps = true
				all = append(all, kept)
			}
			if out != Done || w.call == CallConfirm || w.call == CallDelete {
				all = append(all, ev)
				continue
			}
			for _, ev.Object = range w.objects() {
				all = append(all, ev)
			}
		}
	}
	return all
}

// times returns the moments that a step can tell apart: what is noted has an age.
func (w walk) times() []time.Time {
	if w.Phase == Noted {
		return []time.Time{walkNow, walkNow.Add(LastRecheck), walkNow.Add(-time.Hour)}
	}
	return []time.Time{walkNow}
}

// outcomesOf returns the outcomes that call may have.
func outcomesOf(call Call) []Outcome {
	switch call {
	case CallCreate:
		return []Outcome{Unknown, Done, NotFound, Exists, Conflict, Refused}
	case CallRead, CallFence, CallDelete:
		return []Outcome{Unknown, Done, NotFound, Conflict, Refused}
	case CallConfirm:
		return []Outcome{Unknown, Done, Refused}
	case CallNone:
	}
	return nil
}

// objects returns what an answer may show.
func (w walk) objects() []Object {
	var all []Object
	uids := []UID{"u1", "u2"}
	if w.call == CallFence { // by compare-and-swap
		uids = []UID{w.UID}
	}
	for _, uid := range uids {
		for term := range w.last + 1 {
			own := Object{Meta: Meta{Name: w.Name, UID: uid, Revision: "1"}, Protocol: Version, Node: "a", Store: "s", Term: term, Writes: 1, Matches: true}
			granted, deleting, ceded, theirs, lost := own, own, own, own, own
			granted.Granted, deleting.Deleting = true, true
			ceded.Ceded = []netip.Addr{walkAddr}
			theirs.Granted, theirs.Ceded, theirs.Grants = true, ceded.Ceded, ceded.Ceded
			lost.Store = lostStore
			all = append(all, own, deleting)
			if w.Kind == RightLease {
				all = append(all, granted)
			}
			if w.Kind == RightLease && uid == uids[0] && term == w.last {
				all = append(all, ceded, theirs)
			}
			if w.Store != "" && w.call == CallRead {
				all = append(all, lost)
			}
			newer, stale, other, stranger, odd := own, own, own, own, own
			newer.Protocol, stale.Stale, odd.Matches = Version+1, true, false
			other.Node, stranger.Store = "b", "t"
			if w.call == CallFence { // by a store that was another node's
				all = append(all, other)
			}
			if w.call != CallRead {
				continue
			}
			all = append(all, newer, other, stranger, odd)
			if w.Kind == RightUse {
				all = append(all, stale)
			}
		}
	}
	return all
}

// after returns where ev leads.
func (w walk) after(ev Event, res Result) walk {
	was := w
	w.Right, w.call = res.Next, res.Call
	w.learn(ev, was)
	if res.Forget {
		fresh := walkStart(w.Kind)
		fresh.last, fresh.reg = w.last, w.reg
		return fresh
	}
	w.NotedAt, w.Writes = walkNow, 1
	if w.Revision != "" {
		w.Revision = "1"
	}
	return w
}

// learn notes what ev has told.
func (w *walk) learn(ev Event, was walk) {
	answered := func(c Call) bool { return ev.Kind == EventAnswer && ev.Call == c && ev.Outcome == Done }
	switch {
	case answered(CallCreate), answered(CallFence):
		w.written = ev.Object.Term
		w.confirmed = w.confirmed && w.Kind == RightLease // a sub-lease is confirmed anew
	case answered(CallRead) && was.Phase == Noted && was.Self().owns(was.Right, ev.Object) && ev.Object.Matches:
		w.written = ev.Object.Term // a create whose answer was lost
	case answered(CallRead) && was.Kind == RightRequest && was.Phase == Held && ev.Object.UID == was.UID && was.Self().owns(was.Right, ev.Object) && ev.Object.Matches:
		w.written = ev.Object.Term // no write of before can land
	case answered(CallConfirm):
		w.confirmed, w.known = true, w.UID
	case ev.Keeps: // while it is there, what it is for stays
		w.confirmed, w.known = true, w.UID
	case ev.Kind == EventRenew:
		w.confirmed = false
	}
	if w.Phase != Held || w.UID != was.UID { // given away, or another object
		w.confirmed = w.confirmed && answered(CallConfirm)
	}
	if w.Phase != Held || w.UID != "" && w.UID != w.known {
		w.known = ""
	}
}

// place is what tells one walk from another.
type place struct {
	phase         Phase
	uid           UID
	seen, granted bool
	said, term    int64
	use           *Use
	call          Call
	last, reg     int64
	written       int64
	confirmed     bool
	known         UID
	// Of a lease: of walkAddr, and of a right of a lost store that it still is.
	ceded, taking, theirs, lost, doubtful bool
}

func (w walk) place() place {
	return place{
		phase: w.Phase, uid: w.UID, seen: w.Revision != "", granted: w.Granted, said: w.Asserted, term: w.Term, use: w.Use,
		call: w.call, last: w.last, reg: w.reg, written: w.written, confirmed: w.confirmed, known: w.known,
		ceded: len(w.Ceded) > 0, taking: len(w.Taking) > 0, theirs: len(w.Grants) > 0, lost: w.Store != "", doubtful: w.Doubtful,
	}
}

// walkKinds are the kinds of right that are walked.
var walkKinds = []RightKind{RightLease, RightUse, RightRequest}

// reached returns every place that a right of kind can come to.
func reached(kind RightKind) []walk { return walked[kind]() }

var walked = map[RightKind]func() []walk{
	RightLease:   sync.OnceValue(func() []walk { return reach(RightLease) }),
	RightUse:     sync.OnceValue(func() []walk { return reach(RightUse) }),
	RightRequest: sync.OnceValue(func() []walk { return reach(RightRequest) }),
}

// reach walks everywhere from nothing, and from what a lost store has left.
func reach(kind RightKind) []walk {
	seen := map[place]bool{}
	var all []walk
	add := func(w walk) {
		if !seen[w.place()] {
			seen[w.place()] = true
			all = append(all, w)
		}
	}
	add(walkStart(kind))
	add(walkFrozen(kind))
	for i := 0; i < len(all); i++ {
		w := all[i]
		for _, ev := range w.events() {
			add(w.after(ev, Step(w.Right, w.Self(), ev)))
		}
		crashed, unregistered, registered, next := w, w, w, w
		crashed.call = CallNone
		unregistered.reg, registered.reg = 0, w.last
		next.last, next.reg = 2, 2
		add(crashed)
		add(unregistered)
		add(registered)
		add(next)
	}
	return all
}

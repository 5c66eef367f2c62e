package protocol

import (
	"fmt"
	"net/netip"
	"time"
)

// records are the kinds of record that Step tells apart, for an agent in term 2.
// Their object, where it has been seen, is u1.
var records = []struct {
	name  string
	right Right
}{
	{"nothing", Right{}},
	{"noted", Right{Phase: Noted}},
	{"noted, seen", Right{Phase: Noted, UID: "u1", Revision: "1", Asserted: 2}},
	{"held", Right{Phase: Held, UID: "u1", Revision: "1", Asserted: 2, Term: 2}},
	{"held, granted", Right{Phase: Held, UID: "u1", Revision: "1", Asserted: 2, Term: 2, LeaseRight: LeaseRight{Granted: true}}},
	{"held, old term", Right{Phase: Held, UID: "u1", Revision: "1", Asserted: 1, Term: 1}},
	{"held, unsure", Right{Phase: Held, UID: "u1", Revision: "1", Asserted: 2}},
	{"held, vanished", Right{Phase: Held}},
	{"releasing", Right{Phase: Releasing, UID: "u1", Revision: "1", Asserted: 2}},
	{"releasing, granted", Right{Phase: Releasing, UID: "u1", Revision: "1", Asserted: 2, LeaseRight: LeaseRight{Granted: true}}},
	{"releasing, unseen", Right{Phase: Releasing}},
	{"lost", Right{Phase: Lost, UID: "u1", Revision: "1", Asserted: 1}},
	{"frozen", Right{Phase: Frozen, Store: lostStore, UID: "u1", Revision: "1", Asserted: 1}},
	{"thawed", Right{Phase: Releasing, Store: lostStore, UID: "u1", Revision: "1", Asserted: 1}},
}

// recordNamed returns the record of that name for a right of kind.
func recordNamed(kind RightKind, name string) Right {
	for _, known := range records {
		if r := known.right; known.name == name {
			base := walkStart(kind).Right
			r.Kind, r.Name, r.Pool, r.PoolUID, r.Block, r.Use, r.Request, r.NotedAt = kind, base.Name, base.Pool, base.PoolUID, base.Block, base.Use, base.Request, walkNow
			return r
		}
	}
	panic(name)
}

// recordOf returns the name of the kind of record that r is.
func recordOf(r Right) string {
	seen := func(name, unseen string) string {
		if r.UID == "" {
			return unseen
		}
		return name
	}
	switch r.Phase {
	case Noted:
		return seen("noted, seen", "noted")
	case Held:
		switch {
		case r.UID == "":
			return "held, vanished"
		case r.Term == 0:
			return "held, unsure"
		case r.Term == 1:
			return "held, old term"
		case r.Granted:
			return "held, granted"
		}
		return "held"
	case Releasing:
		if r.Store != "" {
			return "thawed"
		}
		if r.UID != "" && r.Granted {
			return "releasing, granted"
		}
		return seen("releasing", "releasing, unseen")
	case Lost:
		return "lost"
	case Frozen:
		return "frozen"
	}
	return "nothing"
}

// tableEvents are the events and answers that Step tells apart, by name.
func tableEvents(kind RightKind) map[string]Event {
	events := map[string]Event{}
	add := func(name string, ev Event) {
		ev.Now = walkNow
		if _, ok := events[name]; ok {
			panic(name)
		}
		events[name] = ev
	}
	add("Want", Event{Kind: EventWant})
	add("Recheck", Event{Kind: EventRecheck})
	add("LetGo", Event{Kind: EventLetGo})
	switch kind {
	case RightUse:
		add("Renew", Event{Kind: EventRenew, Use: walkUses[1]})
	case RightLease:
		add("Cede", Event{Kind: EventCede, Addrs: []netip.Addr{walkAddr}})
		add("TakeBack", Event{Kind: EventTakeBack, Addrs: []netip.Addr{walkAddr}})
	case RightRequest:
	}
	own := Object{Meta: Meta{UID: "u1", Revision: "2"}, Protocol: Version, Node: "a", Store: "s", Term: 2, Writes: 1, Matches: true}
	with := func(change func(*Object)) Object {
		o := own
		change(&o)
		return o
	}
	type shown struct {
		name string
		o    Object
	}
	objects := map[Call][]shown{
		CallCreate: {{"", own}},
		CallFence: {
			{"", own}, {" of an older term", with(func(o *Object) { o.Term = 1 })},
			{" being deleted", with(func(o *Object) { o.Deleting = true })},
			{" another node's", with(func(o *Object) { o.Node = "b" })},
		},
		CallRead: {
			{" mine", own},
			{" mine of an older term", with(func(o *Object) { o.Term = 1 })},
			{" mine under another UID", with(func(o *Object) { o.UID = "u2" })},
			{" mine being deleted", with(func(o *Object) { o.Deleting = true })},
			{" mine by a newer Tenure", with(func(o *Object) { o.Protocol++ })},
			{" another node's", with(func(o *Object) { o.Node = "b" })},
			{" another store's", with(func(o *Object) { o.Store = "t" })},
			{" the cluster's", with(func(o *Object) { o.Node, o.Store = "", "" })},
			{" mine of another block or claim", with(func(o *Object) { o.Matches = false })},
		},
		CallConfirm: {{"", Object{}}},
		CallDelete:  {{"", Object{}}},
	}
	switch kind {
	case RightUse:
		objects[CallRead] = append(objects[CallRead], shown{" mine for another pod", with(func(o *Object) { o.Stale = true })})
	case RightLease:
		objects[CallRead] = append(objects[CallRead], shown{" mine and granted", with(func(o *Object) { o.Granted = true })})
	case RightRequest:
	}
	objects[CallRead] = append(objects[CallRead], shown{" the lost store's", with(func(o *Object) { o.Store = lostStore })})
	for _, call := range []Call{CallCreate, CallRead, CallConfirm, CallFence, CallDelete} {
		for _, out := range outcomesOf(call) {
			ev := Event{Kind: EventAnswer, Call: call, Outcome: out, Why: "why"}
			if kind == RightRequest && call == CallConfirm && out == Done {
				ev.Addrs = []netip.Addr{walkAddr}
			}
			if kind == RightUse && call == CallConfirm && out == Refused {
				kept := ev
				kept.Keeps = true
				add("Confirm Refused and kept", kept)
			}
			if out != Done {
				add(fmt.Sprintf("%v %v", call, out), ev)
				continue
			}
			for _, as := range objects[call] {
				ev.Object = as.o
				add(fmt.Sprintf("%v %v%s", call, out, as.name), ev)
			}
		}
	}
	gone := events["Read NotFound"]
	gone.Now = walkNow.Add(30*time.Minute - 1)
	events["Read NotFound"] = gone
	gone.Now = walkNow.Add(30 * time.Minute)
	events["Read NotFound after 30m"] = gone
	return events
}

// stepText says what a step led to: the record to keep; the call; the verdict.
func stepText(res Result) string {
	text := recordOf(res.Next)
	if res.Forget {
		text = "forgotten"
	}
	if res.Call != CallNone {
		text += "; " + res.Call.String()
	}
	if res.Verdict != VerdictNone {
		text += "; " + res.Verdict.String()
	}
	return text
}

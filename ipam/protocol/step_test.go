package protocol

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// stepTable is every step that can be reached, for an agent in term 2: a record
// and what happens make the record to keep, the call, and the verdict. A row that
// begins with "lease:", "use:" or "request:" is of that kind of right alone. The
// groups of events are in eventGroups.
var stepTable = []struct{ record, events, want string }{
	// Nothing yet: the name is noted before the create.
	{"nothing", "Want", "noted; Create"},
	{"nothing", "use: Renew", "noted; Create"},
	{"nothing", "Recheck, LetGo", "forgotten; Gone"},
	{"nothing", "Cede or take back", "forgotten; Later"},

	// A create may be on its way. Only half an hour of NotFound, or another's object, ends that.
	{"noted", "Want", "noted; Create"},
	{"noted", "use: Renew", "noted; Create"},
	{"noted", "Recheck, LetGo", "noted; Read"},
	{"noted", "use/request: Create Exists", "noted; Read"},
	{"noted", "lease: Create Exists", "forgotten; Taken"}, // no other create is in doubt
	{"noted", "Cede or take back, Create fails, Read fails, Read NotFound, Read Done mine by a newer Tenure", "noted; Later"},
	{"noted", "Create Done, Read Done mine, Read Done mine under another UID", "noted, seen; Confirm"},
	{"noted", "lease: Read Done mine and granted", "noted, seen; Confirm"},
	{"noted", "Read Done mine of an older term", "noted, seen; Fence"},
	{"noted", "use: Read Done mine for another pod", "noted, seen; Fence"},
	{"noted", "Read Done mine being deleted", "noted, seen; Later"},
	{"noted", "Create Refused", "forgotten; Denied"},
	{"noted", "Read another's", "forgotten; Taken"},
	{"noted", "Read NotFound after 30m", "forgotten; Gone"},

	// Created, and not confirmed: nothing was given from it.
	{"noted, seen", "Want", "noted, seen; Create"},
	{"noted, seen", "use: Renew", "noted, seen; Create"},
	{"noted, seen", "Recheck, Create Exists, Fence fails", "noted, seen; Read"},
	{"noted, seen", "LetGo", "releasing; Delete"},
	{"noted, seen", "Cede or take back, Create fails, Create Refused, Read fails, Read Done mine by a newer Tenure, Confirm Unknown, Fence Refused", "noted, seen; Later"},
	{"noted, seen", "Read Done mine being deleted, Fence Done being deleted", "noted, seen; Later"},
	{"noted, seen", "Create Done, Read Done mine, Read Done mine under another UID, Fence Done, Fence Done of an older term", "noted, seen; Confirm"},
	{"noted, seen", "lease: Read Done mine and granted", "noted, seen; Confirm"},
	{"noted, seen", "Read Done mine of an older term", "noted, seen; Fence"},
	{"noted, seen", "use: Read Done mine for another pod", "noted, seen; Fence"},
	{"noted, seen", "Confirm Done", "held; Usable"},
	{"noted, seen", "Confirm Refused", "releasing; Delete; Refused"},
	{"noted, seen", "use: Confirm Refused and kept", "releasing; Delete; Refused"}, // nothing rests on it
	{"noted, seen", "Read NotFound", "noted; Later"},
	{"noted, seen", "Read NotFound after 30m", "forgotten; Gone"},
	{"noted, seen", "Read another's, Fence Done another node's", "forgotten; Taken"},

	// Held in this term: it serves until a read shows that it should not.
	{"held", "Want", "held; Usable"},
	{"held", "Recheck", "held; Read"},
	{"held", "LetGo", "releasing; Delete"},
	{"held", "use: Renew, Read Done mine for another pod", "held; Fence"},
	{"held", "lease: Cede", "held; Fence"},
	{"held", "lease: TakeBack", "held; Later"}, // nothing is ceded
	{"held", "lease/request: Read Done mine", "held; Usable"},
	{"held", "lease: Fence Done", "held; Usable"},
	{"held", "lease: Fence Done of an older term", "held, unsure; Fence"},
	{"held", "lease: Read Done mine and granted", "held, granted; Usable"},
	{"held", "use: Read Done mine, Fence Done, Fence Done of an older term", "held; Confirm"},
	{"held", "lease/use: Fence fails", "held; Read"},
	{"held", "use: Confirm Done", "held; Usable"},
	{"held", "use: Confirm Refused, Confirm Refused and kept", "held; Refused"}, // it goes on for those that rest on it
	{"held", "use: Confirm Unknown", "held; Later"},
	{"held", "lease/use: Fence Refused", "held; Later"},
	{"held", "Read fails, Read Done mine by a newer Tenure", "held; Later"},
	{"held", "Read Done mine of an older term, Read Done mine under another UID", "held, unsure; Fence"},
	{"held", "lease/use: Read gone", "held, vanished; Create"},
	{"held", "request: Read gone", "lost; Taken"},
	{"held", "Read Done mine being deleted", "held, unsure; Later"}, // it goes whatever is written
	{"held", "lease/use: Fence Done being deleted", "held, unsure; Later"},
	{"held", "Read another's", "lost; Taken"},
	{"held", "lease/use: Fence Done another node's", "lost; Taken"},

	// Of what is granted nothing is deleted before a read shows it free.
	{"held, granted", "lease: Want, Read Done mine and granted", "held, granted; Usable"},
	{"held, granted", "lease: Recheck, LetGo", "held, granted; Read"},
	{"held, granted", "lease: Read Done mine", "held; Usable"},
	{"held, granted", "lease: Read fails, Read Done mine by a newer Tenure", "held, granted; Later"},
	{"held, granted", "lease: Read Done mine of an older term, Read Done mine under another UID", "held, unsure; Fence"},
	{"held, granted", "lease: Read gone", "held, vanished; Create"},
	{"held, granted", "lease: Read another's, Fence Done another node's", "lost; Taken"},
	{"held, granted", "lease: Cede", "held, granted; Fence"},
	{"held, granted", "lease: TakeBack, Fence Refused", "held, granted; Later"},
	{"held, granted", "lease: Fence Done", "held; Usable"},
	{"held, granted", "lease: Read Done mine being deleted, Fence Done being deleted", "held, unsure; Later"},
	{"held, granted", "lease: Fence Done of an older term", "held, unsure; Fence"},
	{"held, granted", "lease: Fence fails", "held, granted; Read"},

	// Held in an older term: only a fencing write of this one says who has it.
	{"held, old term", "Want, Recheck", "held, old term; Fence"},
	{"held, old term", "use: Renew", "held, old term; Fence"},
	{"held, old term", "lease: Cede", "held, old term; Fence"},
	{"held, old term", "lease: TakeBack", "held, old term; Later"},
	{"held, old term", "LetGo", "releasing; Delete"},
	{"held, old term", "lease: Fence Done", "held; Usable"},
	{"held, old term", "Read Done mine being deleted, Fence Done being deleted", "held, unsure; Later"},
	{"held, old term", "lease: Fence Done of an older term", "held, old term; Fence"},
	{"held, old term", "use/request: Fence Done, Fence Done of an older term", "held, old term; Confirm"},
	{"held, old term", "use/request: Confirm Done", "held, old term; Fence"}, // yet another term began
	{"held, old term", "use/request: Confirm Refused", "lost; Refused"},
	{"held, old term", "use: Confirm Refused and kept", "held, old term; Fence"}, // as above
	{"held, old term", "use/request: Confirm Unknown", "held, old term; Later"},
	{"held, old term", "Fence fails", "held, old term; Read"},
	{"held, old term", "Fence Refused, Read fails, Read Done mine by a newer Tenure", "held, old term; Later"},
	{"held, old term", "lease/use: Read mine", "held, old term; Fence"},
	// It has been said, and waits for its answer.
	{"held, old term", "request: Read Done mine", "held, old term; Confirm"},
	{"held, old term", "request: Read Done mine of an older term", "held, old term; Fence"},
	{"held, old term", "Read Done mine under another UID", "held, unsure; Fence"},
	{"held, old term", "lease/use: Read gone", "held, vanished; Create"},
	{"held, old term", "request: Read gone", "lost; Taken"},
	{"held, old term", "Read another's, Fence Done another node's", "lost; Taken"},

	// Held, and the object is another than was confirmed, or not known to be the
	// same: what it rests on may have changed.
	{"held, unsure", "Want, Recheck, Read mine, Read Done mine under another UID", "held, unsure; Fence"},
	{"held, unsure", "use: Renew", "held, unsure; Fence"},
	{"held, unsure", "lease: Cede", "held, unsure; Fence"},
	{"held, unsure", "lease: TakeBack", "held, unsure; Later"},
	{"held, unsure", "LetGo", "releasing; Delete"},
	{"held, unsure", "Fence Done, Fence Done of an older term", "held, unsure; Confirm"},
	{"held, unsure", "Read Done mine being deleted, Fence Done being deleted", "held, unsure; Later"},
	{"held, unsure", "Confirm Done", "held; Usable"},
	{"held, unsure", "Confirm Refused", "lost; Refused"},
	{"held, unsure", "use: Confirm Refused and kept", "held; Refused"}, // it goes on for those that rest on it
	{"held, unsure", "Confirm Unknown", "held, unsure; Later"},
	{"held, unsure", "Fence fails", "held, unsure; Read"},
	{"held, unsure", "Fence Refused, Read fails, Read Done mine by a newer Tenure", "held, unsure; Later"},
	{"held, unsure", "lease/use: Read gone", "held, vanished; Create"},
	{"held, unsure", "request: Read gone", "lost; Taken"},
	{"held, unsure", "Read another's, Fence Done another node's", "lost; Taken"},

	// Deleted by hand, or taken over and given back: created again, unless another
	// was faster, and confirmed like a new one. Nothing is
	// written to before a read or an answer shows an object.
	{"held, vanished", "lease/use: Want, Recheck, Create Exists", "held, vanished; Read"},
	{"held, vanished", "use: Renew", "held, vanished; Read"},
	{"held, vanished", "lease/use: LetGo", "noted; Read"},
	{"held, vanished", "lease: Cede", "held, vanished; Read"},
	{"held, vanished", "lease: TakeBack", "held, vanished; Later"},
	{"held, vanished", "lease/use: Create Done", "held, unsure; Confirm"},
	{"held, vanished", "lease/use: Create fails, Create Refused, Read fails, Read Done mine by a newer Tenure", "held, vanished; Later"},
	{"held, vanished", "lease/use: Read mine, Read Done mine under another UID", "held, unsure; Fence"},
	{"held, vanished", "lease/use: Read Done mine being deleted", "held, unsure; Later"},
	{"held, vanished", "lease/use: Read gone", "held, vanished; Create"},
	{"held, vanished", "lease/use: Read another's", "lost; Taken"},

	// Given away: only a read forgets it, only a fencing write and a confirmation
	// bring it back, and not while it is being deleted.
	{"releasing", "Want", "releasing; Fence"},
	{"releasing", "use: Renew", "releasing; Fence"},
	{"releasing", "Recheck, LetGo", "releasing; Delete"},
	{"releasing", "Cede or take back", "releasing; Later"},
	{"releasing", "Delete, Fence fails", "releasing; Read"},
	{"releasing", "Read not granted, Read fails, Read Done mine by a newer Tenure, Confirm Unknown, Fence Refused, Fence Done being deleted", "releasing; Later"},
	{"releasing", "lease: Read Done mine and granted", "releasing, granted; Fence"},
	{"releasing", "Fence Done, Fence Done of an older term", "releasing; Confirm"},
	{"releasing", "Confirm Done", "held; Usable"},
	{"releasing", "Confirm Refused", "releasing; Delete; Refused"},
	{"releasing", "use: Confirm Refused and kept", "releasing; Delete; Refused"},
	{"releasing", "Read gone", "forgotten; Gone"},
	{"releasing", "Read another's, Fence Done another node's", "forgotten; Taken"},

	{"releasing, granted", "lease: Want, Read Done mine and granted", "releasing, granted; Fence"},
	{"releasing, granted", "Cede or take back", "releasing, granted; Later"},
	{"releasing, granted", "lease: Recheck, LetGo, Fence fails", "releasing, granted; Read"},
	{"releasing, granted", "lease: Read fails, Read Done mine by a newer Tenure, Confirm Unknown, Fence Refused", "releasing, granted; Later"},
	{"releasing, granted", "lease: Read not granted, Fence Done being deleted", "releasing; Later"},
	{"releasing, granted", "lease: Fence Done, Fence Done of an older term", "releasing; Confirm"},
	{"releasing, granted", "lease: Confirm Done", "held, granted; Usable"},
	{"releasing, granted", "lease: Confirm Refused", "releasing, granted; Refused"},
	{"releasing, granted", "lease: Read gone", "forgotten; Gone"},
	{"releasing, granted", "lease: Read another's, Fence Done another node's", "forgotten; Taken"},

	// A stray that the hourly list found, or a lost one that was let go.
	{"releasing, unseen", "Want, Recheck, LetGo", "releasing, unseen; Read"},
	{"releasing, unseen", "Cede or take back", "releasing, unseen; Later"},
	{"releasing, unseen", "use: Renew", "releasing, unseen; Read"},
	{"releasing, unseen", "Read fails, Read Done mine by a newer Tenure", "releasing, unseen; Later"},
	{"releasing, unseen", "Read not granted", "releasing; Later"},
	{"releasing, unseen", "lease: Read Done mine and granted", "releasing, granted; Fence"},
	{"releasing, unseen", "Read gone", "forgotten; Gone"},
	{"releasing, unseen", "Read another's", "forgotten; Taken"},

	// Another's: it gives nothing and is never written to, until nothing rests on it.
	{"lost", "Want, Read another's", "lost; Taken"},
	{"lost", "use: Renew", "lost; Taken"},
	{"lost", "Recheck", "lost; Read"},
	{"lost", "LetGo", "releasing; Read"},
	{"lost", "Cede or take back", "lost; Later"},
	{"lost", "Read mine, Read Done mine being deleted, Read Done mine under another UID, Read gone, Read fails, Read Done mine by a newer Tenure", "lost; Later"},

	// A lost store's, and pods of its time may still run: it gives nothing and is
	// never written to.
	{"frozen", "Want", "frozen; Taken"},
	{"frozen", "use: Renew", "frozen; Taken"},
	{"frozen", "Recheck", "frozen; Read"},
	{"frozen", "LetGo", "thawed; Delete"},
	{"frozen", "Cede or take back, Read fails, Read Done mine by a newer Tenure, Read Done the lost store's, Read mine, Read Done mine being deleted, Read Done mine under another UID", "frozen; Later"},
	{"frozen", "Read gone, Read another store's", "lost; Taken"},

	// None of them runs any more: it goes back, or a lease becomes this store's by
	// a fencing write.
	{"thawed", "lease: Want", "thawed; Fence"},
	{"thawed", "use/request: Want", "thawed; Delete"},
	{"thawed", "use: Renew", "thawed; Delete"},
	{"thawed", "Recheck, LetGo", "thawed; Delete"},
	{"thawed", "Delete", "thawed; Read"},
	{"thawed", "Cede or take back, Read fails, Read Done mine by a newer Tenure, Read Done the lost store's, Read not granted", "thawed; Later"},
	{"thawed", "lease: Read Done mine and granted", "thawed; Fence"},
	{"thawed", "Read gone", "forgotten; Gone"},
	{"thawed", "Read another store's", "forgotten; Taken"},
	{"thawed", "lease: Fence fails", "thawed; Read"},
	{"thawed", "lease: Fence Refused", "thawed; Later"},
	{"thawed", "lease: Fence Done, Fence Done of an older term", "releasing; Confirm"},
	{"thawed", "lease: Fence Done being deleted", "releasing; Later"},
	{"thawed", "lease: Fence Done another node's", "forgotten; Taken"},
}

// eventGroups are names for several events of [tableEvents]; those that a kind of
// right does not have are left out for it.
var eventGroups = map[string]string{
	"Create fails": "Create Unknown, Create NotFound, Create Conflict",
	"Fence fails":  "Fence Unknown, Fence NotFound, Fence Conflict",
	"Read fails":   "Read Unknown, Read Conflict, Read Refused",
	"Read gone":    "Read NotFound, Read NotFound after 30m",
	"Delete":       "Delete Unknown, Delete Done, Delete NotFound, Delete Conflict, Delete Refused",
	"Read another's": "Read Done another node's, Read Done another store's, Read Done the cluster's, " +
		"Read Done mine of another block or claim, Read Done the lost store's",
	"Read another store's": "Read Done another node's, Read Done another store's, Read Done the cluster's, " +
		"Read Done mine of another block or claim",
	"Cede or take back": "Cede, TakeBack",
	"Read not granted": "Read Done mine, Read Done mine of an older term, Read Done mine under another UID, " +
		"Read Done mine being deleted, Read Done mine for another pod",
	"Read mine": "Read Done mine, Read Done mine of an older term, " +
		"Read Done mine for another pod, Read Done mine and granted",
}

// TestStep holds the table against Step, and every step that can be reached
// against the table.
func TestStep(t *testing.T) {
	for _, kind := range walkKinds {
		t.Run(string(kind), func(t *testing.T) {
			events := tableEvents(kind)
			wants := tableOf(t, kind, events)
			reached := reachedPairs(kind, events)
			for p := range reached {
				if _, ok := wants[p]; !ok {
					t.Errorf("no row for %q + %q", p.record, p.event)
				}
			}
			for p, want := range wants {
				if !reached[p] {
					t.Errorf("a row for %q + %q, which cannot happen", p.record, p.event)
				}
				res := Step(recordNamed(kind, p.record), Self{Node: "a", Store: "s", Term: 2}, events[p.event])
				if got := stepText(res); got != want {
					t.Errorf("%q + %q: got %q; want %q", p.record, p.event, got, want)
				}
			}
		})
	}
}

type stepPair struct{ record, event string }

// tableOf returns the rows that are of kind, with their groups written out.
func tableOf(t *testing.T, kind RightKind, events map[string]Event) map[stepPair]string {
	wants := map[stepPair]string{}
	for _, row := range stepTable {
		list := row.events
		if of, rest, ok := strings.Cut(list, ": "); ok {
			if !slices.ContainsFunc(strings.Split(of, "/"), func(s string) bool { return strings.EqualFold(s, string(kind)) }) {
				continue
			}
			list = rest
		}
		for name := range strings.SplitSeq(list, ", ") {
			members, group := eventGroups[name]
			if !group {
				members = name
			}
			for event := range strings.SplitSeq(members, ", ") {
				p := stepPair{row.record, event}
				switch _, known := events[event]; {
				case !known && !group:
					t.Errorf("row for %q: event %q does not exist", row.record, event)
				case !known:
				case wants[p] != "":
					t.Errorf("two rows for %q + %q", p.record, p.event)
				default:
					wants[p] = row.want
				}
			}
		}
	}
	return wants
}

// reachedPairs returns which events can happen to which kinds of record.
func reachedPairs(kind RightKind, events map[string]Event) map[stepPair]bool {
	what := func(ev Event) string { // an event, or an answer to a call, whatever it says
		if ev.Kind != EventAnswer {
			return ev.Kind.String()
		}
		return ev.Call.String()
	}
	happens := map[stepPair]bool{}
	for _, w := range reached(kind) {
		for _, ev := range w.events() {
			if w.last == 2 {
				happens[stepPair{recordOf(w.Right), what(ev)}] = true
			}
		}
	}
	pairs := map[stepPair]bool{}
	for _, r := range records {
		for name, ev := range events {
			if happens[stepPair{r.name, what(ev)}] {
				pairs[stepPair{r.name, name}] = true
			}
		}
	}
	return pairs
}

// Without a registration nothing begins, and nothing is kept of what the store does not
// have.
func TestStepWithoutRegistration(t *testing.T) {
	for _, kind := range walkKinds {
		events := tableEvents(kind)
		for _, known := range records {
			r := recordNamed(kind, known.name)
			for _, name := range []string{"Want", "Recheck", "LetGo", "Renew"} {
				ev, ok := events[name]
				if !ok {
					continue
				}
				res := Step(r, Self{Node: "a", Store: "s"}, ev)
				if res.Call != CallNone || res.Verdict != VerdictLater || res.Why == "" {
					t.Errorf("%s, %q + %s: got %+v; want nothing but Later, and why", kind, known.name, name, res)
				}
				if res.Forget != (known.name == "nothing") || !res.Forget && res.Next.Phase != r.Phase {
					t.Errorf("%s, %q + %s: got %+v; want the record as it was", kind, known.name, name, res)
				}
			}
		}
	}
}

// A renewal says what the use is for from then on, and what it is answered with.
func TestStepRenews(t *testing.T) {
	addrs, leases := []netip.Addr{netip.MustParseAddr("10.9.0.1")}, []string{"lan.0a090000.26"}
	for _, known := range records {
		if known.name == "frozen" { // it stays what it was
			continue
		}
		r := recordNamed(RightUse, known.name)
		res := Step(r, Self{Node: "a", Store: "s", Term: 2}, Event{Kind: EventRenew, Use: walkUses[1], Addrs: addrs, Leases: leases})
		if res.Next.Use != walkUses[1] || !slices.Equal(res.Next.Addrs, addrs) || !slices.Equal(res.Next.Leases, leases) {
			t.Errorf("%q: got use %v, addresses %v, leases %v; want what the renewal says", known.name, res.Next.Use, res.Next.Addrs, res.Next.Leases)
		}
		again := Step(res.Next, Self{Node: "a", Store: "s", Term: 2}, Event{Kind: EventRenew, Use: walkUses[0]})
		if !slices.Equal(again.Next.Addrs, addrs) || !slices.Equal(again.Next.Leases, leases) {
			t.Errorf("%q: a renewal without addresses changes them", known.name)
		}
	}
}

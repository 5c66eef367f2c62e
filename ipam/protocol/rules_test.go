package protocol

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestStepRules holds the rules of docs/contributing/protocol.md against every step that can be
// reached. That none of them panics is one.
func TestStepRules(t *testing.T) {
	for _, kind := range walkKinds {
		t.Run(string(kind), func(t *testing.T) {
			steps, broken := 0, map[string]int{}
			for _, w := range reached(kind) {
				for _, ev := range w.events() {
					steps++
					res := Step(w.Right, w.Self(), ev)
					for _, why := range brokenRules(w, ev, res) {
						if broken[why]++; broken[why] <= 3 {
							t.Errorf("%s:\n%+v\n%+v\n%+v", why, w, ev, res)
						}
					}
				}
			}
			t.Logf("%d places, %d steps", len(reached(kind)), steps)
		})
	}
}

// brokenRules says which rules a step breaks.
func brokenRules(w walk, ev Event, res Result) []string {
	was, next := w.Right, res.Next
	if w.Phase == "" {
		was.Phase = ""
	}
	serves := !res.Forget && next.Usable(w.reg)
	answered := func(c Call, outs ...Outcome) bool {
		return ev.Kind == EventAnswer && ev.Call == c && slices.Contains(outs, ev.Outcome)
	}
	others := !w.Self().owns(w.Right, ev.Object) || !ev.Object.Matches
	seenGone := answered(CallRead, NotFound) || others && (answered(CallRead, Done) || answered(CallFence, Done))
	write := res.Call == CallCreate || res.Call == CallFence || res.Call == CallDelete
	after := w.after(ev, res)
	rules := []struct {
		why    string
		broken bool
	}{
		{"the record to keep has no phase", !res.Forget && !next.Phase.Valid()},
		{"a step changes what the record is of", next.Kind != was.Kind || next.Name != was.Name || next.Block != was.Block || next.PoolUID != was.PoolUID},
		{"a call goes out for a record that is not on disk", res.Call != CallNone && res.Forget},
		{"a delete goes out before the record says that the right was given away", res.Call == CallDelete && next.Phase != Releasing},
		{"a create goes out before its name is noted", res.Call == CallCreate && next.Phase != Noted && next.Phase != Held},
		{"a create goes out under a record that serves", res.Call == CallCreate && serves},
		{"a write names no object", (res.Call == CallFence || res.Call == CallDelete) && (next.UID == "" || next.Revision == "")},
		{"a delete goes out for what is granted", res.Call == CallDelete && next.Granted},
		{"a write goes out without a registration", write && w.reg == 0},
		{"a record is forgotten without a live read", res.Forget && was.Phase != "" && !seenGone &&
			!(answered(CallCreate, Refused) && was.Phase == Noted && was.UID == "" && !was.Doubtful) &&
			!(answered(CallCreate, Exists) && was.Kind == RightLease && was.Phase == Noted && was.UID == "" && !was.Doubtful)},
		{"a create in doubt is forgotten before its rechecks are over", res.Forget && was.Phase == Noted && answered(CallRead, NotFound) &&
			ev.Now.Sub(was.NotedAt) < LastRecheck},
		{"a lost right is written to", was.Phase == Lost && write},
		{"a right serves without a registration", serves && w.reg == 0},
		{"a right serves although its object was not seen written in this term", serves && !was.Usable(w.reg) && after.written != w.reg},
		{"a right serves unconfirmed", serves && !was.Usable(w.reg) && !after.confirmed},
		{"a right serves after a read alone", serves && !was.Usable(w.reg) && answered(CallRead, Done)},
		{"a released right serves at once", serves && was.Phase == Releasing && !answered(CallConfirm, Done)},
		{"the verdict is Usable, and the right does not", res.Verdict == VerdictUsable && !serves},
		{"neither a call nor a verdict", res.Call == CallNone && res.Verdict == VerdictNone},
		{"a call, and a verdict that it may change", res.Call != CallNone && res.Verdict != VerdictNone && res.Verdict != VerdictRefused},
		{"a ceded address is the node's again without an answered write that says so", len(was.Ceded) > 0 && len(next.Ceded) == 0 && !res.Forget &&
			!(answered(CallFence, Done) && len(ev.Object.Ceded) == 0 && len(was.Taking) > 0)},
		{"what is ceded is not noted", ev.Kind == EventCede && was.Phase == Held && w.reg != 0 && len(next.Ceded) == 0},
		{"a granted address is taken back", res.Call == CallFence && len(next.Grants) > 0 && len(next.Ceded) > 0 && len(next.CededNext()) == 0},
		{"a right serves and does not say what it has ceded", res.Verdict == VerdictUsable && answered(CallRead, Done) && len(next.Ceded) != len(ev.Object.Ceded)},
		{"a frozen right is written to, or given back unasked", was.Phase == Frozen && write && ev.Kind != EventLetGo},
		{"a right of a lost store serves", serves && next.Store != ""},
		{"a sub-lease of a lost store is written to", was.Store != "" && was.Kind != RightLease && res.Call == CallFence},
		{"a request that was held is created again", res.Call == CallCreate && was.Kind == RightRequest && was.Phase == Held},
		{"a refusal without a reason", (res.Verdict == VerdictRefused || res.Verdict == VerdictDenied || res.Verdict == VerdictTaken) && res.Why == ""},
	}
	var why []string
	for _, r := range rules {
		if r.broken {
			why = append(why, r.why)
		}
	}
	return why
}

// A cluster is what an API server that always answers has of one right.
type cluster struct {
	object  Object
	exists  bool
	refuses bool // what a confirmation reads
}

// clusters are what can be there for a record of w.
func clusters(w walk) map[string]cluster {
	own := Object{Meta: Meta{Name: w.Name, UID: max(w.UID, "u1"), Revision: "1"}, Protocol: Version, Node: "a", Store: "s", Term: 1, Writes: 1, Matches: true}
	fresh, other, lost := own, own, own
	fresh.UID, other.Node, lost.Store = "u3", "b", lostStore
	return map[string]cluster{
		"mine": {object: own, exists: true}, "mine, under another UID": {object: fresh, exists: true},
		"another's": {object: other, exists: true}, "nothing": {},
		"mine, and refused": {object: own, exists: true, refuses: true}, "nothing, and refused": {refuses: true},
		"the lost store's": {object: lost, exists: true},
	}
}

// TestStepEnds holds that from wherever a right can be, letting go of it and
// looking as often as the agent does ends in nothing, whatever the cluster has (I4).
func TestStepEnds(t *testing.T) {
	for _, kind := range walkKinds {
		t.Run(string(kind), func(t *testing.T) {
			for _, w := range reached(kind) {
				for name, there := range clusters(w) {
					gone := func(res Result) bool { return res.Forget }
					if steps, ok := comesTo(w, there, EventLetGo, gone); !ok {
						t.Fatalf("%+v does not end, in the cluster: %s\n%s", w, name, steps)
					}
				}
			}
		})
	}
}

// TestStepServes holds that from wherever a right can be, but Lost or Frozen, wanting
// it ends in its serving where the cluster lets it. A request that was deleted under
// its holder is lost. A lease that the store has forgotten counts as another's.
func TestStepServes(t *testing.T) {
	for _, kind := range walkKinds {
		t.Run(string(kind), func(t *testing.T) {
			for _, w := range reached(kind) {
				for name, there := range clusters(w) {
					serves := func(res Result) bool { return res.Verdict == VerdictUsable }
					// What it was granted is another's.
					gone := kind == RightRequest && w.Phase == Held && name != "mine"
					// The hourly list of the node's own leases finds it.
					gone = gone || kind == RightLease && w.Phase == "" && there.exists
					if w.Phase == Lost || w.Phase == Frozen || there.refuses || name == "another's" || name == "the lost store's" || gone {
						continue
					}
					if steps, ok := comesTo(w, there, EventWant, serves); !ok {
						t.Fatalf("%+v does not serve, in the cluster: %s\n%s", w, name, steps)
					}
				}
			}
		})
	}
}

// comesTo tells whether a right that is asked for, or let go, and looked at again
// and again comes to where done is true, and by which steps.
func comesTo(w walk, there cluster, ask EventKind, done func(Result) bool) (steps trail, ok bool) {
	w.reg = w.last
	now := walkNow
	for range 6 {
		for _, kind := range []EventKind{ask, EventRecheck} {
			ev := Event{Kind: kind, Now: now}
			for range 12 {
				res := Step(w.Right, w.Self(), ev)
				steps = append(steps, step{w.Phase, ev, res})
				if done(res) {
					return steps, true
				}
				w.Right = res.Next
				if res.Forget {
					w.Right = walkStart(w.Kind).Right
				}
				if res.Call == CallNone {
					break
				}
				ev = Event{Kind: EventAnswer, Call: res.Call, Now: now, Why: "why"}
				ev.Outcome = there.answer(res, w.reg)
				ev.Object = there.object
				if w.Kind == RightRequest {
					ev.Addrs = []netip.Addr{walkAddr}
				}
			}
			now = now.Add(LastRecheck / 2)
		}
	}
	return steps, false
}

// A trail is what happened to a right, step by step.
type trail []step

type step struct {
	was Phase
	ev  Event
	res Result
}

func (t trail) String() string {
	var b strings.Builder
	for _, s := range t {
		fmt.Fprintf(&b, "%q + %v %v %v -> %v %v %v\n", s.was, s.ev.Kind, s.ev.Call, s.ev.Outcome, s.res.Next.Phase, s.res.Call, s.res.Verdict)
	}
	return b.String()
}

// answer is one call at the API server.
func (c *cluster) answer(res Result, term int64) Outcome {
	current := c.object.UID == res.Next.UID && c.object.Revision == res.Next.Revision
	switch {
	case res.Call == CallConfirm && c.refuses:
		return Refused
	case res.Call == CallConfirm:
		return Done
	case res.Call == CallCreate && c.exists:
		return Exists
	case res.Call == CallCreate:
		*c = cluster{exists: true, refuses: c.refuses, object: Object{
			Meta: Meta{Name: res.Next.Name, UID: "u9", Revision: "1"}, Protocol: Version, Node: "a", Store: "s", Term: term, Writes: 1, Matches: true,
		}}
		return Done
	case !c.exists:
		return NotFound
	case res.Call == CallRead:
		return Done
	case !current:
		return Conflict
	case res.Call == CallDelete:
		c.exists = false
		return Done
	default:
		c.object.Revision += "1"
		c.object.Term, c.object.Writes = term, c.object.Writes+1
		c.object.Store, c.object.Ceded = "s", res.Next.CededNext()
		return Done
	}
}

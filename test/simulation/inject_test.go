package simulation_test

import (
	"fmt"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// fault is a bug that a test switches on to see that the model finds it.
type fault uint8

const (
	noFault fault = iota
	faultUnreleaseOnRead
	faultReleasingInMemory
	faultForgetOnTimeout
	faultDeleteWithoutRevision
	faultExistsIsMine
	faultTakeOverEarly
	faultBeatAtAnswer
	faultFreeUnread
	faultCachedClaimUnmarked
	faultServeUnconfirmed
	faultFenceUnchanged
	faultServeAfterBoot
	faultIgnoreTerm
	faultResizeOpen
	faultSiblingsByOwner
	faultOthersClock
)

// step is protocol.Step, but for the faults that are in the steps.
func (f fault) step(d *simDrive, r protocol.Right, self protocol.Self, ev protocol.Event) protocol.Result {
	answer := func(c protocol.Call, o protocol.Outcome) bool {
		return ev.Kind == protocol.EventAnswer && ev.Call == c && ev.Outcome == o
	}
	switch {
	case f == faultUnreleaseOnRead && r.Phase == protocol.Releasing && r.UID != "" && ev.Kind == protocol.EventWant && self.Term != 0:
		return protocol.Result{Next: r, Call: protocol.CallRead}
	case f == faultUnreleaseOnRead && r.Phase == protocol.Releasing && d.wanted && answer(protocol.CallRead, protocol.Done) &&
		ev.Object.Store == self.Store && ev.Object.Term == self.Term && self.Term != 0:
		r.Phase, r.Term = protocol.Held, self.Term
		r.UID, r.Revision = ev.Object.UID, ev.Object.Revision
		return protocol.Result{Next: r, Verdict: protocol.VerdictServes}
	case f == faultForgetOnTimeout && answer(protocol.CallDelete, protocol.Unknown):
		return protocol.Result{Next: r, Forget: true, Verdict: protocol.VerdictGone}
	case f == faultExistsIsMine && r.Kind == protocol.RightLease && answer(protocol.CallCreate, protocol.Exists):
		if l, _ := d.n.w.api.leases.read(r.Name); l.Holder.Node == self.Node {
			ev.Outcome, ev.Object = protocol.Done, r.ObjectOf(l)
			ev.Object.Term = self.Term
		}
	}
	return protocol.Step(r, self, ev)
}

func recordText(r protocol.Right) string {
	if r.Phase == "" {
		return "nothing"
	}
	return fmt.Sprintf("%s(uid %s, rev %s, turn %d, said %d, term %d)", r.Phase, r.UID, r.Revision, r.Turn, r.Said, r.Term)
}

func eventText(ev protocol.Event) string {
	if ev.Kind != protocol.EventAnswer {
		return ev.Kind.String()
	}
	text := fmt.Sprintf("%v %v", ev.Call, ev.Outcome)
	if o := ev.Object; o.UID != "" {
		text += fmt.Sprintf(" (uid %s, rev %s, turn %d, term %d, %s/%s)", o.UID, o.Revision, o.Turn, o.Term, o.Node, o.Store)
	}
	return text
}

func resultText(res protocol.Result) string {
	text := recordText(res.Next)
	if res.Forget {
		text = "forgotten"
	}
	if res.Call != protocol.CallNone {
		text += ", call " + res.Call.String()
	}
	if res.Verdict != protocol.VerdictNone {
		text += ", " + res.Verdict.String()
	}
	if res.Why != "" {
		text += " (" + res.Why + ")"
	}
	return text
}

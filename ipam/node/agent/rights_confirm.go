package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A poolWaitsError says that a lease is not confirmed, and nothing is wrong: its pool is
// to be looked at, by the controller or by this node, before it is known whether it
// serves.
type poolWaitsError struct{ Why string }

func (e *poolWaitsError) Error() string { return e.Why }

// confirmLease decides whether a lease may serve, by its pool as read live with
// outcome read. It may not before the node's registration has been seen: only that may show
// that the API server went back to before the node gave just this lease back. A pool that
// news are due of is a [*poolWaitsError].
func (rs *rights) confirmLease(r protocol.Right, p protocol.Pool, read protocol.Outcome) (protocol.Outcome, error) {
	out, why := protocol.Confirmation(r, p, read)
	if out == protocol.Done && rs.pools.behind(p) {
		out, why = protocol.Unknown, fmt.Sprintf("pool %s was edited, and what was read of it is not what this node has heard", r.Pool)
	}
	if out == protocol.Done && !rs.reg.isSeen() {
		return protocol.Unknown, errEarly
	}
	switch out {
	case protocol.Done:
		return out, nil
	case protocol.Unknown:
		return out, &poolWaitsError{Why: why}
	case protocol.NotFound, protocol.Exists, protocol.Conflict, protocol.Refused:
	}
	return out, errors.New(why)
}

// confirmUse reads live what a use rests on, in the order that docs/contributing/protocol.md
// gives: the other name, then the claim and the leases of its addresses.
func (rs *rights) confirmUse(ctx context.Context, self protocol.Self, ev protocol.Event, r protocol.Right) (protocol.Event, error) {
	if err := rs.pools.rightUnderRestore(r); err != nil {
		return ev, err // its outcome is unknown, as until the last read
	}
	e := protocol.UseEvidence{Own: *r.Use, Addrs: r.Addrs, Vanished: r.Term == 0}
	other, out, err := rs.cl.SubLeases.ReadSubLease(ctx, otherUse(r))
	switch out {
	case protocol.Done:
		e.Other = &other
	case protocol.NotFound:
	case protocol.Unknown, protocol.Exists, protocol.Conflict, protocol.Refused:
		return ev, err
	}
	e.Claim, out, err = rs.cl.Claims.ReadClaim(ctx, r.Use.Claim.Namespace, r.Use.Claim.Name)
	if out != protocol.Done && out != protocol.NotFound {
		return ev, err
	}
	for _, name := range r.Leases {
		l, out, err := rs.cl.Leases.ReadLease(ctx, name)
		switch out {
		case protocol.Done:
			e.Leases = append(e.Leases, l)
		case protocol.NotFound:
		case protocol.Unknown, protocol.Exists, protocol.Conflict, protocol.Refused:
			return ev, err
		}
	}
	if earlier, ok := e.Earlier(self.Node); ok {
		rs.background(func(ctx context.Context) { rs.endEarlier(ctx, earlier) })
	}
	answer := protocol.ConfirmUse(self, e)
	ev.Outcome, ev.Passes, ev.Why = answer.Outcome, answer.Passes, answer.Why
	if answer.Outcome != protocol.Done {
		ev.Keeps = e.Keeps()
	}
	return ev, nil
}

// confirmRequest decides by what the call before it has shown live
// of the sub-lease: one that was only just created has no answer, and what has been read
// need not be read again. Another object under the name is a matter for the next read.
func (rs *rights) confirmRequest(ev protocol.Event, r protocol.Right, s protocol.SubLease) (protocol.Event, error) {
	if s.UID != r.UID {
		ev.Outcome = protocol.Unknown
		return ev, fmt.Errorf("request %s: the API server shows one with UID %s, want %s", r.Name, s.UID, r.UID)
	}
	ev.Addrs, ev.Leases, ev.Outcome, ev.Why = protocol.ConfirmRequest(r, s, rs.pools.rightUnderRestore(r) != nil)
	if ev.Outcome == protocol.Refused && s.Refused != nil {
		rs.requests.refuse(r.Name, *s.Refused)
	}
	return ev, nil
}

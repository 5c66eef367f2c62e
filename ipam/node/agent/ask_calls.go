package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// callRequest sends a step's call about a request. shown is the sub-lease as the last
// answer of this drive showed it.
func (a *Agent) callRequest(ctx context.Context, self protocol.Self, r protocol.Right, call protocol.Call, shown *protocol.SubLease) (protocol.Event, error) {
	ev := protocol.Event{Kind: protocol.EventAnswer, Call: call}
	var s protocol.SubLease
	var err error
	switch call {
	case protocol.CallCreate:
		s, ev.Outcome, err = a.cl.SubLeases.CreateSubLease(ctx, protocol.SubLease{
			Meta: protocol.Meta{Name: r.Name}, Protocol: protocol.Version, Node: self.Node, Store: self.Store, Term: self.Term, Turn: 1, Request: r.Request,
		})
	case protocol.CallRead:
		s, ev.Outcome, err = a.cl.SubLeases.ReadSubLease(ctx, r.Name)
	case protocol.CallFence:
		old := protocol.SubLease{Meta: meta(r), Protocol: protocol.Version, Term: r.Asserted, Turn: r.Turn}
		next := old
		next.Term, next.Turn = self.Term, r.Turn+1
		s, ev.Outcome, err = a.cl.SubLeases.UpdateSubLease(ctx, old, next)
	case protocol.CallDelete:
		ev.Outcome, err = a.cl.SubLeases.DeleteSubLease(ctx, meta(r))
	case protocol.CallConfirm:
		return a.confirmRequest(ev, r, *shown)
	case protocol.CallNone:
		panic("agent: no call to send")
	}
	*shown = s
	ev.Object = r.ObjectOfRequest(s)
	return ev, err
}

// An awaitedError says what has to come before a right can be confirmed. The API server
// has answered: nothing is wrong.
type awaitedError struct{ why string }

func (e *awaitedError) Error() string { return e.why }

// confirmRequest decides by what the call before it, of the same drive, has shown live
// of the sub-lease: one that was only just created has no answer, and what has been read
// need not be read again. Another object under the name is a matter for the next read.
func (a *Agent) confirmRequest(ev protocol.Event, r protocol.Right, s protocol.SubLease) (protocol.Event, error) {
	if s.UID != r.UID {
		ev.Outcome = protocol.Unknown
		return ev, fmt.Errorf("request %s: the API server shows one with UID %s, want %s", r.Name, s.UID, r.UID)
	}
	var why string
	ev.Addrs, ev.Leases, ev.Outcome, why = protocol.ConfirmRequest(r, s, a.withheldRight(r) != nil)
	switch ev.Outcome {
	case protocol.Done:
		return ev, nil
	case protocol.Refused:
		if s.Refused != nil {
			a.requests.refuse(r.Name, *s.Refused)
		}
		return ev, errors.New(why)
	case protocol.Unknown, protocol.NotFound, protocol.Exists, protocol.Conflict:
	}
	return ev, &awaitedError{why}
}

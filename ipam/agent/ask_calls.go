package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// callRequest sends a step's call about a request.
func (a *Agent) callRequest(ctx context.Context, self protocol.Self, r protocol.Right, call protocol.Call) (protocol.Event, error) {
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
		old := protocol.SubLease{Meta: meta(r), Protocol: protocol.Version, Term: r.Said, Turn: r.Turn}
		next := old
		next.Term, next.Turn = self.Term, r.Turn+1
		s, ev.Outcome, err = a.cl.SubLeases.UpdateSubLease(ctx, old, next)
	case protocol.CallDelete:
		ev.Outcome, err = a.cl.SubLeases.DeleteSubLease(ctx, meta(r))
	case protocol.CallConfirm:
		return a.confirmRequest(ctx, ev, r)
	case protocol.CallNone:
		panic("agent: no call to send")
	}
	ev.Object = r.ObjectOfRequest(s)
	return ev, err
}

// errAwaited says that the controller has not answered a request yet: nothing is
// wrong.
var errAwaited = errors.New("waits for the controller")

// confirmRequest reads live what the controller has answered. Another object under
// the name is a matter for the next read.
func (a *Agent) confirmRequest(ctx context.Context, ev protocol.Event, r protocol.Right) (protocol.Event, error) {
	s, out, err := a.cl.SubLeases.ReadSubLease(ctx, r.Name)
	if out != protocol.Done || s.UID != r.UID {
		ev.Outcome = protocol.Unknown
		if err == nil {
			err = fmt.Errorf("request %s: read %v with UID %s, want %s", r.Name, out, s.UID, r.UID)
		}
		return ev, err
	}
	var why string
	ev.Addrs, ev.Leases, ev.Outcome, why = protocol.ConfirmRequest(s)
	switch ev.Outcome {
	case protocol.Done:
		return ev, nil
	case protocol.Refused:
		a.requests.refuse(r.Name, *s.Refused)
		return ev, errors.New(why)
	case protocol.Unknown, protocol.NotFound, protocol.Exists, protocol.Conflict:
	}
	return ev, fmt.Errorf("%w: %s", errAwaited, why)
}

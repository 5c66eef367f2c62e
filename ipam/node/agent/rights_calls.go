package agent

import (
	"cmp"
	"context"
	"net/netip"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// call sends a step's call, of the step's self, and returns its answer, and what was
// wrong with it. Of a request it keeps what the answer has shown for the call after it.
func (rs *rights) call(ctx context.Context, self protocol.Self, res protocol.Result, request *protocol.SubLease) (ev protocol.Event, err error) {
	r, asked := res.Next, rs.sched.Now().Wall
	ev = protocol.Event{Kind: protocol.EventAnswer, Call: res.Call}
	switch r.Kind {
	case protocol.RightLease:
		ev.Object, ev.Outcome, err = rs.callLease(ctx, self, r, res.Call)
	case protocol.RightUse:
		ev, err = rs.callUse(ctx, self, ev, r)
	case protocol.RightRequest:
		ev, err = rs.callRequest(ctx, self, r, res.Call, request)
	}
	rs.metrics.apiCall(r.Kind, res.Call, ev.Outcome)
	ev.Now = asked
	if err != nil {
		ev.Why = err.Error()
	}
	return ev, err
}

// callLease sends a step's call about a lease.
func (rs *rights) callLease(ctx context.Context, self protocol.Self, r protocol.Right, call protocol.Call) (protocol.Object, protocol.Outcome, error) {
	var l protocol.Lease
	var out protocol.Outcome
	var err error
	switch call {
	case protocol.CallCreate:
		l, out, err = rs.cl.Leases.CreateLease(ctx, protocol.Lease{
			Meta: protocol.Meta{Name: r.Name}, Protocol: protocol.Version, Pool: r.Pool, PoolUID: r.PoolUID, Block: r.Block,
			Holder: protocol.Holder{Node: self.Node}, Store: self.Store, Term: self.Term, Writes: 1, Ceded: r.CededNext(),
		})
	case protocol.CallRead:
		l, out, err = rs.cl.Leases.ReadLease(ctx, r.Name)
	case protocol.CallFence:
		next := protocol.Lease{
			Meta: meta(r), Protocol: protocol.Version, Pool: r.Pool, Block: r.Block, Holder: protocol.Holder{Node: self.Node},
			Store: self.Store, Term: self.Term, Writes: r.Writes + 1, Ceded: r.CededNext(),
		}
		old := next
		old.Store, old.Term, old.Writes, old.Ceded = cmp.Or(r.Store, self.Store), r.Asserted, r.Writes, nil
		// What is ceded is written whatever the object may have: earlier writes may not have
		// landed.
		if len(next.Ceded) == 0 {
			old.Ceded = r.Ceded
		}
		l, out, err = rs.cl.Leases.UpdateLease(ctx, old, next)
	case protocol.CallDelete:
		out, err = rs.cl.Leases.DeleteLease(ctx, meta(r))
	case protocol.CallConfirm:
		p, out, err := rs.cl.Pools.ReadPool(ctx, r.Pool)
		if out == protocol.Done || out == protocol.NotFound {
			out, err = rs.confirmLease(r, p, out)
		}
		return protocol.Object{}, out, err
	case protocol.CallNone:
		panic("agent: no call to send")
	}
	return r.ObjectOf(l), out, err
}

// callUse sends a step's call about the use of a claim, and completes its answer ev.
func (rs *rights) callUse(ctx context.Context, self protocol.Self, ev protocol.Event, r protocol.Right) (protocol.Event, error) {
	var s protocol.SubLease
	var out protocol.Outcome
	var err error
	switch ev.Call {
	case protocol.CallCreate:
		s, out, err = rs.cl.SubLeases.CreateSubLease(ctx, protocol.SubLease{
			Meta: protocol.Meta{Name: r.Name}, Protocol: protocol.Version, Node: self.Node, Store: self.Store, Term: self.Term, Writes: 1, Use: r.Use,
		})
	case protocol.CallRead:
		s, out, err = rs.cl.SubLeases.ReadSubLease(ctx, r.Name)
	case protocol.CallFence:
		old := protocol.SubLease{Meta: meta(r), Protocol: protocol.Version, Term: r.Asserted, Writes: r.Writes, Use: &protocol.Use{}}
		next := old
		next.Term, next.Writes, next.Use = self.Term, r.Writes+1, r.Use
		s, out, err = rs.cl.SubLeases.UpdateSubLease(ctx, old, next)
	case protocol.CallDelete:
		out, err = rs.cl.SubLeases.DeleteSubLease(ctx, meta(r))
	case protocol.CallConfirm:
		return rs.confirmUse(ctx, self, ev, r)
	case protocol.CallNone:
		panic("agent: no call to send")
	}
	ev.Object, ev.Outcome = r.ObjectOfUse(s), out
	return ev, err
}

// callRequest sends a step's call about a request. shown is the sub-lease as the last
// answer showed it while it was settled.
func (rs *rights) callRequest(ctx context.Context, self protocol.Self, r protocol.Right, call protocol.Call, shown *protocol.SubLease) (protocol.Event, error) {
	ev := protocol.Event{Kind: protocol.EventAnswer, Call: call}
	var s protocol.SubLease
	var err error
	switch call {
	case protocol.CallCreate:
		s, ev.Outcome, err = rs.cl.SubLeases.CreateSubLease(ctx, protocol.SubLease{
			Meta: protocol.Meta{Name: r.Name}, Protocol: protocol.Version, Node: self.Node, Store: self.Store, Term: self.Term, Writes: 1, Request: r.Request,
		})
	case protocol.CallRead:
		s, ev.Outcome, err = rs.cl.SubLeases.ReadSubLease(ctx, r.Name)
	case protocol.CallFence:
		old := protocol.SubLease{Meta: meta(r), Protocol: protocol.Version, Term: r.Asserted, Writes: r.Writes}
		next := old
		next.Term, next.Writes = self.Term, r.Writes+1
		s, ev.Outcome, err = rs.cl.SubLeases.UpdateSubLease(ctx, old, next)
	case protocol.CallDelete:
		ev.Outcome, err = rs.cl.SubLeases.DeleteSubLease(ctx, meta(r))
	case protocol.CallConfirm:
		return rs.confirmRequest(ev, r, *shown)
	case protocol.CallNone:
		panic("agent: no call to send")
	}
	*shown = s
	ev.Object = r.ObjectOfRequest(s)
	return ev, err
}

func meta(r protocol.Right) protocol.Meta {
	return protocol.Meta{Name: r.Name, UID: r.UID, Revision: r.Revision}
}

// leaseRight returns the record of a lease that is not known yet.
func leaseRight(p Pool, block netip.Prefix) protocol.Right {
	name := protocol.PoolName(p.Name)
	return protocol.Right{Kind: protocol.RightLease, Name: protocol.LeaseName(name, block), LeaseRight: protocol.LeaseRight{Pool: name, PoolUID: p.UID, Block: block}}
}

func otherUse(r protocol.Right) string {
	if first := protocol.UseName(r.Use.Claim.UID, 0); r.Name != first {
		return first
	}
	return protocol.UseName(r.Use.Claim.UID, 1)
}

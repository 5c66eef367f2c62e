package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// callLease sends a step's call about a lease.
func (a *Agent) callLease(ctx context.Context, self protocol.Self, r protocol.Right, call protocol.Call) (protocol.Object, protocol.Outcome, error) {
	var l protocol.Lease
	var out protocol.Outcome
	var err error
	switch call {
	case protocol.CallCreate:
		l, out, err = a.cl.Leases.CreateLease(ctx, protocol.Lease{
			Meta: protocol.Meta{Name: r.Name}, Protocol: protocol.Version, Pool: r.Pool, PoolUID: r.PoolUID, Block: r.Block,
			Holder: protocol.Holder{Node: self.Node}, Store: self.Store, Term: self.Term, Turn: 1, Ceded: r.CededNext(),
		})
	case protocol.CallRead:
		l, out, err = a.cl.Leases.ReadLease(ctx, r.Name)
	case protocol.CallFence:
		next := protocol.Lease{
			Meta: meta(r), Protocol: protocol.Version, Pool: r.Pool, Block: r.Block, Holder: protocol.Holder{Node: self.Node},
			Store: self.Store, Term: self.Term, Turn: r.Turn + 1, Ceded: r.CededNext(),
		}
		old := next
		old.Store, old.Term, old.Turn, old.Ceded = cmp.Or(r.Store, self.Store), r.Asserted, r.Turn, nil
		// What is ceded is written whatever the object may have: earlier writes may not have
		// landed.
		if len(next.Ceded) == 0 {
			old.Ceded = r.Ceded
		}
		l, out, err = a.cl.Leases.UpdateLease(ctx, old, next)
	case protocol.CallDelete:
		out, err = a.cl.Leases.DeleteLease(ctx, meta(r))
	case protocol.CallConfirm:
		p, out, err := a.cl.Pools.ReadPool(ctx, r.Pool)
		if out == protocol.Done || out == protocol.NotFound {
			out, err = a.confirmLease(r, p, out)
		}
		return protocol.Object{}, out, err
	case protocol.CallNone:
		panic("agent: no call to send")
	}
	return r.ObjectOf(l), out, err
}

func meta(r protocol.Right) protocol.Meta {
	return protocol.Meta{Name: r.Name, UID: r.UID, Revision: r.Revision}
}

// confirmLease decides whether a lease may serve, by its pool as read live with
// outcome read. It may not before the node's registration has been seen: only that may show
// that the API server went back to before the node gave just this lease back. A pool that
// news are due of is a [*poolWaitsError].
func (a *Agent) confirmLease(r protocol.Right, p protocol.Pool, read protocol.Outcome) (protocol.Outcome, error) {
	out, why := protocol.Confirmation(r, p, read)
	if out == protocol.Done && a.behind(p) {
		out, why = protocol.Unknown, fmt.Sprintf("pool %s was edited, and what was read of it is not what this node has heard", r.Pool)
	}
	if out == protocol.Done && !a.regSeen() {
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

// A poolWaitsError says that a lease is not confirmed, and nothing is wrong: its pool is
// to be looked at, by the controller or by this node, before it is known whether it
// serves.
type poolWaitsError struct{ Why string }

func (e *poolWaitsError) Error() string { return e.Why }

// leaseRight returns the record of a lease that is not known yet.
func leaseRight(p Pool, block netip.Prefix) protocol.Right {
	name := protocol.PoolName(p.Name)
	return protocol.Right{Kind: protocol.RightLease, Name: protocol.LeaseName(name, block), LeaseRight: protocol.LeaseRight{Pool: name, PoolUID: p.UID, Block: block}}
}

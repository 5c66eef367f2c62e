package simulation

import (
	"context"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/node/agent"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// agentCalls are the agent's calls to the API server: each pauses the routine that makes it
// until the scheduler has the answer come, or its context ends.
type agentCalls struct{ *simAgent }

func (a *simAgent) cluster() agent.Cluster {
	c := agentCalls{a}
	all := agent.Cluster{Leases: c, SubLeases: c, Registrations: c, Claims: c, Pools: c, Pods: c, Events: noEvents{}, Access: everybody{}}
	if a.n.w.kind.devices {
		all.ResourceClaims = c
	}
	return all
}

// agentCall makes one call.
func agentCall[T any](ctx context.Context, c agentCalls, what string, write bool, serve func() (T, protocol.Outcome)) (T, protocol.Outcome, error) {
	n := c.n
	if c.dead {
		panic(processEnd{})
	}
	c.mayDie()
	return request(&n.caller, what, write, serve, func(commit func()) error {
		r, answered, err := c.running, false, errNoAnswer
		x := n.ask(what, write, commit, func(known bool) {
			if answered = true; known {
				err = nil
			}
			c.resume(r)
		})
		x.reg, c.beating = c.beating, false
		for !answered && ctx.Err() == nil {
			c.pause(func() bool { return ctx.Err() != nil })
		}
		if answered {
			return err
		}
		n.pending = slices.DeleteFunc(n.pending, func(o *exchange) bool { return o == x })
		n.w.abandon(x)
		return context.Cause(ctx)
	})
}

func (c agentCalls) CreateLease(ctx context.Context, l protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	got, out, err := agentCall(ctx, c, "create of "+l.Name, true, func() (protocol.Lease, protocol.Outcome) { return c.n.w.api.leases.create(l) })
	if there, ok := c.mistaken(l); out == protocol.Exists && ok {
		return there, protocol.Done, nil
	}
	return got, out, err
}

func (c agentCalls) ReadLease(ctx context.Context, name string) (protocol.Lease, protocol.Outcome, error) {
	l, out, err := agentCall(ctx, c, "read of "+name, false, func() (protocol.Lease, protocol.Outcome) { return c.n.w.api.leases.read(name) })
	if c.n.w.fault == "M27" && l.Holder.Node == "" && out != protocol.Unknown {
		return c.n.w.believed(name)
	}
	return l, out, err
}

// remove sends a delete, which the API server never takes to name anything.
func (c agentCalls) remove(ctx context.Context, m protocol.Meta, remove func(protocol.Meta) protocol.Outcome) (protocol.Outcome, error) {
	_, out, err := agentCall(ctx, c, c.n.w.text("delete of %s (uid %s, rev %s)", m.Name, m.UID, m.Revision), true, func() (struct{}, protocol.Outcome) {
		if m.UID == "" || m.Revision == "" {
			return struct{}{}, protocol.Conflict
		}
		if c.n.w.fault == "M4" {
			m.Revision = ""
		}
		return struct{}{}, remove(m)
	})
	return out, err
}

// mistaken returns the lease that a create of l has met, if the agent takes it for the one that
// it has just created.
func (c agentCalls) mistaken(l protocol.Lease) (there protocol.Lease, ok bool) {
	there, _ = c.n.w.api.leases.read(l.Name)
	switch c.n.w.fault {
	case "M3":
		return there, there.Store == l.Store && there.Term == l.Term
	case "M5":
		ok = there.Holder.Node == c.n.name
		there.Store, there.Term = l.Store, l.Term
	default:
	}
	return there, ok
}

func (c agentCalls) UpdateLease(ctx context.Context, old, next protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	if c.n.w.fault == "M43" {
		next.Writes = old.Writes
	}
	l, out, err := agentCall(ctx, c, c.n.w.text("update of %s (uid %s, rev %s, turn %d)", old.Name, old.UID, old.Revision, next.Writes), true, func() (protocol.Lease, protocol.Outcome) {
		return c.n.w.api.leases.update(old.Meta, func(l *protocol.Lease) {
			l.Store, l.Term, l.Writes = next.Store, next.Term, next.Writes
			if !slices.Equal(old.Ceded, next.Ceded) {
				l.Ceded = slices.Clone(next.Ceded)
			}
		})
	})
	if r := c.n.disk.rights[old.Name]; c.n.w.fault == "M11" && out == protocol.Unknown && len(r.Taking) > 0 {
		next.Meta = old.Meta
		return next, protocol.Done, nil
	}
	return l, out, err
}

func (c agentCalls) DeleteLease(ctx context.Context, m protocol.Meta) (protocol.Outcome, error) {
	out, err := c.remove(ctx, m, func(m protocol.Meta) protocol.Outcome { return c.n.w.deleteLease(c.n.machine, m) })
	if c.n.w.fault == "M3" && out == protocol.Unknown {
		return protocol.Done, nil
	}
	return out, err
}

func (c agentCalls) PublishLease(ctx context.Context, name string, uid protocol.UID, p protocol.Publication) (protocol.Outcome, error) {
	_, out, err := agentCall(ctx, c, c.n.w.text("status of %s, recall %q", name, p.Answered), true, func() (protocol.Lease, protocol.Outcome) {
		return c.n.w.api.leases.update(protocol.Meta{Name: name, UID: uid}, func(l *protocol.Lease) {
			l.Published.Allocations = slices.Clone(p.Allocations)
			if p.Answered != "" {
				l.Published.Answered = p.Answered
			}
		})
	})
	return out, err
}

func (c agentCalls) NodeLeases(ctx context.Context, node protocol.NodeName) ([]protocol.Lease, protocol.Revision, error) {
	all, rev, err := listedAt(ctx, c, "list of its leases", c.n.w.api.leases, func(l protocol.Lease) bool { return l.Holder.Node == node })
	if c.n.w.fault == "M52" {
		all = nil
	}
	return all, rev, err
}

// listedAt lists those objects of a table that keep accepts, and says as of which revision.
func listedAt[T any](ctx context.Context, c agentCalls, what string, t *simTable[T], keep func(T) bool) (all []T, rev protocol.Revision, err error) {
	all, _, err = agentCall(ctx, c, what, false, func() ([]T, protocol.Outcome) {
		rev = revisionOf(t.api.revision)
		return t.list(keep), protocol.Done
	})
	return all, rev, err
}

func (c agentCalls) CreateSubLease(ctx context.Context, s protocol.SubLease) (protocol.SubLease, protocol.Outcome, error) {
	return agentCall(ctx, c, "create of "+s.Name, true, func() (protocol.SubLease, protocol.Outcome) {
		got, out := c.n.w.api.subs.create(s)
		if out == protocol.Done {
			c.n.w.noteUser(got)
		}
		return got, out
	})
}

func (c agentCalls) ReadSubLease(ctx context.Context, name string) (protocol.SubLease, protocol.Outcome, error) {
	return agentCall(ctx, c, "read of "+name, false, func() (protocol.SubLease, protocol.Outcome) { return c.n.w.api.subs.read(name) })
}

func (c agentCalls) UpdateSubLease(ctx context.Context, old, next protocol.SubLease) (protocol.SubLease, protocol.Outcome, error) {
	if c.n.w.fault == "M43" {
		next.Writes = old.Writes
	}
	return agentCall(ctx, c, c.n.w.text("update of %s (uid %s, rev %s, turn %d)", old.Name, old.UID, old.Revision, next.Writes), true, func() (protocol.SubLease, protocol.Outcome) {
		return c.n.w.api.subs.update(old.Meta, func(s *protocol.SubLease) {
			s.Term, s.Writes = next.Term, next.Writes
			if old.Use != nil && next.Use != nil && *old.Use != *next.Use {
				use := *next.Use
				s.Use = &use
			}
		})
	})
}

func (c agentCalls) DeleteSubLease(ctx context.Context, m protocol.Meta) (protocol.Outcome, error) {
	return c.remove(ctx, m, c.n.w.api.subs.remove)
}

func (c agentCalls) NodeSubLeases(ctx context.Context, node protocol.NodeName) ([]protocol.SubLease, protocol.Revision, error) {
	return listedAt(ctx, c, "list of its sub-leases", c.n.w.api.subs, func(s protocol.SubLease) bool { return s.Node == node })
}

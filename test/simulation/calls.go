package simulation

import (
	"context"
	"net/netip"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// liveCalls are the controller's calls to the API server, as ipam/kube has them:
// each pauses the routine that makes it until the scheduler has the answer come.
type liveCalls struct{ *simController }

// call makes one call.
func call[T any](c *simController, what string, write bool, serve func() (T, protocol.Outcome)) (T, protocol.Outcome, error) {
	return request(&c.caller, what, write, serve, func(commit func()) error {
		r, err := c.running, errNoAnswer
		c.ask(what, write, commit, func(known bool) {
			if known {
				err = nil
			}
			c.resume(r)
		})
		c.pause(nil)
		return err
	})
}

func (c liveCalls) CreateLease(_ context.Context, l protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	return call(c.simController, "create of "+l.Name, true, func() (protocol.Lease, protocol.Outcome) { return c.w.api.leases.create(l) })
}

func (c liveCalls) ReadLease(_ context.Context, name string) (protocol.Lease, protocol.Outcome, error) {
	return call(c.simController, "read of "+name, false, func() (protocol.Lease, protocol.Outcome) { return c.w.api.leases.read(name) })
}

func (c liveCalls) UpdateLease(_ context.Context, old, next protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	switch c.w.fault {
	case "M14":
		old.Revision = ""
	case "M38":
		next = next.Clone()
		for i := range next.Grants {
			next.Grants[i].Freeing, next.Grants[i].Mark = false, ""
		}
	default:
	}
	return call(c.simController, "update of "+old.Name, true, func() (protocol.Lease, protocol.Outcome) {
		return c.w.api.leases.update(old.Meta, func(l *protocol.Lease) { *l = next.Clone() })
	})
}

func (c liveCalls) DeleteLease(_ context.Context, m protocol.Meta) (protocol.Outcome, error) {
	if c.w.fault == "M13" {
		m.Revision = ""
	}
	return c.write("delete of "+m.Name, func() protocol.Outcome { return c.w.deleteLease(c.who, m) })
}

// write makes a call of which the outcome is all that is wanted.
func (c *simController) write(what string, serve func() protocol.Outcome) (protocol.Outcome, error) {
	_, out, err := call(c, what, true, func() (struct{}, protocol.Outcome) { return struct{}{}, serve() })
	return out, err
}

func (c liveCalls) Leases(context.Context) ([]protocol.Lease, error) {
	return listOf(c, "list of leases", c.w.api.leases, nil)
}

func (c liveCalls) LeasesOfPool(_ context.Context, pool protocol.PoolName) ([]protocol.Lease, error) {
	return listOf(c, "list of the leases of "+string(pool), c.w.api.leases, func(l protocol.Lease) bool { return l.Pool == pool })
}

// listOf lists those objects of a table that keep accepts.
func listOf[T any](c liveCalls, what string, t *simTable[T], keep func(T) bool) ([]T, error) {
	all, _, err := call(c.simController, what, false, func() ([]T, protocol.Outcome) { return t.list(keep), protocol.Done })
	return all, err
}

func (c liveCalls) ReadPool(_ context.Context, name protocol.PoolName) (protocol.Pool, protocol.Outcome, error) {
	return call(c.simController, "read of pool "+string(name), false, func() (protocol.Pool, protocol.Outcome) { return c.w.api.readPool(name) })
}

func (c liveCalls) ReadIPPool(_ context.Context, name protocol.PoolName) (*v1alpha1.IPPool, protocol.Outcome, error) {
	p, out, err := call(c.simController, "read of pool "+string(name), false, func() (simPool, protocol.Outcome) {
		return c.w.api.pools.read(string(name))
	})
	if out != protocol.Done {
		return nil, out, err
	}
	return p.object(), out, nil
}

func (c liveCalls) IPPools(context.Context) ([]v1alpha1.IPPool, error) {
	all, _, err := call(c.simController, "list of pools", false, func() (all []v1alpha1.IPPool, _ protocol.Outcome) {
		for _, p := range c.w.api.pools.list(nil) {
			all = append(all, *p.object())
		}
		return all, protocol.Done
	})
	return all, err
}

func (c liveCalls) Registrations(context.Context) ([]protocol.Registration, error) {
	return listOf(c, "list of registrations", c.w.api.regs, nil)
}

func (c liveCalls) ReadClaim(_ context.Context, _, name string) (protocol.Claim, protocol.Outcome, error) {
	return call(c.simController, "read of claim "+name, false, func() (protocol.Claim, protocol.Outcome) { return c.w.api.readClaim(name) })
}

func (c liveCalls) ReadSubLease(_ context.Context, name string) (protocol.SubLease, protocol.Outcome, error) {
	return call(c.simController, "read of use "+name, false, func() (protocol.SubLease, protocol.Outcome) { return c.w.api.subs.read(name) })
}

// UpdateSubLease changes what identifies the holder, and never the answer.
func (c liveCalls) UpdateSubLease(_ context.Context, old, next protocol.SubLease) (protocol.SubLease, protocol.Outcome, error) {
	return call(c.simController, "update of "+old.Name, true, func() (protocol.SubLease, protocol.Outcome) {
		return c.w.api.subs.update(old.Meta, func(s *protocol.SubLease) {
			granted, refused := s.Granted, s.Refused
			*s = cloneSub(next)
			s.Granted, s.Refused = granted, refused
		})
	})
}

// AnswerSubLease writes the answer alone, and that once.
func (c liveCalls) AnswerSubLease(_ context.Context, answer protocol.SubLease) (protocol.Outcome, error) {
	return c.write("answer to "+answer.Name, func() protocol.Outcome {
		if s, out := c.w.api.subs.read(answer.Name); out == protocol.Done && s.Answered() && c.w.fault != "M53" {
			return protocol.Refused
		}
		if c.w.fault == "M53" {
			answer.Revision = ""
		}
		_, out := c.w.api.subs.update(answer.Meta, func(s *protocol.SubLease) { s.Granted, s.Refused = answer.Granted, answer.Refused })
		return out
	})
}

func (c liveCalls) TellLabels(_ context.Context, m protocol.Meta, labels string) (protocol.Outcome, error) {
	return c.write(c.w.text("labels %s for %s", labels, m.Name), func() protocol.Outcome {
		_, out := c.w.api.regs.update(protocol.Meta{Name: m.Name, UID: m.UID}, func(to *protocol.Registration) { to.Labels = labels })
		return out
	})
}

// deleteLease deletes a lease for who, of which nothing must be granted.
func (w *world) deleteLease(who string, m protocol.Meta) protocol.Outcome {
	l, _ := w.api.leases.read(m.Name)
	out := w.api.leases.remove(m)
	if out == protocol.Done && len(l.Grants) > 0 {
		w.fail(I1, "%s deleted lease %s, of which %v is granted", who, l.Name, l.Grants[0].Addr)
	}
	return out
}

// claimReads are the claims' reconciler's reads.
type claimReads struct{ liveCalls }

func (c claimReads) ReadClaim(ctx context.Context, namespace, name string) (protocol.Claim, protocol.Outcome, error) {
	if c.w.fault == "M24" {
		claim, out := c.claims.read(name)
		return claim.Claim, out, nil
	}
	return c.liveCalls.ReadClaim(ctx, namespace, name)
}

func (c claimReads) ReadSubLease(ctx context.Context, name string) (protocol.SubLease, protocol.Outcome, error) {
	switch c.w.fault {
	case "M16":
		s, out := c.subs.read(name)
		return s, out, nil
	case "M25":
		return protocol.SubLease{}, protocol.NotFound, nil
	default:
		return c.liveCalls.ReadSubLease(ctx, name)
	}
}

// granter is the broker for the claims' reconciler: where that waits for a round,
// its routine does.
type granter struct {
	*grants.Broker
	c *simController
}

func (g granter) Mark(_ context.Context, held []grants.Held) ([]grants.Held, error) {
	if err := g.change(grants.Mark, held); err != nil {
		return nil, err
	}
	return g.Marked(held), nil
}

func (g granter) Unmark(_ context.Context, h []grants.Held) error { return g.change(grants.Unmark, h) }
func (g granter) Clear(_ context.Context, h []grants.Held) error  { return g.change(grants.Clear, h) }
func (g granter) Drop(_ context.Context, h []grants.Held) error   { return g.change(grants.Drop, h) }

func (g granter) change(v grants.Verb, held []grants.Held) error {
	done := g.Submit(v, held)
	g.c.await(func() bool { return len(done) > 0 })
	return <-done
}

// Ask is, with M37, an ask for one address after the other, in any order. With M63 what another pod
// shows is asked for that pod.
func (g granter) Ask(a grants.Ask) grants.Answer {
	if g.c.w.fault == "M63" && a.To.Kind == protocol.GranteePod {
		a.To = g.c.forger(a.From[0].Addr, a.To)
	}
	answer := g.Broker.Ask(a)
	if g.c.w.fault != "M37" || len(answer.Granted) > 0 {
		return answer
	}
	for i := range a.From {
		one := a
		one.From = a.From[i : i+1]
		if len(g.Broker.Ask(one).Granted) == 0 {
			return grants.Answer{}
		}
	}
	return g.Broker.Ask(a)
}

// forger is M63: the pod to whose status somebody has written an address that another has.
func (c *simController) forger(a netip.Addr, found protocol.Grantee) protocol.Grantee {
	p := firstOf(c.w.all, func(p *simPod) bool { return p.forged == a })
	if p == nil {
		return found
	}
	return protocol.Grantee{Kind: protocol.GranteePod, UID: p.ref.UID, Namespace: p.ref.Namespace, Name: p.ref.Name, Node: p.node.name}
}

package simulation

import (
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A simDrive steps one right until there is nothing to call, as the agent's drive
// does. Each step and each call is a turn of its own.
type simDrive struct {
	n     *simNode
	fresh protocol.Right
	done  func(protocol.Right, protocol.Result)

	wanted bool                 // it began with a want or a renewal
	memory *protocol.Right      // of M2: what is not on disk
	claim  protocol.Claim       // the claim as the ADD found it
	shown  protocol.UseEvidence // what a confirmation has read so far
}

// drive begins to step a right from ev on, unless that is under way already.
// fresh is the record where the disk has none.
func (n *simNode) drive(fresh protocol.Right, ev protocol.Event, done func(protocol.Right, protocol.Result)) {
	if n.agent.busy[fresh.Name] {
		return
	}
	n.agent.busy[fresh.Name] = true
	d := &simDrive{n: n, fresh: fresh, done: done, wanted: ev.Kind == protocol.EventWant || ev.Kind == protocol.EventRenew}
	if ev.Use != nil {
		d.claim, _ = n.w.api.claims.read(ev.Use.Claim.Name)
	}
	d.step(ev)
}

// step is one transaction of the store, and plans the call that follows it.
func (d *simDrive) step(ev protocol.Event) {
	n, w := d.n, d.n.w
	ev.Now = n.now().Wall
	was, known := n.disk.rights[d.fresh.Name]
	if !known {
		was = d.fresh
		was.Phase = ""
	}
	if d.memory != nil {
		was, d.memory = *d.memory, nil
	}
	self := protocol.Self{Node: n.name, Store: n.disk.store}
	if n.agent.sitting.Term != 0 {
		self.Term = n.disk.term
	}
	if _, used := n.disk.used[was.Name]; used && ev.Kind == protocol.EventLetGo {
		delete(n.agent.busy, was.Name)
		return
	}
	res := w.fault.step(d, was, self, ev)
	if w.tracing {
		w.logf("%s: %s: %s + %s -> %s", n.machine, was.Name, recordText(was), eventText(ev), resultText(res))
	}
	switch {
	case w.fault == M2 && ev.Kind == protocol.EventLetGo && was.Phase == protocol.Held:
		d.memory = &res.Next
	case !res.Forget:
		n.disk.rights[was.Name] = res.Next
	case known:
		delete(n.disk.rights, was.Name)
	}
	if res.Call != protocol.CallNone {
		n.later(func() { d.send(res) })
		return
	}
	d.settle(res)
	delete(n.agent.busy, was.Name)
	if d.done != nil {
		d.done(res.Next, res)
	}
}

// settle plans the next look at the right.
func (d *simDrive) settle(res protocol.Result) {
	n, r := d.n, res.Next
	after := 5 * time.Second
	switch {
	case res.Forget || res.Verdict == protocol.VerdictServes:
		delete(n.agent.looks, r.Name)
		return
	case r.Phase == protocol.Noted:
		now := n.now().Wall
		after = time.Minute
		if at, ok := protocol.NextLook(r.NotedAt, now); ok {
			after = at.Sub(now)
		}
	case r.Phase == protocol.Lost:
		after = time.Minute
	}
	if at, ok := n.agent.looks[r.Name]; !ok || n.w.now+after < at {
		n.agent.looks[r.Name] = n.w.now + after
	}
}

// send sends a step's call.
func (d *simDrive) send(res protocol.Result) {
	r := res.Next
	if res.Call == protocol.CallConfirm {
		d.confirm(r)
		return
	}
	ev := protocol.Event{Kind: protocol.EventAnswer, Call: res.Call}
	what := d.n.w.text("%v of %s (uid %s, rev %s, turn %d)", res.Call, r.Name, r.UID, r.Revision, r.Turn)
	serve := d.lease(r, res.Call)
	if r.Kind == protocol.RightUse {
		serve = d.use(r, res.Call)
	}
	d.n.ask(what, res.Call != protocol.CallRead, func() {
		if !d.n.w.calm && res.Call != protocol.CallRead && d.n.w.one(60) {
			ev.Outcome = protocol.Refused // a policy says no
		} else {
			ev.Object, ev.Outcome = serve()
		}
		d.n.w.logf("server: %s's %s: %v", d.n.machine, what, ev.Outcome)
	}, func(known bool) {
		if !known {
			ev = protocol.Event{Kind: protocol.EventAnswer, Call: res.Call}
		}
		d.step(ev)
	})
}

// lease returns what the server does with a call about a lease. Term and turn are
// those of the moment of sending.
func (d *simDrive) lease(r protocol.Right, call protocol.Call) func() (protocol.Object, protocol.Outcome) {
	n, api, store, term := d.n, d.n.w.api.leases, d.n.disk.store, d.n.agent.sitting.Term
	meta := protocol.Meta{Name: r.Name, UID: r.UID, Revision: r.Revision}
	turn := r.Turn + 1
	if n.w.fault == M43 {
		turn = r.Turn
	}
	return func() (protocol.Object, protocol.Outcome) {
		var l protocol.Lease
		out := protocol.Done
		switch call {
		case protocol.CallCreate:
			l, out = api.create(protocol.Lease{
				Meta: protocol.Meta{Name: r.Name}, Protocol: protocol.Version, Pool: r.Pool, PoolUID: r.PoolUID, Block: r.Block,
				Holder: protocol.Holder{Node: n.name}, Store: store, Term: term, Turn: 1,
			})
		case protocol.CallRead:
			l, out = api.read(r.Name)
		case protocol.CallFence:
			l, out = api.update(meta, func(l *protocol.Lease) { l.Term, l.Turn = term, turn })
		case protocol.CallDelete:
			out = n.remove(meta, func(m protocol.Meta) protocol.Outcome {
				l, _ := api.read(m.Name)
				out := api.remove(m)
				if out == protocol.Done && len(l.Grants) > 0 {
					n.w.fail(I1, "%s deleted lease %s, of which %v is granted", n.machine, l.Name, l.Grants[0].Addr)
				}
				return out
			})
		case protocol.CallNone, protocol.CallConfirm:
		}
		return r.ObjectOf(l), out
	}
}

// remove sends a delete, which the API server never takes to name anything.
func (n *simNode) remove(m protocol.Meta, remove func(protocol.Meta) protocol.Outcome) protocol.Outcome {
	if m.UID == "" || m.Revision == "" {
		return protocol.Conflict
	}
	if n.w.fault == M4 {
		m.Revision = ""
	}
	return remove(m)
}

// use is lease for the use of a claim.
func (d *simDrive) use(r protocol.Right, call protocol.Call) func() (protocol.Object, protocol.Outcome) {
	n, api, store, term := d.n, d.n.w.api.subs, d.n.disk.store, d.n.agent.sitting.Term
	meta := protocol.Meta{Name: r.Name, UID: r.UID, Revision: r.Revision}
	return func() (protocol.Object, protocol.Outcome) {
		var s protocol.SubLease
		out := protocol.Done
		switch call {
		case protocol.CallCreate:
			s, out = api.create(protocol.SubLease{
				Meta: protocol.Meta{Name: r.Name}, Protocol: protocol.Version, Node: n.name, Store: store, Term: term, Turn: 1, Use: r.Use,
			})
		case protocol.CallRead:
			s, out = api.read(r.Name)
		case protocol.CallFence:
			s, out = api.update(meta, func(s *protocol.SubLease) {
				use := *r.Use
				s.Term, s.Turn, s.Use = term, r.Turn+1, &use
			})
		case protocol.CallDelete:
			out = n.remove(meta, api.remove)
		case protocol.CallNone, protocol.CallConfirm:
		}
		return r.ObjectOfUse(s), out
	}
}

// confirm reads what must be true before a right serves.
func (d *simDrive) confirm(r protocol.Right) {
	if d.n.w.fault == M26 {
		d.step(protocol.Event{Kind: protocol.EventAnswer, Call: protocol.CallConfirm, Outcome: protocol.Done})
		return
	}
	if r.Kind == protocol.RightUse {
		d.shown = protocol.UseEvidence{Own: *r.Use, Addrs: r.Addrs}
		d.readOther(r)
		return
	}
	var p protocol.Pool
	var out protocol.Outcome
	d.n.ask("read of the pool for "+r.Name, false, func() { p, out = d.n.w.api.pools.read(string(r.Pool)) }, func(known bool) {
		if !known {
			d.confirmed(protocol.Unknown, "no answer")
			return
		}
		ok, why := protocol.ConfirmLease(r, p, out)
		d.decided(ok, why)
	})
}

// The three reads of a use's confirmation, one after the other.

func (d *simDrive) readOther(r protocol.Right) {
	other := protocol.UseName(r.Use.Claim.UID, 0)
	if r.Name == other {
		other = protocol.UseName(r.Use.Claim.UID, 1)
	}
	d.n.ask("read of "+other, false, func() {
		if s, out := d.n.w.api.subs.read(other); out == protocol.Done {
			d.shown.Other = &s
		}
	}, func(known bool) {
		if !known {
			d.confirmed(protocol.Unknown, "no answer")
			return
		}
		d.n.later(func() { d.readClaim(r) })
	})
}

func (d *simDrive) readClaim(r protocol.Right) {
	d.n.ask("read of claim "+r.Use.Claim.Name, false, func() {
		d.shown.Claim, _ = d.n.w.api.claims.read(r.Use.Claim.Name)
		if d.n.w.fault == M24 {
			d.shown.Claim = d.claim
		}
	}, func(known bool) {
		if !known {
			d.confirmed(protocol.Unknown, "no answer")
			return
		}
		d.n.later(func() { d.readGrants(r) })
	})
}

func (d *simDrive) readGrants(r protocol.Right) {
	d.n.ask("read of the claim's lease for "+r.Name, false, func() {
		for _, name := range r.Leases {
			if l, out := d.n.w.api.leases.read(name); out == protocol.Done {
				d.shown.Leases = append(d.shown.Leases, l)
			}
		}
	}, func(known bool) {
		if !known {
			d.confirmed(protocol.Unknown, "no answer")
			return
		}
		e := d.shown
		if d.n.w.fault == M47 && e.Other != nil && e.Other.Use.Pod.Owner.UID == e.Own.Pod.Owner.UID {
			e.Other = nil
		}
		_, why := protocol.ConfirmUse(protocol.Self{Node: d.n.name}, e)
		d.decided(why == "", why)
	})
}

func (d *simDrive) decided(ok bool, why string) {
	if ok {
		d.confirmed(protocol.Done, "")
		return
	}
	d.confirmed(protocol.Refused, why)
}

func (d *simDrive) confirmed(out protocol.Outcome, why string) {
	d.step(protocol.Event{Kind: protocol.EventAnswer, Call: protocol.CallConfirm, Outcome: out, Why: why})
}

package simulation

import (
	"slices"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// confirm reads what must be true before a right serves.
func (d *simDrive) confirm(r protocol.Right) {
	if d.n.w.fault == M26 && r.Kind == protocol.RightUse || d.n.w.fault == M33 && r.Kind == protocol.RightLease {
		d.step(protocol.Event{Kind: protocol.EventAnswer, Call: protocol.CallConfirm, Outcome: protocol.Done})
		return
	}
	if r.Kind == protocol.RightRequest {
		d.readRequest(r)
		return
	}
	if r.Kind == protocol.RightUse {
		if slices.ContainsFunc(r.Leases, d.n.withholdsLease) {
			d.confirmed(protocol.Unknown, "the pool has not been opened again")
			return
		}
		d.shown = protocol.UseEvidence{Own: *r.Use, Addrs: r.Addrs, Vanished: r.Term == 0}
		d.readOther(r)
		return
	}
	var p protocol.Pool
	var out protocol.Outcome
	if d.n.withheld() {
		d.confirmed(protocol.Unknown, "the pool has not been opened again")
		return
	}
	d.n.ask("read of the pool for "+r.Name, false, func() { p, out = d.n.w.api.readPool(r.Pool) }, func(known bool) {
		if !known {
			d.confirmed(protocol.Unknown, "no answer")
			return
		}
		d.n.readOpening(p)
		if restored := d.n.agent.history.Restored; out == protocol.Done && restored != nil && !p.Deleting && !restored.Reopened(p) {
			d.confirmed(protocol.Unknown, "the pool has not been opened again")
			return
		}
		p.Edited = p.Edited && d.n.w.fault != M55
		d.n.disown(r, p, out)
		d.confirmed(protocol.Confirmation(r, p, out))
	})
}

// readRequest reads what became of a request.
func (d *simDrive) readRequest(r protocol.Right) {
	var s protocol.SubLease
	var out protocol.Outcome
	sent := d.n.sight()
	d.n.ask("read of request "+r.Name, false, func() { s, out = d.n.w.api.subs.read(r.Name) }, func(known bool) {
		if !known || out != protocol.Done || s.UID != r.UID || !d.n.judge(sent, sent.history.RecordBehind(r, s.Meta, s.Turn, false), func(h protocol.History) protocol.History { return h }) {
			d.confirmed(protocol.Unknown, "no answer")
			return
		}
		ev := protocol.Event{Kind: protocol.EventAnswer, Call: protocol.CallConfirm}
		ev.Addrs, ev.Leases, ev.Outcome, ev.Why = protocol.ConfirmRequest(r, s, d.n.withheld())
		d.step(ev)
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
		if s, ok := d.shown.Earlier(d.n.name); ok {
			d.n.later(func() { d.n.endEarlier(s) })
		}
		d.n.later(func() { d.readClaim(r) })
	})
}

func (d *simDrive) readClaim(r protocol.Right) {
	d.n.ask("read of claim "+r.Use.Claim.Name, false, func() {
		d.shown.Claim, _ = d.n.w.api.readClaim(r.Use.Claim.Name)
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
		if d.n.w.fault == M27 { // the claim's status alone says what it has
			e.Leases = believed(e.Claim)
		}
		if d.n.w.fault == M47 && e.Other != nil && e.Other.Use.Pod.Owner.UID == e.Own.Pod.Owner.UID {
			e.Other = nil
		}
		ev := protocol.Event{Kind: protocol.EventAnswer, Call: protocol.CallConfirm}
		answer := protocol.ConfirmUse(protocol.Self{Node: d.n.name, Store: d.n.disk.store}, e)
		ev.Outcome, ev.Passes, ev.Why = answer.Outcome, answer.Passes, answer.Why
		ev.Keeps = ev.Outcome != protocol.Done && e.Keeps()
		d.step(ev)
	})
}

// endEarlier sees to it that the node's earlier use of a claim, met beside the one that is
// wanted, goes soon.
func (n *simNode) endEarlier(s protocol.SubLease) {
	n.w.count("two uses of a node")
	if s.Store != n.disk.store || n.agent.busy[s.Name] {
		return
	}
	if _, ok := n.disk.rights[s.Name]; ok {
		n.agent.looks[s.Name] = n.w.now
		return
	}
	n.w.logf("%s: meets %s without a record", n.machine, s.Name)
	n.adopt(protocol.Right{Kind: protocol.RightUse, Name: s.Name, SubLeaseRight: protocol.SubLeaseRight{Use: s.Use}}, protocol.Releasing)
}

func (d *simDrive) confirmed(out protocol.Outcome, why string) {
	d.step(protocol.Event{Kind: protocol.EventAnswer, Call: protocol.CallConfirm, Outcome: out, Why: why})
}

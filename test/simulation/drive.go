package simulation

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
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
		if done != nil {
			done(fresh, protocol.Result{Verdict: protocol.VerdictLater})
		}
		return
	}
	n.agent.busy[fresh.Name] = true
	d := &simDrive{n: n, fresh: fresh, done: done, wanted: ev.Kind == protocol.EventWant || ev.Kind == protocol.EventRenew}
	if ev.Use != nil {
		d.claim, _ = n.w.api.readClaim(ev.Use.Claim.Name)
	}
	d.step(ev)
}

// step is one transaction of the store, and plans the call that follows it.
func (d *simDrive) step(ev protocol.Event) {
	n := d.n
	if ev.Now.IsZero() {
		ev.Now = n.now().Wall
	}
	var was protocol.Right
	var res protocol.Result
	var stays bool
	n.commit(func(disk *simDisk) { was, res, stays = d.transact(disk, ev) })
	if stays { // something rests on it, or it is frozen still
		d.end(was, protocol.Result{Next: was, Verdict: protocol.VerdictLater})
		return
	}
	n.seen(was.Name, ev)
	if n.w.tracing {
		n.w.logf("%s: %s: %s + %s -> %s", n.machine, was.Name, recordText(was), eventText(ev), resultText(res))
	}
	if res.Call != protocol.CallNone {
		n.later(func() { d.send(res) })
		return
	}
	d.settle(res)
	d.end(res.Next, res)
}

func (d *simDrive) end(r protocol.Right, res protocol.Result) {
	delete(d.n.agent.busy, r.Name)
	if d.done != nil {
		d.done(r, res)
	}
}

// transact makes one step on the disk. stays says that the right cannot be let go.
func (d *simDrive) transact(disk *simDisk, ev protocol.Event) (was protocol.Right, res protocol.Result, stays bool) {
	n := d.n
	was, known := disk.rights[d.fresh.Name]
	if !known {
		was = d.fresh
		was.Phase = ""
	}
	if d.memory != nil {
		was, d.memory = *d.memory, nil
	}
	self := protocol.Self{Node: n.name, Store: disk.store}
	if ok, _ := n.agent.registrar.Serving(n.now()); ok { // one that was silent for F may have been taken over
		self.Term = disk.term
	}
	if ev.Kind == protocol.EventLetGo && !n.free(disk, was) {
		return was, res, true
	}
	ev.Object.Used = n.used(disk, was, ev.Object.Ceded)
	res = n.w.fault.step(d, was, self, ev)
	if was.Kind == protocol.RightLease && !n.openBlock(disk, was, res) {
		res = n.w.fault.step(d, was, self, protocol.Event{Kind: protocol.EventLetGo, Now: ev.Now})
	}
	switch {
	case n.w.fault == M2 && ev.Kind == protocol.EventLetGo && was.Phase == protocol.Held:
		d.memory = &res.Next
		return was, res, false
	case n.w.fault == M52 && !known && res.Call == protocol.CallCreate: // in memory alone
		d.memory = &res.Next
		return was, res, false
	case !res.Forget:
		disk.rights[was.Name] = res.Next
	case known:
		delete(disk.rights, was.Name)
	}
	return was, res, false
}

// free reports whether nothing rests on r, so that it can be let go.
func (n *simNode) free(d *simDisk, r protocol.Right) bool {
	if r.Phase == protocol.Frozen && !n.thawed(d, r.Store) {
		return false
	}
	if n.w.fault == M28 && r.Kind == protocol.RightUse {
		return true
	}
	if n.w.fault == M49 && r.Store != "" && r.Kind != protocol.RightLease {
		return true
	}
	return d.unused(r) && !n.coolingIn(d, r)
}

// used returns those of addrs, of the block of a lease that is Held, which attachments have.
func (n *simNode) used(d *simDisk, r protocol.Right, addrs []netip.Addr) (taken []netip.Addr) {
	if r.Kind != protocol.RightLease || r.Phase != protocol.Held {
		return nil
	}
	for _, x := range addrs {
		state, err := d.space(r.Pool, nil).State(x)
		must(err)
		if state == allocator.Taken {
			taken = append(taken, x)
		}
	}
	if len(taken) > 0 {
		n.w.count("ceded in use")
	}
	return taken
}

// bar keeps addresses of a lease from being given, as far as nobody has them.
func bar(d *simDisk, r protocol.Right, addrs []netip.Addr) {
	for _, x := range addrs {
		if err := d.space(r.Pool, nil).Bar(x, true); !errors.Is(err, allocator.ErrTaken) {
			must(err)
		}
	}
}

// openBlock makes the node's allocation state follow a lease: its block is open
// while the lease is Held or Frozen, or Lost with attachments on it, and what is ceded is
// barred. It returns false, and does nothing, where a block of another size that was
// lost is still in use there.
func (n *simNode) openBlock(d *simDisk, was protocol.Right, res protocol.Result) bool {
	r := res.Next
	stays := !res.Forget && (r.Phase == protocol.Held || r.Phase == protocol.Lost || r.Phase == protocol.Frozen)
	space := d.space(was.Pool, n.shapeOf(was.PoolUID))
	open, err := space.IsOpen(was.Block)
	must(err)
	switch {
	case open && !stays:
		must(space.Close(was.Block))
	case !open && stays:
		if err := space.Open(was.Block); errors.Is(err, allocator.ErrOverlap) {
			return r.Phase == protocol.Frozen
		}
		was.Ceded = nil
	}
	if !stays {
		return true
	}
	for _, x := range was.Ceded {
		if !slices.Contains(r.Ceded, x) {
			must(space.Bar(x, false))
		}
	}
	bar(d, r, r.Ceded)
	return true
}

// settle plans the next look at the right.
func (d *simDrive) settle(res protocol.Result) {
	n, r := d.n, res.Next
	after := 5 * time.Second
	switch {
	case res.Forget || res.Verdict == protocol.VerdictServes:
		delete(n.agent.looks, r.Name)
		return
	case r.Phase == protocol.Noted && r.UID != "" && r.Kind == protocol.RightRequest: // its ADD asks, or it expires
		delete(n.agent.looks, r.Name)
		return
	case r.Phase == protocol.Noted && (r.UID != "" || !n.serving()):
		// it is there, and only waits to be confirmed; or nothing could be asked
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
	ev := protocol.Event{Kind: protocol.EventAnswer, Call: res.Call, Now: d.n.now().Wall}
	asked := ev
	what := d.n.w.text("%v of %s (uid %s, rev %s, turn %d)", res.Call, r.Name, r.UID, r.Revision, r.Turn)
	if d.n.withholds(r, res.Call) {
		if res.Call == protocol.CallFence { // not sent: there is nothing to find out
			d.n.agent.looks[r.Name] = d.n.w.now + 5*time.Second
			d.end(r, protocol.Result{Next: r, Verdict: protocol.VerdictLater})
			return
		}
		d.n.later(func() { d.step(asked) })
		return
	}
	sent := d.n.sight()
	serve := d.lease(r, res.Call)
	if r.Kind != protocol.RightLease {
		serve = d.sub(r, res.Call)
	}
	d.n.ask(what, res.Call != protocol.CallRead, func() {
		if !d.n.w.calm && res.Call != protocol.CallRead && d.n.w.one(60) {
			ev.Outcome = protocol.Refused // a policy says no
		} else {
			ev.Object, ev.Outcome = serve()
		}
		d.n.w.logf("server: %s's %s: %v", d.n.machine, what, ev.Outcome)
	}, func(known bool) {
		if !known || !d.n.relies(sent, r, ev) {
			ev = asked
		}
		if o := ev.Object; res.Call == protocol.CallRead && (ev.Outcome == protocol.NotFound || ev.Outcome == protocol.Done && o.UID != r.UID) {
			delete(d.n.w.excused, r.UID) // it has looked
		}
		if r.Kind == protocol.RightLease && res.Call == protocol.CallCreate {
			if ev.Outcome == protocol.Exists {
				d.n.w.count("met a lease")
			}
		}
		d.step(ev)
	})
}

// lease returns what the server does with a call about a lease. Term and turn are
// those of the moment of sending.
func (d *simDrive) lease(r protocol.Right, call protocol.Call) func() (protocol.Object, protocol.Outcome) {
	n, api, store, term := d.n, d.n.w.api.leases, d.n.disk.store, d.n.agent.registrar.Term
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
				Holder: protocol.Holder{Node: n.name}, Store: store, Term: term, Turn: 1, Ceded: r.CededNext(),
			})
		case protocol.CallRead:
			l, out = api.read(r.Name)
		case protocol.CallFence:
			l, out = api.update(meta, func(l *protocol.Lease) { l.Store, l.Term, l.Turn, l.Ceded = store, term, turn, r.CededNext() })
		case protocol.CallDelete:
			out = n.remove(meta, func(m protocol.Meta) protocol.Outcome { return n.w.deleteLease(n.machine, m) })
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

// sub is lease for the use of a claim, or a request.
func (d *simDrive) sub(r protocol.Right, call protocol.Call) func() (protocol.Object, protocol.Outcome) {
	n, api, store, term := d.n, d.n.w.api.subs, d.n.disk.store, d.n.agent.registrar.Term
	meta := protocol.Meta{Name: r.Name, UID: r.UID, Revision: r.Revision}
	turn := r.Turn + 1
	if n.w.fault == M43 {
		turn = r.Turn
	}
	return func() (protocol.Object, protocol.Outcome) {
		var s protocol.SubLease
		out := protocol.Done
		switch call {
		case protocol.CallCreate:
			s, out = api.create(protocol.SubLease{
				Meta: protocol.Meta{Name: r.Name}, Protocol: protocol.Version, Node: n.name, Store: store, Term: term, Turn: 1, Use: r.Use, Request: r.Request,
			})
		case protocol.CallRead:
			s, out = api.read(r.Name)
		case protocol.CallFence:
			s, out = api.update(meta, func(s *protocol.SubLease) {
				s.Term, s.Turn = term, turn
				if r.Use != nil {
					use := *r.Use
					s.Use = &use
				}
			})
		case protocol.CallDelete:
			out = n.remove(meta, api.remove)
		case protocol.CallNone, protocol.CallConfirm:
		}
		if r.Kind == protocol.RightRequest {
			return r.ObjectOfRequest(s), out
		}
		return r.ObjectOfUse(s), out
	}
}

package simulation

import (
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A simAdd is one ADD on its way through the agent. Each of its steps is a turn of
// its own.
type simAdd struct {
	n     *simNode
	s     *sandbox
	ask   simAsk
	until time.Duration
	tries int
	lock  string                // the claim that is locked for it
	held  map[netip.Prefix]bool // what a list of the pool's leases has shown
}

// addWait is how long an ADD waits before it fails: much longer than it ships,
// since everybody here is slow.
const addWait = 3 * time.Minute

// add begins the ADD of s. Calls of one key are made one after the other.
func (n *simNode) add(s *sandbox) {
	if n.agent.keys[s.key()] {
		n.answerAdd(s, nil)
		return
	}
	n.agent.keys[s.key()] = true
	n.agent.arrivals[s.pod.ref.UID] = n.w.now
	a := &simAdd{n: n, s: s, until: n.w.now + addWait}
	a.ask = simAsk{key: s.key(), pod: s.pod.ref, boot: n.bootID(), exact: s.pod.exact}
	n.later(a.consume)
}

// consume applies the DELs of this key that found no agent.
func (a *simAdd) consume() {
	n := a.n
	mine := func(k attKey) bool { return k == a.ask.key }
	if n.w.fault == M30 || !slices.ContainsFunc(n.journal, mine) {
		n.later(a.hold)
		return
	}
	n.commit(func(d *simDisk) { n.release(d, a.ask.key, 0) })
	n.later(func() {
		n.journal = slices.DeleteFunc(n.journal, mine)
		n.later(a.hold)
	})
}

// end answers the ADD.
func (a *simAdd) end(att *attachment) {
	delete(a.n.agent.keys, a.ask.key)
	a.unlock()
	if att != nil {
		if att.use != "" {
			a.n.agent.tried[att.use] = a.n.w.now
		}
		for _, name := range a.requests() { // what was asked for and is not needed any more
			if name != att.use && !a.n.disk.ofUse(name) {
				a.n.letGo(name)
			}
		}
	}
	a.n.answerAdd(a.s, att)
}

// unlock lets other ADDs have the claim.
func (a *simAdd) unlock() {
	if a.lock != "" {
		delete(a.n.agent.busy, a.lock)
		a.lock = ""
	}
}

// hold tries to make the ADD one transaction of the store.
func (a *simAdd) hold() {
	n := a.n
	if a.s.pod.claim != "" && a.ask.use == "" {
		a.holdClaim()
		return
	}
	var att attachment
	var err error
	var unsaid unsaidError
	n.commit(func(d *simDisk) { att, err = n.hold(d, a.ask) })
	switch {
	case err == nil:
		n.w.logf("%s: holds %v for %s", n.machine, att.addrs, a.ask.key.cid)
		for _, x := range att.addrs { // by the answer the record may have lost its UID
			n.voided[att.key] = n.voided[att.key] || n.w.excused[n.disk.rights[att.under(x)].UID]
		}
		n.later(func() { a.end(&att) })
	case errors.Is(err, errNoRoom):
		a.obtain()
	case errors.As(err, &unsaid):
		n.drive(n.disk.rights[string(unsaid)], protocol.Event{Kind: protocol.EventWant}, a.driven)
	case errors.Is(err, errUseGone) && a.tries < 3:
		a.tries++
		a.ask.granted, a.ask.use, a.ask.claim = nil, "", nil
		a.unlock()
		n.later(a.hold)
	default:
		n.later(func() { a.end(nil) })
	}
}

// again goes on after d, unless the ADD has waited long enough.
func (a *simAdd) again(d time.Duration, then func()) {
	if a.n.w.now+d >= a.until {
		a.end(nil)
		return
	}
	a.n.wait(d, then)
}

// obtain sees to a right that can give the address: a block of this node's that
// was ceded or is in doubt, the next block that nobody seems to hold, or a grant.
func (a *simAdd) obtain() {
	n := a.n
	p := n.agent.pool
	a.tries++
	switch {
	case p.UID == "" || !p.Open || !n.serving() || n.withheld() || n.w.other != nil && p.Edited:
		n.hearPool()
		a.again(time.Second, a.hold)
		return
	case a.tries > 12:
		a.end(nil)
		return
	}
	if n.agent.pressed == allocator.PressureExhausted { // only the cluster can help
		a.request()
		return
	}
	if name, x, ok := n.takeable(a.ask.exact); ok {
		n.w.count("take back")
		n.drive(n.disk.rights[name], protocol.Event{Kind: protocol.EventTakeBack, Addrs: []netip.Addr{x}}, a.driven)
		return
	}
	block, ok := a.candidate()
	if !ok {
		a.request()
		return
	}
	r := protocol.Right{Kind: protocol.RightLease, Name: n.leaseName(block), LeaseRight: protocol.LeaseRight{Pool: poolName, PoolUID: p.UID, Block: block}}
	n.drive(r, protocol.Event{Kind: protocol.EventWant}, a.driven)
}

// driven goes on after a drive that may have brought room.
func (a *simAdd) driven(_ protocol.Right, res protocol.Result) {
	if res.Verdict == protocol.VerdictServes {
		a.n.later(a.hold)
		return
	}
	a.again(100*time.Millisecond, a.hold)
}

// takeable returns an address of this node's that was ceded and is granted to
// nobody, as far as is known.
func (n *simNode) takeable(exact netip.Addr) (name string, x netip.Addr, ok bool) {
	shape := n.shapeOf(n.agent.pool.UID)
	for _, name := range n.names(func(r protocol.Right) bool { return n.serves(r) && len(r.Ceded) > 0 }) {
		r := n.disk.rights[name]
		for _, x := range r.Ceded {
			if (n.w.fault == M12 || !slices.Contains(r.Grants, x)) && (x == exact || !exact.IsValid() && shape.Ordinary(x)) && !n.agent.busy[name] {
				return name, x, true
			}
		}
	}
	return "", netip.Addr{}, false
}

// candidate returns the block to try next: one that is in doubt, or one that this
// node has no record of. After some that were another's a list tells.
func (a *simAdd) candidate() (netip.Prefix, bool) {
	n := a.n
	p, shape := n.agent.pool, n.shapeOf(n.agent.pool.UID)
	if a.ask.exact.IsValid() {
		block := shape.Block(a.ask.exact, p.Bits4)
		r, ok := n.disk.rights[n.leaseName(block)]
		return block, (!ok || r.Phase == protocol.Noted || r.Phase == protocol.Releasing || r.Phase == protocol.Held && !n.serves(r)) && a.tries < 3
	}
	var free []netip.Prefix
	for _, block := range blocksOf(p.Bits4) {
		if shape.OrdinaryIn(block) == 0 {
			continue
		}
		r, ok := n.disk.rights[n.leaseName(block)]
		switch {
		case ok && r.Pool == poolName && (r.Phase == protocol.Noted || r.Phase == protocol.Releasing || r.Phase == protocol.Held && !n.serves(r)):
			return block, true
		case !ok && !a.held[block]:
			free = append(free, block)
		}
	}
	if a.tries == 4 { // the pool is nearly full, or this node unlucky
		a.held = map[netip.Prefix]bool{}
		for _, l := range n.stale.list(func(l protocol.Lease) bool { return l.Pool == poolName }) {
			a.held[l.Block] = true
		}
	}
	if a.tries > 8 {
		return netip.Prefix{}, false
	}
	if n.w.one(2) { // from the node's own point on: what it gave back a moment ago comes first
		if i := slices.IndexFunc(free, func(b netip.Prefix) bool { return !b.Addr().Less(n.first) }); i >= 0 {
			return free[i], true
		}
	}
	return pickOf(n.w, free)
}

// request asks the controller for the address: by the sub-lease of this pod and
// interface that is there already, or by a new one.
func (a *simAdd) request() {
	n := a.n
	ask := protocol.Request{Pod: a.ask.pod, Interface: a.ask.key.ifName, Wants: []protocol.Wanted{{Pool: poolName, Ranges: a.ranges()}}}
	r := protocol.Right{Kind: protocol.RightRequest, SubLeaseRight: protocol.SubLeaseRight{Request: &ask}}
	for _, name := range a.requests() {
		switch got := n.disk.rights[name]; {
		case got.Phase == protocol.Held || got.Phase == protocol.Noted && reflect.DeepEqual(got.Request.Wants, ask.Wants):
			r = got
		case got.Phase == protocol.Noted: // the pool has changed since
			n.later(func() { n.letGo(name) })
		}
	}
	if r.Name == "" {
		n.w.requests++
		r.Name = protocol.RequestName(n.name, n.w.requests)
		n.w.count("request")
	}
	n.agent.tried[r.Name] = n.w.now
	n.drive(r, protocol.Event{Kind: protocol.EventWant}, func(got protocol.Right, res protocol.Result) {
		if res.Verdict != protocol.VerdictServes {
			if res.Verdict == protocol.VerdictRefused || res.Verdict == protocol.VerdictDenied || res.Verdict == protocol.VerdictTaken {
				a.end(nil)
				return
			}
			a.again(500*time.Millisecond, a.hold)
			return
		}
		a.ask.use, a.ask.granted = got.Name, nil
		for _, x := range got.Addrs {
			a.ask.granted = append(a.ask.granted, attAddr{addr: x, pool: poolName})
		}
		n.later(a.hold)
	})
}

// requests are the names of the requests of this pod and interface.
func (a *simAdd) requests() []string {
	return a.n.names(func(r protocol.Right) bool {
		return r.Kind == protocol.RightRequest && r.Request.Pod.UID == a.ask.pod.UID && r.Request.Interface == a.ask.key.ifName && r.Store == ""
	})
}

// ranges are what the pod may have.
func (a *simAdd) ranges() []string {
	if a.ask.exact.IsValid() {
		return []string{a.ask.exact.String() + "-" + a.ask.exact.String()}
	}
	all := a.n.w.addresses()
	if len(all) == 0 {
		return nil
	}
	return []string{all[0].String() + "-" + all[len(all)-1].String()}
}

// holdClaim answers an ADD with a claim: with what the pod has already, or by a
// use that was made and confirmed.
func (a *simAdd) holdClaim() {
	n := a.n
	if held, ok := n.previous(n.disk, a.ask); ok && held.claim != nil && held.claim.Name == a.s.pod.claim && held.pod.UID == a.ask.pod.UID && n.serves(n.disk.rights[held.use]) {
		a.ask.granted, a.ask.use, a.ask.claim = held.addrs, held.use, held.claim
		n.later(a.hold)
		return
	}
	var c protocol.Claim
	var out protocol.Outcome
	n.ask("read of claim "+a.s.pod.claim, false, func() { c, out = n.w.api.readClaim(a.s.pod.claim) }, func(known bool) {
		ok, _ := protocol.BelongsTo(a.ask.pod, c)
		switch {
		case !known || out != protocol.Done || c.Deleting || !ok || !n.serving():
			a.end(nil)
		case len(c.IPs) == 0:
			a.again(time.Second, a.hold)
		case n.agent.busy[string(c.UID)]:
			a.again(100*time.Millisecond, a.hold)
		default:
			a.lock = string(c.UID)
			n.agent.busy[a.lock] = true
			n.later(func() { a.use(c) })
		}
	})
}

// use makes sure of a use of c, and goes on to hold. It has the claim's lock.
func (a *simAdd) use(c protocol.Claim) {
	n := a.n
	names := []string{protocol.UseName(c.UID, 0), protocol.UseName(c.UID, 1)}
	var recorded []protocol.Right
	for _, name := range names {
		if r, ok := n.disk.rights[name]; ok {
			recorded = append(recorded, r)
		}
	}
	if len(recorded) > 0 {
		names = []string{protocol.PickUse(recorded).Name}
	}
	ref := c.Ref()
	ask := protocol.Use{Claim: ref, Pod: a.ask.pod, Interface: a.ask.key.ifName}
	var granted []attAddr
	var addrs []netip.Addr
	var leases []string
	for _, ip := range c.IPs {
		pool, lease := n.w.leaseOf(c, ip.Addr(), n.agent.pool)
		granted = append(granted, attAddr{addr: ip.Addr(), pool: pool})
		addrs, leases = append(addrs, ip.Addr()), append(leases, lease)
	}
	done := func(name string) {
		if name == "" {
			a.end(nil)
			return
		}
		a.ask.granted, a.ask.use, a.ask.claim = granted, name, &ref
		n.later(a.hold)
	}
	a.tryUse(ask, addrs, leases, names, done)
}

// tryUse renews or makes the first of names, and goes on to the next if that is
// another's.
func (a *simAdd) tryUse(ask protocol.Use, addrs []netip.Addr, leases, names []string, done func(string)) {
	n := a.n
	if len(names) == 0 || n.agent.busy[names[0]] || !n.mayShareHere(names[0], a.ask) {
		done("")
		return
	}
	r := protocol.Right{Kind: protocol.RightUse, Name: names[0], SubLeaseRight: protocol.SubLeaseRight{Use: &ask, Addrs: addrs, Leases: leases}}
	n.drive(r, protocol.Event{Kind: protocol.EventRenew, Use: &ask, Addrs: addrs, Leases: leases}, func(got protocol.Right, res protocol.Result) {
		switch res.Verdict {
		case protocol.VerdictTaken:
			n.later(func() { a.tryUse(ask, addrs, leases, names[1:], done) })
		case protocol.VerdictServes:
			done(got.Name)
		case protocol.VerdictNone, protocol.VerdictRefused, protocol.VerdictDenied, protocol.VerdictLater, protocol.VerdictGone:
			done("")
		}
	})
}

// mayShareHere refuses a use that another sandbox of this node still has.
func (n *simNode) mayShareHere(name string, a simAsk) bool {
	others := n.disk.keys(func(x attachment) bool { return x.use == name && x.key != a.key })
	return !slices.ContainsFunc(others, func(k attKey) bool { return !n.netnsGone(n.disk.atts[k]) })
}

// leaseOf returns the pool of a claim's address, and the name of its block's lease, as
// an agent that knows the nodes' pool as p sees it.
func (w *world) leaseOf(c protocol.Claim, x netip.Addr, p protocol.Pool) (protocol.PoolName, string) {
	name, pool, ok := w.poolOfClaim(c, x)
	if ok && name != poolName {
		p = pool
	} else {
		name = poolName
	}
	block, _ := x.Prefix(p.BlockBits(x))
	return name, protocol.LeaseName(name, block)
}

package simulation

import (
	"net/netip"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// simAgent is what a crash forgets.
type simAgent struct {
	registrar protocol.Registrar
	beating   bool
	beatAt    time.Duration
	busy      map[string]bool // rights and claims that a drive works on
	looks     map[string]time.Duration
	pool      protocol.Pool // as last heard of, maybe long ago
	pressed   allocator.Pressure

	keys     map[attKey]bool // keys with a call under way
	dels     []attKey        // DELs that have not been answered
	waits    []simWait
	tried    map[string]time.Duration // when an ADD last wanted a request
	idle     map[string]time.Duration // since when nothing rests on a right
	suspects map[attKey]suspect
	recalls  map[string]bool // that it has heard

	// asked is the look that it has seen on its registration, answer what it says of that, and
	// arrivals when ADDs of pods have last come.
	asked, answer string
	arrivals      map[protocol.UID]time.Duration

	history protocol.History // how far the API server was seen to come
	era     int              // how often it was seen to go back
	met     bool             // it has seen its registration since it started
	// heard and listed say that it has, since it started, had a heartbeat accepted, and
	// compared what the API server has in its node's name with the store.
	heard, listed bool
	// unseen are rights that its list has shown otherwise than the store has them, and of
	// which no answer has spoken since.
	unseen map[string]bool
	// anothers are leases that it has as Held, and that were another's when they were last
	// read since the API server went back.
	anothers map[string]bool
}

// simWait is something to do later.
type simWait struct {
	at   time.Duration
	then func()
}

// suspect is an attachment that looked like garbage.
type suspect struct {
	gen   uint64
	since time.Duration
}

func newAgent(s protocol.Registrar, now time.Duration) *simAgent {
	return &simAgent{
		registrar: s, beatAt: now, busy: map[string]bool{}, looks: map[string]time.Duration{}, keys: map[attKey]bool{},
		tried: map[string]time.Duration{}, idle: map[string]time.Duration{}, suspects: map[attKey]suspect{}, recalls: map[string]bool{},
		anothers: map[string]bool{}, arrivals: map[protocol.UID]time.Duration{},
	}
}

// wait plans then for d from now.
func (n *simNode) wait(d time.Duration, then func()) {
	n.agent.waits = append(n.agent.waits, simWait{n.w.now + d, then})
}

// wakeWaits begins what was planned for now.
func (n *simNode) wakeWaits() {
	a := n.agent
	for i := 0; i < len(a.waits); {
		if a.waits[i].at > n.w.now {
			i++
			continue
		}
		n.later(a.waits[i].then)
		a.waits = slices.Delete(a.waits, i, i+1)
	}
}

// maintain does one of the things that no call asks for.
func (n *simNode) maintain() {
	w := n.w
	n.wakeWaits()
	n.mend()
	n.hearLook()
	switch w.rng.IntN(14) {
	case 0, 1, 2:
		n.lookDue()
	case 3, 4:
		n.giveBack()
	case 5:
		if name, ok := pickOf(w, n.names(func(protocol.Right) bool { return true })); ok { // a watch reported a change
			n.drive(n.disk.rights[name], protocol.Event{Kind: protocol.EventLook}, nil)
		}
	case 6:
		if w.one(4) {
			n.listOwn()
		}
	case 7:
		n.hearPool()
	case 8:
		n.drainJournal()
	case 9, 10:
		n.sweep()
	case 11, 12:
		if !n.hearRecall() {
			n.cedeUnasked()
		}
	case 13:
		n.reserve()
	}
}

// hearPool takes over what the API server has of the pool.
func (n *simNode) hearPool() {
	if p, out := n.w.api.readPool(poolName); out == protocol.Done && !n.cut && !n.w.api.away {
		n.agent.history = n.agent.history.SawOpening(p.Opening)
		spec := n.w.specOf(p.UID)
		shape := n.hears(p, spec)
		if kept := n.disk.pool; p.UID != kept.UID || p.Open != kept.Open || n.w.other != nil && p.Edited != kept.Edited || p.Opening != kept.Opening || p.Bits4 != kept.Bits4 || n.heard != spec.Version {
			n.commit(func(d *simDisk) {
				d.pool, d.shape = p, shape
				must(d.space(poolName, shape).Reshape())
			})
			n.heard = spec.Version
		}
		n.agent.pool, n.agent.pressed = p, spec.Pressure
	}
}

// lookDue looks at the rights whose time has come.
func (n *simNode) lookDue() {
	if n.agent.registrar.Term == 0 {
		return
	}
	due := n.names(func(r protocol.Right) bool {
		at, ok := n.agent.looks[r.Name]
		return !ok && !n.serves(r) || ok && at <= n.w.now
	})
	for _, name := range due {
		r := n.disk.rights[name]
		delete(n.agent.looks, name)
		ev := protocol.Event{Kind: protocol.EventLook}
		if r.Phase == protocol.Noted && (r.Kind == protocol.RightUse || r.Kind == protocol.RightLease && n.withheld()) {
			ev.Kind = protocol.EventLetGo // the ADD that wanted it is gone, or asks again
		}
		if n.agent.busy[name] || n.waitsForPool(r) {
			n.agent.looks[name] = n.w.now + 5*time.Second
			continue
		}
		n.drive(r, ev, nil)
	}
}

const (
	// requestKept is how long a request is kept after the last try of its ADD.
	requestKept = 2 * time.Minute
	// idleKept is how long a lease without attachments is kept.
	idleKept = time.Minute
	// sweepEvery is how far apart the two looks at garbage are.
	sweepEvery = 30 * time.Second
	// cooldown is M41's.
	cooldown = 15 * time.Minute
)

// listOwn is the hourly list of what the API server has in the node's name.
func (n *simNode) listOwn() {
	if n.agent.registrar.Term == 0 || n.w.fault == M52 {
		return
	}
	var found []protocol.Right
	var rev protocol.Revision
	there, tell := map[string]protocol.UID{}, map[string]protocol.Lease{}
	sent := n.sight()
	n.ask("list of its own", false, func() {
		rev = revisionOf(n.w.api.revision)
		found = n.listOf(n.disk.store)
		for _, l := range n.w.api.leases.list(func(l protocol.Lease) bool { return l.Holder.Node == n.name && l.Store == n.disk.store }) {
			there[l.Name], tell[l.Name] = l.UID, l
		}
		for _, s := range n.w.api.subs.list(func(s protocol.SubLease) bool { return s.Node == n.name && s.Store == n.disk.store }) {
			there[s.Name] = s.UID
		}
	}, func(known bool) {
		if !known || !n.wrote(sent, rev) {
			return
		}
		n.agent.listed = true
		for _, r := range found {
			if _, ok := n.disk.rights[r.Name]; ok || n.agent.busy[r.Name] {
				continue
			}
			n.w.logf("%s: finds %s without a record", n.machine, r.Name)
			n.w.count("stray")
			n.adopt(r, protocol.Releasing)
		}
		n.agent.unseen = map[string]bool{}
		for _, name := range n.names(func(r protocol.Right) bool { return r.ListedOtherwise(there[r.Name], tell[r.Name]) }) {
			n.agent.looks[name], n.agent.unseen[name] = n.w.now, true
		}
	})
}

// listOf returns what the API server has in the name of a store of this node's.
func (n *simNode) listOf(store protocol.StoreID) (found []protocol.Right) {
	for _, l := range n.w.api.leases.list(func(l protocol.Lease) bool { return l.Holder.Node == n.name && l.Store == store }) {
		found = append(found, protocol.Right{Kind: protocol.RightLease, Name: l.Name, LeaseRight: protocol.LeaseRight{Pool: l.Pool, PoolUID: l.PoolUID, Block: l.Block}})
	}
	for _, s := range n.w.api.subs.list(func(s protocol.SubLease) bool { return s.Node == n.name && s.Store == store }) {
		r := protocol.Right{Kind: protocol.RightUse, Name: s.Name, SubLeaseRight: protocol.SubLeaseRight{Use: s.Use, Request: s.Request}}
		if s.Request != nil {
			r.Kind = protocol.RightRequest
		}
		found = append(found, r)
	}
	return found
}

// adopt makes a record of what was found, in a phase.
func (n *simNode) adopt(r protocol.Right, phase protocol.Phase) {
	r.Phase = phase
	n.commit(func(d *simDisk) { d.rights[r.Name] = r })
	n.agent.looks[r.Name] = n.w.now
}

// drainJournal applies a DEL that found no agent.
func (n *simNode) drainJournal() {
	k, ok := pickOf(n.w, n.journal)
	if !ok || n.agent.keys[k] && n.w.fault != M30 || n.full {
		return
	}
	held := n.disk.atts[k]
	n.commit(func(d *simDisk) { n.release(d, k, 0) })
	n.w.logf("%s: applies journalled DEL of %s", n.machine, k.cid)
	n.journal = slices.DeleteFunc(n.journal, func(j attKey) bool { return j == k })
	if held.use != "" && !n.disk.ofUse(held.use) {
		n.letGo(held.use)
	}
}

// sweep frees attachments whose DEL never came: the network namespace is gone, and
// the pod is gone too, or has a newer sandbox, or was of another boot; seen twice.
func (n *simNode) sweep() {
	keys := n.disk.keys(func(a attachment) bool { return n.w.fault == M32 || !n.netnsOf(a.key.cid) })
	for k := range n.agent.suspects {
		if !slices.Contains(keys, k) {
			delete(n.agent.suspects, k)
		}
	}
	k, ok := pickOf(n.w, keys)
	if !ok {
		return
	}
	att := n.disk.atts[k]
	if att.boot != n.bootID() || slices.ContainsFunc(keys, func(o attKey) bool { return n.disk.atts[o].pod.UID == att.pod.UID && n.disk.atts[o].gen > att.gen }) {
		n.suspect(k, att)
		return
	}
	var uid protocol.UID
	n.ask("read of pod "+att.pod.Name, false, func() {
		if p, ok := n.w.podObject(n, att.pod.Name); ok {
			uid = p.ref.UID
			if n.w.fault == M32 { // a static pod's mirror has another UID than its sandbox
				uid = p.objectUID()
			}
		}
	}, func(known bool) {
		switch {
		case !known:
		case uid == att.pod.UID:
			delete(n.agent.suspects, k)
		default:
			n.suspect(k, att)
		}
	})
}

// suspect notes that an attachment looks like garbage, and frees it the second
// time.
func (n *simNode) suspect(k attKey, att attachment) {
	s, seen := n.agent.suspects[k]
	if !seen || s.gen != att.gen {
		n.agent.suspects[k] = suspect{att.gen, n.w.now}
		if n.w.fault != M32 {
			return
		}
	} else if n.w.now-s.since < sweepEvery {
		return
	}
	if n.unwritten[k] && n.w.fault == M42 {
		return
	}
	delete(n.agent.suspects, k)
	n.w.logf("%s: sweeps %s", n.machine, k.cid)
	n.w.count("swept")
	n.del(k, att.gen)
}

// reserve acquires a block ahead of need, while pressure is low.
func (n *simNode) reserve() {
	a, w := n.agent, n.w
	if a.pool.UID == "" || !a.pool.Open || w.other != nil && a.pool.Edited || !n.serving() || !a.met || n.withheld() || a.pressed != allocator.PressureLow && w.fault != M35 {
		return
	}
	c, err := n.disk.space(poolName, nil).Counts(allocator.IPv4)
	must(err)
	if c.Taken == 0 || c.Free > 0 {
		return
	}
	var free []netip.Prefix
	for _, block := range blocksOf(a.pool.Bits4) {
		if _, ok := n.disk.rights[n.leaseName(block)]; !ok && n.shapeOf(a.pool.UID).OrdinaryIn(block) > 0 {
			free = append(free, block)
		}
	}
	if block, ok := pickOf(w, free); ok && !(w.fault == M35 && a.pressed == allocator.PressureExhausted) {
		r := protocol.Right{Kind: protocol.RightLease, Name: n.leaseName(block), LeaseRight: protocol.LeaseRight{Pool: poolName, PoolUID: a.pool.UID, Block: block}}
		n.drive(r, protocol.Event{Kind: protocol.EventWant}, nil)
		return
	}
	if w.fault == M35 {
		n.reserveByRequest()
	}
}

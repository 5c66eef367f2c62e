package simulation

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

const defaultFence = 15 * time.Minute

// simNode is a machine with a disk and, while it runs, an agent. It does with the
// protocol's steps what ipam/node/agent does.
type simNode struct {
	caller
	name    protocol.NodeName
	machine string
	fence   time.Duration // F, as configured
	first   netip.Addr    // where it begins to look for a block
	disk    *simDisk
	synced  *simDisk // of M9: what is really on the disk
	image   *simDisk // a backup of the disk
	run     witness
	agent   *simAgent // nil while it does not run
	heard   int       // the version of the pool's ranges that the disk follows
	stale   *simWatch[protocol.Lease]

	// host calls for the runtime and the meta-plugin, where there is another IPAM. Of that
	// are guests. shows are pods' status to be written, and switched says that the
	// meta-plugin has seen the new definition.
	host     caller
	guests   []*guest
	shows    []statusWrite
	switched bool

	sandboxes []*sandbox
	valid     map[string]bool // those that the runtime lists for its next GC; nil if it has not begun one
	journal   []attKey
	full      bool // the disk: nothing more can be written
	unwritten map[attKey]bool
	// voided are attachments that are void as their sandboxes are.
	voided map[attKey]bool
	// disowned are attachments with a lease that the API server's data had not any more,
	// and its pool did not take back.
	disowned map[attKey]bool

	boots  int
	stores int

	cut    bool // from the API server
	off    bool // switched off: the next start is another boot
	gone   bool // its Node object does not exist
	apart  bool // it stays off until the others have put back what they hold
	paused bool

	// Clocks. In one boot only one of the two lies: the wall clock jumps, or the
	// boot clock stops while the machine is paused.
	liar     clock
	bootAt   time.Duration
	stopped  time.Duration
	pausedAt time.Duration
	wallOff  time.Duration
}

type clock uint8

const (
	wallClock clock = iota
	bootClock
)

func (n *simNode) bootID() string { return fmt.Sprintf("%s-boot%d", n.machine, n.boots) }

func (n *simNode) now() protocol.Instant {
	stopped := n.stopped
	if n.paused && n.liar == bootClock {
		stopped += n.w.now - n.pausedAt
	}
	return protocol.Instant{Boot: n.w.now - n.bootAt - stopped, Wall: epoch.Add(n.w.now + n.wallOff)}
}

// newStore gives the node an empty disk.
func (n *simNode) newStore() {
	n.stores++
	n.disk = newDisk(storeID(n.machine, n.stores))
	n.synced, n.heard = nil, 0
}

func storeID(machine string, i int) protocol.StoreID {
	return protocol.StoreID(fmt.Sprintf("%s-store%d", machine, i))
}

// boot starts the machine anew: the boot clock at 0, the wall clock anywhere near.
func (n *simNode) boot() {
	n.boots++
	n.off, n.paused, n.stopped, n.bootAt, n.run = false, false, 0, n.w.now, witness{}
	n.liar = clock(n.w.rng.IntN(2))
	n.wallOff = time.Duration(n.w.rng.Int64N(int64(2*time.Hour))) - time.Hour
}

// start starts the agent: it takes up what the disk has.
func (n *simNode) start() {
	if !n.provable() {
		n.replaceStore()
	}
	self := protocol.Identity{Node: n.name, NodeUID: "node", Store: n.disk.store, Machine: n.machine, Boot: n.bootID(), Fence: n.fence}
	boot := n.disk.boot
	if n.w.fault == M44 && boot != "" {
		boot = self.Boot
	}
	n.agent = newAgent(protocol.Resume(self, boot, n.disk.term, n.disk.sent, n.disk.fence), n.w.now)
	n.agent.pool, n.agent.history = n.disk.pool, n.disk.history.SawOpening(n.disk.pool.Opening)
	for name, r := range n.disk.rights {
		if !r.Serves(n.disk.term) {
			n.agent.looks[name] = n.w.now
		}
		n.agent.history = n.agent.history.SawRight(r, n.disk.term)
	}
	n.w.logf("%s: starts, store %s, boot %s, term %d, F %v", n.machine, n.disk.store, self.Boot, n.agent.registrar.Term, n.fence)
	n.listOwn()
}

// crash ends the agent's process. Whoever waits for it sees the connection end: a
// DEL goes to the journal.
func (n *simNode) crash() {
	n.w.logf("%s: crashes", n.machine)
	n.w.count("crash")
	dels := n.agent.dels
	n.die()
	n.agent = nil
	n.journal = append(n.journal, dels...)
	for _, s := range n.sandboxes {
		if s.adding {
			n.answerAdd(s, nil)
		}
	}
}

// act does one thing on the node, or to it.
func (n *simNode) act() {
	if n.w.kind.losesStores && n.w.one(30) {
		n.image = n.disk.clone()
	}
	switch w := n.w; {
	case w.one(w.trouble):
		n.suffer()
	case w.one(6):
		n.kubelet()
	case n.cut && w.one(25):
		n.cut = false
		w.logf("%s: cut off no more", n.machine)
	case n.agent == nil:
		if w.one(6) {
			n.restart()
		}
	case n.paused:
		if w.one(6) {
			n.wake()
		}
	case n.beatDue() && !w.one(4):
		n.beat(protocol.RegistrationEvent{})
	default:
		for range 1 + w.rng.IntN(8) { // close together, as most things are
			if n.agent == nil || w.one(5) || !n.work() {
				break
			}
		}
		if n.agent != nil && (w.one(3) || len(n.todo)+len(n.pending) == 0) {
			n.maintain()
		}
	}
}

func (n *simNode) beatDue() bool { return !n.agent.beating && n.w.now >= n.agent.beatAt }

func (n *simNode) restart() {
	if n.apart = n.apart && (n.w.noPods() || n.w.unput()) && !n.w.calm; n.apart {
		return
	}
	if n.w.kind.losesStores && n.w.one(3) && !n.w.calm {
		n.meddle()
	}
	if n.off {
		n.boot()
	}
	if n.w.one(10) && !n.w.calm && !n.w.kind.never { // 0 on one node alone is not waited for
		n.fence = []time.Duration{5 * time.Minute, defaultFence, 40 * time.Minute}[n.w.rng.IntN(3)]
	}
	n.start()
}

// suffer is what may befall a node.
func (n *simNode) suffer() {
	w := n.w
	switch w.rng.IntN(8) {
	case 0, 1:
		if n.agent != nil {
			n.crash()
		}
	case 2:
		if w.one(2) && !n.off {
			w.logf("%s: machine off", n.machine)
			n.powerOff()
		}
	case 3, 4:
		n.cut = true
		w.logf("%s: cut off", n.machine)
	case 5:
		if !n.off && !n.paused {
			n.paused, n.pausedAt = true, w.now
			w.logf("%s: pauses", n.machine)
		}
	case 6:
		if n.liar == wallClock {
			n.wallOff += time.Duration(w.rng.Int64N(int64(4*time.Hour))) - 2*time.Hour
			w.logf("%s: wall clock jumps", n.machine)
		}
	case 7:
		n.full = !n.full
		w.logf("%s: disk full: %v", n.machine, n.full)
	}
}

func (n *simNode) wake() {
	if n.liar == bootClock {
		n.stopped += n.w.now - n.pausedAt
	}
	n.paused = false
	n.w.logf("%s: goes on", n.machine)
}

// serving reports whether the agent may give out addresses now.
func (n *simNode) serving() bool {
	if n.agent == nil || n.paused {
		return false
	}
	ok, _ := n.agent.registrar.Serving(n.now())
	return ok
}

// serves reports whether r gives addresses in the agent's term.
func (n *simNode) serves(r protocol.Right) bool {
	return n.agent != nil && r.Serves(n.agent.registrar.Term)
}

// names are the names of the node's rights that keep accepts, in order.
func (n *simNode) names(keep func(protocol.Right) bool) []string {
	var names []string
	for name, r := range n.disk.rights {
		if keep(r) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// beat steps the registration.
func (n *simNode) beat(ev protocol.RegistrationEvent) {
	a := n.agent
	if ev.Now == (protocol.Instant{}) {
		ev.Now = n.now()
	}
	a.registrar.Restored = ""
	if r := a.history.Restored; r != nil {
		a.registrar.Restored = r.String()
	}
	a.registrar.Report = a.answer
	had := a.registrar.Term
	ev = n.w.fault.reg(a.registrar, ev)
	res := protocol.StepRegistration(a.registrar, ev)
	if res.Accepted && n.w.fault == M19 {
		res.Next.Sent = ev.Now
	}
	a.beating = res.Call != protocol.RegistrationNone
	if res.Accepted {
		n.accept(had, res.Next)
		if res.Again {
			a.beatAt = n.w.now
		}
		return
	}
	a.registrar = res.Next
	if had != 0 && a.registrar.Term == 0 {
		n.w.logf("%s: registration lost: %s", n.machine, res.Why)
	}
	if !a.beating {
		a.beatAt = n.w.now + 2*time.Second + time.Duration(n.w.rng.Int64N(int64(4*time.Second)))
		return
	}
	n.later(func() { n.callRegistration(res) })
}

func (n *simNode) callRegistration(res protocol.RegistrationResult) {
	ev := protocol.RegistrationEvent{Call: res.Call}
	api, sent := n.w.api.regs, n.sight()
	what := n.w.text("registration call %d, term %d, turn %d, rev %s", res.Call, res.Write.Term, res.Write.Turn, res.Write.Revision)
	n.ask(what, res.Call != protocol.RegistrationRead, func() {
		switch res.Call {
		case protocol.RegistrationRead:
			ev.Registration, ev.Outcome = api.read(string(n.name))
		case protocol.RegistrationCreate:
			write := res.Write
			write.Name = string(n.name)
			ev.Registration, ev.Outcome = api.create(write)
		case protocol.RegistrationUpdate:
			ev.Registration, ev.Outcome = api.update(res.Write.Meta, func(s *protocol.Registration) { *s = res.Write })
		case protocol.RegistrationNone:
		}
		n.w.logf("server: %s: %v", what, ev.Outcome)
		if res.Call != protocol.RegistrationRead && ev.Outcome == protocol.Done {
			n.w.heard(res.Write)
		}
	}, func(known bool) {
		n.agent.met = n.agent.met || known
		if !known || ev.Outcome == protocol.Done && !n.sawRegistration(sent, ev.Registration) {
			ev = protocol.RegistrationEvent{Call: res.Call}
		}
		ev.Now = n.now()
		n.beat(ev)
	})
	n.pending[len(n.pending)-1].reg = true
}

// heard notes that a heartbeat was accepted.
func (w *world) heard(s protocol.Registration) {
	b := w.beats[s.Store]
	if b.fence > 0 && w.now-b.at >= b.fence {
		b.back = w.now
	}
	b.at, b.fence = w.now, s.Fence
	w.beats[s.Store] = b
}

// accept takes over an accepted heartbeat: disk first.
func (n *simNode) accept(had int64, next protocol.Registrar) {
	a := n.agent
	n.commit(func(d *simDisk) {
		d.boot, d.term, d.sent, d.fence = next.Self.Boot, next.Term, next.Sent, next.Self.Fence
		d.history = a.history
	})
	if n.w.one(20) && !n.w.calm { // between disk and memory
		n.crash()
		panic(processEnd{})
	}
	a.registrar, a.heard = next, true
	a.beatAt = n.w.now + next.BeatEvery()
	if next.Term == had {
		return
	}
	n.w.logf("%s: is registered in term %d", n.machine, next.Term)
	n.w.count("term")
	for _, name := range n.names(func(r protocol.Right) bool { return !r.Serves(next.Term) }) {
		if r := n.disk.rights[name]; n.w.fault == M45 && r.Phase == protocol.Held && r.Term != 0 {
			r.Term = next.Term
			n.disk.rights[name] = r
		}
		a.looks[name] = n.w.now
	}
	n.listOwn()
	n.listFormer()
}

package simulation

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/store/disk"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

const defaultFence = 15 * time.Minute

// simNode is a machine with a disk and, while it runs, the agent that ships.
type simNode struct {
	caller
	name    protocol.NodeName
	machine string
	fence   time.Duration // F, as configured
	agent   *simAgent     // nil while it does not run
	disk    *simDisk      // as the store has it
	memory  *disk.Memory  // what the store is on; nil if there is none
	run     runFile
	backup  *disk.Memory // an image of the disk
	full    bool         // nothing more can be written to the disk
	meddled bool         // the disk is not the latest
	failing bool         // the power is about to fail

	// host calls for the runtime and the meta-plugin, where there is another IPAM. Of that
	// are guests. shows are pods' status to be written, and switched says that the
	// meta-plugin has seen the new definition.
	host     caller
	guests   []*guest
	shows    []statusWrite
	switched bool

	heard     hearsay
	sandboxes []*sandbox
	valid     map[string]bool // those that the runtime lists for its next GC; nil if it has not begun one
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

func (n *simNode) bootID() string {
	if n.w.fault == "M44" {
		return n.machine + "-boot"
	}
	return fmt.Sprintf("%s-boot%d", n.machine, n.boots)
}

func (n *simNode) now() protocol.Instant {
	stopped := n.stopped
	if n.paused && n.liar == bootClock {
		stopped += n.w.now - n.pausedAt
	}
	return protocol.Instant{Boot: n.w.now - n.bootAt - stopped, Wall: epoch.Add(n.w.now + n.wallOff)}
}

func storeID(machine string, i int) protocol.StoreID {
	return protocol.StoreID(fmt.Sprintf("%s-store%d", machine, i))
}

// boot starts the machine anew: the boot clock at 0, the wall clock anywhere near.
func (n *simNode) boot() {
	n.boots++
	n.off, n.paused, n.stopped, n.bootAt = false, false, 0, n.w.now
	n.forgetThawed()
	n.liar = clock(n.w.rng.IntN(2))
	n.forgetWitness()
	n.wallOff = time.Duration(n.w.rng.Int64N(int64(2*time.Hour))) - time.Hour
}

// crash ends the agent's process. Whoever waits for it sees the connection end: a
// DEL goes to the journal.
func (n *simNode) crash() {
	n.w.logf("%s: crashes", n.machine)
	n.die()
	n.stop()
	for _, s := range n.sandboxes {
		if s.adding {
			n.answerAdd(s, nil)
		}
	}
}

// act does one thing on the node, or to it.
func (n *simNode) act() {
	if n.w.kind.losesStores && n.w.one(30) && n.memory != nil {
		n.backup = n.memory.Clone()
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
	default:
		n.actAgent()
	}
}

func (n *simNode) restart() {
	if n.apart = n.apart && (n.w.noPods() || !n.w.everyAgent((*simNode).putBack)) && !n.w.calm; n.apart {
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
	ok, _ := n.agent.agent.Serving()
	return ok
}

// serves reports whether r gives addresses in the agent's term.
func (n *simNode) serves(r protocol.Right) bool { return n.agent != nil && r.Usable(n.disk.term) }

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

// heard notes that a heartbeat was accepted.
func (w *world) heard(s protocol.Registration) {
	b := w.beats[s.Store]
	if b.fence > 0 && w.now-b.at >= b.fence {
		b.back = w.now
	}
	b.at, b.fence = w.now, s.Fence
	w.beats[s.Store] = b
}

package simulation

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// world is one run of the model: an API server, nodes, a controller, people, and
// the faults between them. One random source decides who acts next, so that a
// seed determines the run.
type world struct {
	rng   *choices
	now   time.Duration
	api   *simAPI
	nodes []*simNode
	ctls  []*simController
	late  []*simCall // given up by their callers, and still on their way
	idle  []*coroutine
	shown map[protocol.Revision]any // objects in the API's words
	dir   string                    // where their disks are
	fault Fault                     // the bug that is switched on, if any
	calm  bool                      // the faults have ended
	kind  flavour

	// How often something befalls a node, and a caller gives up: once in so many
	// times. It differs between runs, so that long quiet ones are among them.
	trouble, patience int
	// delay is how long writes that nobody waits for are under way: in so many of
	// 100 acts one arrives.
	delay int
	// haste is how many in a hundred acts are the controller's.
	haste int
	// passF counts the acts until F passes at once.
	passF int

	// all are the pods that there are, or of which something is left.
	all        []*simPod
	resources  []*resource // the ResourceClaims that there are
	pods, cids int

	// excused are the UIDs of objects that were taken from under their holder by
	// a person, or by the controller on the operator's word: until the holder
	// looks again, I1 rests on that person.
	excused map[protocol.UID]bool
	// unnamed are the stores that a registration named which a person has deleted, and those
	// that the controller has taken off a registration: if one is lost, nobody knows whose what
	// names it is.
	unnamed map[protocol.StoreID]bool
	// truth is what every claim owns, and checked the revision at which it was
	// last compared.
	truth   map[protocol.UID]*tenure
	checked int
	// beats are the last heartbeats that each store's agent had accepted.
	beats map[protocol.StoreID]beat
	// frozen are the stores of machines that were given up.
	frozen map[protocol.StoreID]bool
	// other is the other IPAM, nil where there is none.
	other *otherIPAM
	racks *racks // nil where the nodes' pool is one for all nodes
	// saved is the last snapshot, and outrun the UIDs of what nodes had when the API
	// server went back, as far as they have not noticed.
	saved   *backup
	holding bool // no pods start
	// exhausted says that a pool has been: what is freed is ceded then.
	exhausted bool
	outrun    map[protocol.UID]bool

	stats   map[string]int
	trace   []string
	tracing bool
	failure *Failure
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newWorld(c *choices, bug Fault, tracing bool) *world {
	w := &world{
		rng: c, now: 24 * time.Hour, api: newSimAPI(), fault: bug, tracing: tracing,
		excused: map[protocol.UID]bool{}, outrun: map[protocol.UID]bool{}, unnamed: map[protocol.StoreID]bool{}, frozen: map[protocol.StoreID]bool{}, stats: map[string]int{},
		shown: map[protocol.Revision]any{}, truth: map[protocol.UID]*tenure{}, beats: map[protocol.StoreID]beat{},
	}
	w.choose()
	w.makeDir()
	if w.kind.foreign {
		w.moveIn()
	}
	if w.kind.racks {
		w.putUpRacks()
	}
	for _, name := range poolNames {
		size := w.beginningSize(name)
		if w.other != nil && w.other.joined && name == poolName {
			w.createPool(w.newPool(name, size)) // it was never open
			continue
		}
		w.makePool(name, size)
	}
	leaders := 1
	if w.kind.leaders {
		leaders = 2
	}
	for i := range leaders {
		w.ctls = append(w.ctls, newSimController(w, fmt.Sprintf("c%d", i)))
	}
	for i := range 2 + w.rng.IntN(3) {
		n := &simNode{machine: fmt.Sprintf("m%d", i), name: protocol.NodeName(fmt.Sprintf("n%d", i)), fence: defaultFence}
		if w.kind.never {
			n.fence = 0
		}
		n.caller = caller{w: w, who: n.machine, refusals: 60, deaf: func() bool { return n.cut }}
		n.host = caller{w: w, who: n.machine + "'s runtime", deaf: func() bool { return n.cut }}
		if w.kind.twins && i == 1 {
			n.name = "n0"
		}
		if w.racks != nil && w.racks.labels[n.name] == "" {
			w.racks.labels[n.name] = w.someRack()
		}
		n.voided, n.disowned = map[attKey]bool{}, map[attKey]bool{}
		n.disk = newDisk("")
		n.boot()
		n.start()
		w.nodes = append(w.nodes, n)
		for w.other != nil && w.one(2) {
			n.settled(!w.one(4))
		}
	}
	w.syncRacks()
	return w
}

// shape returns the shape of the nodes' pool as it is now; nil while there is none.
func (w *world) shape() *allocator.Shape {
	p, out := w.api.pools.read(string(poolName))
	if out != protocol.Done {
		return nil
	}
	shape, err := poolspec.ParsePool(kube.PoolText(p.obj))
	must(err)
	return shape
}

// beat is an accepted heartbeat: when, and the F that it told; and when the last one
// came before which the agent had been silent for F, 0 if there was none.
type beat struct{ at, fence, back time.Duration }

// silent reports whether whoever sent b is silent for F at now, or was until a moment
// ago: what was decided then may be under way.
func (b beat) silent(now time.Duration) bool {
	return b.fence > 0 && now-b.at >= b.fence || b.back > 0 && now-b.back <= lateMost
}

// one is true once in n times.
func (w *world) one(n int) bool { return n > 0 && w.rng.IntN(n) == n-1 }

func pickOf[T any](w *world, from []T) (T, bool) {
	if len(from) == 0 {
		var zero T
		return zero, false
	}
	return from[w.rng.IntN(len(from))], true
}

// firstOf returns the first of all that is so, nil if none is.
func firstOf[T any](all []*T, so func(*T) bool) *T {
	if i := slices.IndexFunc(all, so); i >= 0 {
		return all[i]
	}
	return nil
}

func (w *world) logf(format string, args ...any) {
	if w.tracing {
		w.trace = append(w.trace, fmt.Sprintf("%10.3fs ", (w.now-24*time.Hour).Seconds())+fmt.Sprintf(format, args...))
	}
}

// text is fmt.Sprintf for the trace alone.
func (w *world) text(format string, args ...any) string {
	if !w.tracing {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// fail notes that an invariant is broken. The first one counts.
func (w *world) fail(broken Invariant, format string, args ...any) {
	if w.failure == nil {
		w.failure = &Failure{Invariant: broken, Text: fmt.Sprintf(format, args...)}
		w.logf("FAILURE: %s", w.failure)
	}
}

func (w *world) count(what string) { w.stats[what]++ }

// advance lets time pass: mostly a little, sometimes minutes.
func (w *world) advance() {
	if w.looking() && !w.one(20) { // or the nodes' answers would nearly always be late
		w.now += w.upTo(30 * time.Millisecond)
		return
	}
	switch i := w.rng.IntN(400); {
	case i >= 397:
		w.now += w.upTo(4 * time.Minute)
	case i >= 385:
		w.now += w.upTo(30 * time.Second)
	default:
		w.now += w.upTo(300 * time.Millisecond)
	}
}

func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d))) }

// lateMost is how long a write is under way at most that nobody waits for, as far as
// time does not jump: creates of a lost store are looked for during half an hour.
const lateMost = 5 * time.Minute

// act lets somebody do one thing.
func (w *world) act() {
	for len(w.late) > 0 && w.now-w.late[0].left > lateMost {
		w.lateWrite(0)
	}
	w.advance()
	if w.passF--; w.passF == 0 {
		w.now += defaultFence - time.Minute + w.upTo(4*time.Minute)
	}
	switch i := w.rng.IntN(100); {
	case i < w.delay:
		if len(w.late) > 0 {
			w.lateWrite(w.rng.IntN(len(w.late)))
		}
	case i < 7:
		w.person()
	case i < 10, i < 14 && w.kind.edge:
		if w.kind.uses {
			w.personClaims()
		}
	case i < 10+w.haste:
		w.ctls[w.rng.IntN(len(w.ctls))].act()
	default:
		n := w.nodes[w.rng.IntN(len(w.nodes))]
		n.outlive(n.act)
	}
	if w.other != nil && w.one(2) {
		w.hurry()
	}
	w.syncRacks()
	w.letGoOfDevices()
	w.check()
}

// lateWrite commits or drops a write that nobody waits for any more.
func (w *world) lateWrite(i int) {
	c := w.late[i]
	w.late = slices.Delete(w.late, i, i+1)
	if w.one(4) {
		w.logf("network: drops %s", c.what)
		return
	}
	w.logf("network: late: %s", c.what)
	c.arrive()
}

// person does what people do to a cluster.
func (w *world) person() {
	if w.kind.moves && w.one(3) {
		w.moveRange()
		return
	}
	if w.other != nil && !w.one(3) {
		w.otherPerson()
		return
	}
	if w.racks != nil && w.one(4) {
		w.moveRacks()
		return
	}
	if w.kind.perNode && w.one(6) {
		w.pinSubnet()
		return
	}
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	switch w.rng.IntN(6) {
	case 0:
		n.gone = !n.gone
		w.logf("person: Node %s is there: %v", n.name, !n.gone)
	case 1:
		w.lose(n)
	case 2:
		if l, ok := pickOf(w, w.api.leases.list(nil)); ok {
			w.finalizer(l.Name)
		}
	case 3:
		if w.kind.restores {
			w.backUp()
		}
		if w.kind.handDeletes {
			w.deleteByHand(n)
		}
	case 4: // nothing happens for long
		w.now += w.upTo(20 * time.Minute)
	case 5:
		if w.kind.edits {
			w.editPools()
		}
		if w.kind.resizes {
			w.resize(poolName)
		}
	}
}

// lose makes a node one that the controller will hold for dead, as the fault model
// has it: its Node object goes, it is cut off, or the machine off, maybe with a
// heartbeat whose answer was long on its way; and then F passes.
func (w *world) lose(n *simNode) {
	w.logf("person: Node %s is lost", n.name)
	for i, x := range n.pending {
		if x.reg && x.committed && n.agent != nil && !n.paused {
			n.pending = slices.Delete(n.pending, i, i+1)
			w.now += w.upTo(5 * time.Minute)
			n.outlive(func() { x.answer(true) })
			break
		}
	}
	if w.one(3) && !n.off {
		n.powerOff()
	}
	n.gone, n.cut = true, true
	for _, c := range w.ctls {
		if !c.down {
			c.soon(task{lookAtRegistration, string(n.name)}, 0)
			c.reconcile()
		}
	}
	w.passF = 10 + w.rng.IntN(40)
}

// finalizer adds a foreign finalizer to a lease, or takes it off.
func (w *world) finalizer(name string) {
	if w.api.leases.finalizers[name] {
		w.logf("somebody: finalizer off %s", name)
		w.api.leases.finalize(name)
		return
	}
	w.logf("somebody: finalizer on %s", name)
	w.api.leases.finalizers[name] = true
}

func (w *world) deleteByHand(n *simNode) {
	switch w.rng.IntN(5) {
	case 0:
		w.logf("person: deletes registration %s", n.name)
		if s, out := w.api.regs.read(string(n.name)); out == protocol.Done {
			for _, store := range storesOf(s) {
				w.unnamed[store] = true
			}
			if w.kind.twins { // with it goes F: the other machine may register with a shorter one
				for _, l := range w.api.leases.list(func(l protocol.Lease) bool { return w.unnamed[l.Store] }) {
					w.excuse(l.UID)
				}
			}
		}
		w.api.regs.remove(protocol.Meta{Name: string(n.name)})
	case 1, 2:
		if s, ok := pickOf(w, w.api.subs.list(nil)); ok {
			w.logf("person: deletes use %s", s.Name)
			w.excuse(s.UID)
			w.api.subs.remove(s.Meta)
		}
	default:
		if l, ok := pickOf(w, w.api.leases.list(nil)); ok {
			w.voidGrants(l)
			w.logf("person: deletes lease %s", l.Name)
			w.excuse(l.UID)
			for _, g := range l.Grants {
				w.excuse(g.To.UID)
			}
			w.api.leases.remove(l.Meta)
		}
	}
}

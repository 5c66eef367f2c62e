package simulation_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// modelSeeds is how many runs a test of the model plays.
const modelSeeds = 2000

// runSeed plays one run and returns the world it left. With tracing it also says
// what happened.
func runSeed(seed uint64, bug fault, tracing bool) *world {
	w := newWorld(seed, bug, tracing)
	for range 700 {
		w.act()
		if w.failure != "" {
			return w
		}
	}
	w.settle()
	return w
}

// TestModel plays many runs of nodes, controller and people against a simulated
// API server, with crashes, lost answers, late writes, lying clocks and take-overs
// between any two steps, and holds I1 and I4 against each (F1, F2, F7, F8, F15,
// H1, H2, H3, H5, H10, H13).
func TestModel(t *testing.T) {
	seeds := uint64(modelSeeds)
	if testing.Short() {
		seeds /= 4
	}
	stats := map[string]int{}
	for seed := range seeds {
		w := runSeed(seed, noFault, false)
		if w.failure != "" {
			t.Fatalf("seed %d: %s\n%s", seed, w.failure, traceOf(seed, noFault))
		}
		for k, v := range w.stats {
			stats[k] += v
		}
	}
	for _, what := range slices.Sorted(maps.Keys(stats)) {
		t.Logf("%-16s %6.1f a seed", what, float64(stats[what])/float64(seeds))
	}
}

// TestModelIsDetermined holds that a seed is all there is to a run: one that fails
// can be played again.
func TestModelIsDetermined(t *testing.T) {
	for seed := range uint64(20) {
		first, second := runSeed(seed, noFault, true).trace, runSeed(seed, noFault, true).trace
		if !slices.Equal(first, second) {
			for i := range min(len(first), len(second)) {
				if first[i] != second[i] {
					t.Fatalf("seed %d: got first %q, then %q", seed, first[i], second[i])
				}
			}
			t.Fatalf("seed %d: got %d lines, then %d", seed, len(first), len(second))
		}
	}
}

// traceOf plays a seed again and returns the end of its trace.
func traceOf(seed uint64, bug fault) string {
	trace := runSeed(seed, bug, true).trace
	return strings.Join(trace[max(0, len(trace)-150):], "\n")
}

// check holds the invariants against this moment.
func (w *world) check() {
	var gives []giver
	for _, n := range w.nodes {
		if len(n.disk.rights) == 0 || !n.serving() {
			continue
		}
		for _, r := range n.disk.rights {
			if r.Kind == protocol.RightLease && n.serves(r) {
				gives = append(gives, giver{n, r})
			}
		}
	}
	for i, g := range gives {
		if w.excused[g.UID] {
			continue
		}
		l, out := w.api.leases.read(g.Name)
		switch {
		case out != protocol.Done:
			w.fail("%s serves %s, which does not exist", g.node.machine, g.Name)
		case l.Holder.Node != g.node.name || l.Store != g.node.disk.store:
			w.fail("%s serves %s, which names %v, store %s", g.node.machine, g.Name, l.Holder, l.Store)
		}
		for _, o := range gives[:i] {
			if o.node != g.node && o.Block.Overlaps(g.Block) && !w.excused[o.UID] {
				w.fail("%s serves %s while %s serves %s", g.node.machine, g.Name, o.node.machine, o.Name)
			}
		}
	}
	if w.kind.uses {
		w.checkUses()
	}
}

// giver is a node and one of the leases that it gives addresses of.
type giver struct {
	node *simNode
	protocol.Right
}

// checkUses holds against this moment that a claim's address is its pods', and
// that two pods that have it are siblings.
func (w *world) checkUses() {
	type user struct {
		node *simNode
		use  protocol.Right
		pod  protocol.PodRef
	}
	var users []user
	for _, n := range w.nodes {
		for name, att := range n.disk.used {
			r, ok := n.disk.rights[name]
			if ok && w.excused[r.UID] {
				att.void = true
				n.disk.used[name] = att
			}
			if ok && r.Kind == protocol.RightUse && !n.off && att.boot == n.bootID() && !att.void {
				users = append(users, user{n, r, att.pod})
			}
		}
	}
	l, _ := w.api.leases.read(claimLease)
	for i, u := range users {
		uid := u.use.Use.Claim.UID
		if len(l.GrantsOf(uid)) == 0 {
			w.fail("%s has pod %s on claim %s, whose address was freed", u.node.machine, u.pod.Name, uid)
		}
		for _, o := range users[:i] {
			if o.use.Use.Claim.UID == uid && o.node != u.node && !mayShare(o.pod, u.pod) {
				w.fail("claim %s has pod %s on %s and pod %s on %s", uid, o.pod.Name, o.node.machine, u.pod.Name, u.node.machine)
			}
		}
	}
}

// settle ends the faults and all use, lets everybody look as often as they would,
// and holds that within an hour and a half every node serves, every record is
// forgotten and every object gone. The hourly list runs at once and twice more.
func (w *world) settle() {
	w.calm = true
	w.logf("the faults end")
	for len(w.late) > 0 {
		w.lateWrite(0)
	}
	for name := range maps.Clone(w.api.leases.finalizers) {
		w.api.leases.finalize(name)
	}
	nodes := w.nodes
	if w.kind.twins { // X26: somebody stops the second agent, and gives up its disk
		twin := nodes[1]
		if twin.agent != nil {
			twin.crash()
		}
		w.frozen[twin.disk.store] = true
		clear(twin.disk.used)
		nodes = slices.Delete(slices.Clone(nodes), 1, 2)
	}
	for round := range 90 {
		w.now += time.Minute
		for _, n := range nodes {
			n.cut, n.gone = false, false
			clear(n.disk.used)
			n.recover()
			if round%40 == 0 {
				n.listOwn()
			}
			n.letGo()
			n.lookDue()
		}
		w.ctl.recover(nodes)
		for busy := true; busy && w.failure == ""; {
			busy = w.ctl.work()
			for _, n := range nodes {
				busy = n.work() || busy
			}
			w.now += 10 * time.Millisecond
			w.check()
		}
		if w.failure != "" || w.unrest(nodes) == "" {
			return
		}
	}
	w.fail("after the faults have ended, %s", w.unrest(nodes))
}

// unrest says what is left undone, if anything.
func (w *world) unrest(nodes []*simNode) string {
	for _, n := range nodes {
		if ok, why := n.agent.sitting.Serving(n.now()); !ok {
			return fmt.Sprintf("%s does not serve: %s", n.machine, why)
		}
		for _, name := range n.names(func(protocol.Right) bool { return true }) {
			return fmt.Sprintf("%s does not get rid of %s: %s", n.machine, name, recordText(n.disk.rights[name]))
		}
		for _, l := range w.api.leases.list(func(l protocol.Lease) bool { return l.Store == n.disk.store }) {
			if _, ok := n.disk.rights[l.Name]; !ok {
				return fmt.Sprintf("lease %s names %s, which has no record of it", l.Name, n.machine)
			}
		}
		for _, s := range w.api.subs.list(func(s protocol.SubLease) bool { return s.Store == n.disk.store }) {
			if _, ok := n.disk.rights[s.Name]; !ok {
				return fmt.Sprintf("use %s names %s, which has no record of it", s.Name, n.machine)
			}
		}
	}
	if p, _ := w.api.pools.read(string(poolName)); !p.Open {
		return "the pool is closed"
	}
	return ""
}

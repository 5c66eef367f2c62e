package soak_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// Load of one node.
const (
	workersOfNode = 3
	mostHeld      = 24                     // by one worker
	think         = 100 * time.Millisecond // between two calls of one worker
)

// attachment is an ADD that a worker has made.
type attachment struct {
	fleet.Interface
	epoch    int64          // of the node
	losses   int64          // of the node's store, when it was made
	restores int            // of the API server's data, when it was made
	addrs    []netip.Prefix // nil: not answered
	asked    bool           // for an address by name
}

// worker is a source of calls on one node: what it makes, it ends.
type worker struct {
	w    *world
	n    *node
	rng  *rand.Rand
	held []*attachment
	dead []fleet.Interface // for DELs that come late or again
}

// startLoad starts the workers of every node.
func (w *world) startLoad() []*worker {
	var all []*worker
	for _, n := range w.nodes {
		for range workersOfNode {
			k := &worker{w: w, n: n, rng: rand.New(rand.NewPCG(w.set.seed, uint64(len(all)+1)))}
			all = append(all, k)
			w.workers.Go(k.run)
		}
	}
	return all
}

func (k *worker) run() {
	for !k.w.over() {
		k.n.gate.RLock()
		k.w.calls.RLock()
		k.mourn()
		k.step()
		k.w.calls.RUnlock()
		k.n.gate.RUnlock()
		k.w.pause(k.rng, think)
	}
}

// mourn takes up that the node has been off: what ran is gone, and the runtime
// ends it late.
func (k *worker) mourn() {
	epoch := k.n.epoch.Load()
	k.held = slices.DeleteFunc(k.held, func(a *attachment) bool {
		gone := a.epoch != epoch
		if gone {
			k.dead = append(k.dead, a.Interface)
		}
		return gone
	})
}

// step makes one call, or the few of one change.
func (k *worker) step() {
	var a *attachment
	if len(k.held) > 0 {
		a = k.held[k.rng.IntN(len(k.held))]
	}
	switch p := k.rng.IntN(100); {
	case k.w.holding.Load():
		k.hold(a, p)
	case a == nil || p < 40 && len(k.held) < mostHeld:
		k.begin()
	case k.lost(a):
		k.end(a)
	case p < 70 || len(k.held) >= mostHeld:
		k.end(a)
	case p < 80:
		k.add(a) // again
	case p < 86:
		k.check(a)
	case p < 92:
		k.late()
	case p < 97:
		k.renew(a)
	default:
		k.abandon(a)
	}
}

// lost reports whether an attachment is to be ended, and nothing else to be asked of it: what
// a lost store knew, or what went with the API server's data.
func (k *worker) lost(a *attachment) bool {
	return k.n.forgotten(a.losses) || k.w.past.took(k.n.Name, a.Interface, a.restores)
}

// hold is step while no pod is to start: most of what runs, runs on.
func (k *worker) hold(a *attachment, p int) {
	switch {
	case a == nil || p < 10:
		k.late()
	case k.lost(a) || p < 15:
		k.end(a)
	case len(a.addrs) == 0: // it has not started
	case p < 60:
		k.add(a)
	default:
		k.check(a)
	}
}

// begin makes a new attachment: of a pod or of none, with an address by name or
// without.
func (k *worker) begin() {
	s := draw(k.rng)
	i, err := k.w.sandbox(k.n, s)
	if err != nil {
		k.w.t.Error(err)
		return
	}
	a := &attachment{Interface: i, epoch: k.n.epoch.Load(), losses: k.n.losses.Load(), restores: k.w.past.restores}
	switch p := k.rng.IntN(100); {
	case p < 20:
		name := fmt.Sprintf("p%d", k.w.serial.Add(1))
		if a.Interface, err = k.w.pod(k.w.t.Context(), name, k.n.Name, "", i); err != nil {
			k.w.scrap(i)
			k.w.stats.count("pods not made")
			return
		}
	case p < 30:
		a.asked = true
		a.Top = map[string]any{"runtimeConfig": map[string]any{"ips": []string{k.any(s).String()}}}
	}
	k.held = append(k.held, a)
	k.add(a)
}

// any returns an address of a pool, in use or not.
func (k *worker) any(s subject) netip.Addr {
	b := s.prefix.Addr().As4()
	n := 1 + k.rng.IntN(1<<(32-s.prefix.Bits())-2)
	b[2] += byte(n >> 8)
	b[3] += byte(n)
	return netip.AddrFrom4(b)
}

// add is an ADD, the first or another. An ADD may be refused for good reasons; the
// runtime then ends it, or tries again.
func (k *worker) add(a *attachment) {
	began := time.Now()
	res, err := k.n.Add(a.Interface)
	if err == nil {
		k.w.stats.took(time.Since(began))
		a.addrs = a.addrs[:0]
		for _, ip := range res.IPs {
			a.addrs = append(a.addrs, ip.Address)
		}
		return
	}
	k.w.refused("ADD", k.n.Name, a, err)
	if k.rng.IntN(2) == 0 {
		k.end(a)
	}
}

// refused counts a refusal, and reports one that nothing here explains.
func (w *world) refused(verb, node string, a *attachment, err error) {
	e, ok := errors.AsType[*agentapi.Error](err)
	if !ok {
		w.stats.count(verb + " without an answer") // the agent was killed
		return
	}
	w.stats.count(fmt.Sprintf("%s refused with code %d", verb, e.Code))
	if e.Code == agentapi.CodeTryAgainLater || a.asked && e.Code == agentapi.CodeInvalidConfig {
		return // an address by name may be excluded meanwhile
	}
	w.t.Errorf("%s of %s on %s, %s: code %d: %v", verb, a.Sandbox, node, a.Network, e.Code, err)
}

// end is a DEL that is repeated until it is answered, as the runtime does.
func (k *worker) end(a *attachment) {
	k.held = slices.DeleteFunc(k.held, func(b *attachment) bool { return a == b })
	k.dead = append(k.dead, a.Interface)
	k.del(a.Interface)
	if a.Pod != "" {
		if err := k.w.unpod(k.w.t.Context(), a.Interface); err != nil {
			k.w.stats.count("pods not deleted")
		}
	}
	if err := os.Remove(a.Netns); err != nil && !errors.Is(err, os.ErrNotExist) {
		k.w.t.Error(err)
	}
}

// del tries a DEL a few times. The dead are ended once more when the load is over.
func (k *worker) del(i fleet.Interface) {
	for range 5 {
		err := k.n.Del(i)
		if err == nil {
			k.w.stats.count("DEL")
			return
		}
		k.w.refused("DEL", k.n.Name, &attachment{Interface: i}, err)
		k.w.pause(k.rng, think)
	}
}

// late is a DEL of what has long been ended: it must not free what a newer ADD
// holds.
func (k *worker) late() {
	if len(k.dead) == 0 {
		return
	}
	k.w.stats.count("late DEL")
	k.del(k.dead[k.rng.IntN(len(k.dead))])
}

// check is a CHECK of what was answered.
func (k *worker) check(a *attachment) {
	if len(a.addrs) == 0 {
		return
	}
	if err := k.n.CheckAdd(a.With(a.addrs)); err != nil {
		k.w.refused("CHECK", k.n.Name, a, err)
		return
	}
	k.w.stats.count("CHECK")
}

// renew gives a pod a new sandbox, as after a crash of its own: the old network
// namespace is gone, its DEL comes late.
func (k *worker) renew(a *attachment) {
	if a.Pod == "" {
		return
	}
	if err := os.Remove(a.Netns); err != nil && !errors.Is(err, os.ErrNotExist) {
		k.w.t.Error(err)
	}
	k.n.Vanish(a.Interface) // from now on it is garbage, unless the new sandbox takes it over
	k.dead = append(k.dead, a.Interface)
	i, err := k.w.renewed(k.n, a.Interface)
	if err != nil {
		k.w.t.Error(err)
		return
	}
	a.Interface, a.addrs = i, nil
	k.w.stats.count("new sandbox of a pod")
	k.add(a)
}

// abandon ends a pod without a DEL: its network namespace goes, and the agent finds
// out by itself.
func (k *worker) abandon(a *attachment) {
	if a.Pod == "" {
		return
	}
	if err := k.w.unpod(k.w.t.Context(), a.Interface); err != nil {
		k.w.stats.count("pods not deleted")
		return
	}
	k.n.Vanish(a.Interface)
	if err := os.Remove(a.Netns); err != nil && !errors.Is(err, os.ErrNotExist) {
		k.w.t.Error(err)
	}
	k.held = slices.DeleteFunc(k.held, func(b *attachment) bool { return a == b })
	k.w.stats.count("left to the sweeper")
}

// finish ends everything that the worker has begun, once more.
func (k *worker) finish() {
	k.mourn()
	for len(k.held) > 0 {
		k.end(k.held[0])
	}
	for _, i := range k.dead {
		if !k.w.insist("DEL of "+i.Sandbox+" on "+k.n.Name, delOn(k.n, i)) {
			return // the others would take a minute each
		}
	}
}

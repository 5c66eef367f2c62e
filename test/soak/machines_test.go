package soak_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// machines is how many virtual machines there are.
const machines = 10

// machine is a virtual machine: a claim that outlives its pods, of which it has one,
// and two while it migrates.
type machine struct {
	w     *world
	rng   *rand.Rand
	name  string
	owner metav1.OwnerReference

	claim *ipamclaims.IPAMClaim // nil: none
	addrs []netip.Prefix        // of claim; nil: not known yet
	going bool                  // claim's deletion has begun, or may have
	pods  []*guest
	ended []guestCall // DELs that the load did not get through

	restores int // of the API server's data, that it has taken up
}

// guest is a pod of a machine.
type guest struct {
	fleet.Interface
	n        *node
	epoch    int64
	losses   int64
	restores int
}

type guestCall struct {
	n *node
	i fleet.Interface
}

func (w *world) startMachines() []*machine {
	yes := true
	all := make([]*machine, machines)
	for i := range all {
		name := fmt.Sprintf("vm-%d", i)
		m := &machine{w: w, rng: rand.New(rand.NewPCG(w.set.seed, uint64(1000+i))), name: name, owner: metav1.OwnerReference{
			APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance", Name: name, UID: types.UID("uid-of-" + name), Controller: &yes,
		}}
		all[i] = m
		w.workers.Go(m.run)
	}
	return all
}

func (m *machine) run() {
	for !m.w.over() {
		m.w.calls.RLock()
		m.mourn()
		m.recall()
		m.step()
		m.w.calls.RUnlock()
		m.w.pause(m.rng, 4*think)
	}
}

// mourn takes up that nodes have been off.
func (m *machine) mourn() {
	m.pods = slices.DeleteFunc(m.pods, func(g *guest) bool {
		gone := g.epoch != g.n.epoch.Load()
		if gone {
			m.ended = append(m.ended, guestCall{g.n, g.Interface})
			m.unpod(g)
		}
		return gone
	})
}

// recall takes up that the API server's data went back: the claim may be gone with them,
// or be without its addresses, and pods may be gone or have lost what they had.
func (m *machine) recall() {
	past := &m.w.past
	for _, g := range slices.Clone(m.pods) {
		if m.took(g) {
			m.endPod(g)
		}
	}
	if m.restores == past.restores {
		return
	}
	m.restores = past.restores
	if m.claim == nil {
		return
	}
	addrs, there := past.claims[string(m.claim.UID)]
	switch {
	case !there:
		m.claim, m.addrs, m.going = nil, nil, false
		m.w.stats.count("claims that went with the API server's data")
	case m.addrs != nil && !slices.Equal(addrs, addrsOf(m.addrs)):
		m.addrs = nil
		m.w.stats.count("claims that lost their addresses with the API server's data")
	}
}

func (m *machine) took(g *guest) bool { return m.w.past.took(g.n.Name, g.Interface, g.restores) }

func (m *machine) step() {
	switch p := m.rng.IntN(100); {
	case m.w.holding.Load():
		if m.addrs != nil && !m.going && len(m.pods) > 0 && p < 50 {
			m.again()
		}
	case m.claim == nil:
		m.order()
	case m.going:
		m.cancel()
	case m.addrs == nil:
		m.look()
	case len(m.pods) == 0 && p < 15:
		m.cancel() // and a new claim of the same name follows
	case len(m.pods) == 0:
		m.start()
	case len(m.pods) == 1 && p < 50:
		m.start() // migrates
	case p < 5:
		m.cancel() // while it is in use
	case p < 40:
		m.again()
	default:
		m.endPod(m.pods[m.rng.IntN(len(m.pods))])
	}
}

// order makes the machine's claim.
func (m *machine) order() {
	if len(m.pods) > 0 { // of the claim before: they go first
		m.endPod(m.pods[0])
		return
	}
	s := draw(m.rng)
	c := &ipamclaims.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: m.name, OwnerReferences: []metav1.OwnerReference{m.owner}},
		Spec:       ipamclaims.IPAMClaimSpec{Network: s.name},
	}
	if err := kc.Create(m.w.t.Context(), c); err != nil {
		// It may be there all the same: take it away, and begin anew.
		m.w.stats.count("claims not made")
		_ = kc.Delete(m.w.t.Context(), c) // the next try tells
		return
	}
	m.w.stats.count("claims made")
	m.claim = c
}

// look reads the claim's addresses. A claim of a full pool has none, and may go
// without ever having had any.
func (m *machine) look() {
	c := m.claim
	if err := kc.Get(m.w.t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
		return
	}
	if len(c.Status.IPs) == 0 {
		if m.rng.IntN(20) == 0 {
			m.cancel()
		}
		return
	}
	m.addrs = kube.ClaimOf(c).IPs
	m.w.fleet.Observer.Claimed(c.Spec.Network, string(c.UID), addrsOf(m.addrs))
}

func addrsOf(prefixes []netip.Prefix) (addrs []netip.Addr) {
	for _, p := range prefixes {
		addrs = append(addrs, p.Addr())
	}
	return addrs
}

// cancel deletes the claim, whoever uses it.
func (m *machine) cancel() {
	m.going = true
	m.w.fleet.Observer.Unclaimed(string(m.claim.UID))
	if err := client.IgnoreNotFound(kc.Delete(m.w.t.Context(), m.claim)); err != nil {
		m.w.stats.count("claims not deleted")
		return // tried again
	}
	m.w.stats.count("claims deleted")
	m.claim, m.addrs, m.going = nil, nil, false
}

// start runs a pod of the machine on a node that has none of it.
func (m *machine) start() {
	n := m.w.nodes[m.rng.IntN(len(m.w.nodes))]
	if slices.ContainsFunc(m.pods, func(g *guest) bool { return g.n == n }) || !n.gate.TryRLock() {
		return
	}
	defer n.gate.RUnlock()
	i, err := m.w.sandbox(n, subject{name: m.claim.Spec.Network})
	if err != nil {
		m.w.t.Error(err)
		return
	}
	i.Top = map[string]any{fleet.ClaimKey: string(m.claim.UID)}
	name := fmt.Sprintf("%s-p%d", m.name, m.w.serial.Add(1))
	if i, err = m.w.pod(m.w.t.Context(), name, n.Name, m.name, i, m.owner); err != nil {
		m.w.scrap(i)
		m.w.stats.count("pods not made")
		return
	}
	m.pods = append(m.pods, &guest{i, n, n.epoch.Load(), n.losses.Load(), m.w.past.restores})
	if len(m.pods) == 2 {
		m.w.stats.count("migrations")
	}
	m.add(m.pods[len(m.pods)-1])
}

// again repeats the ADD of a pod.
func (m *machine) again() {
	g := m.pods[m.rng.IntN(len(m.pods))]
	if g.n.gate.TryRLock() {
		m.add(g)
		g.n.gate.RUnlock()
	}
}

// add is an ADD with the claim, which must be answered with the claim's addresses
// or, for a while, not at all. The caller holds the node's gate.
func (m *machine) add(g *guest) {
	if g.epoch != g.n.epoch.Load() || g.n.forgotten(g.losses) || m.took(g) {
		return
	}
	began := time.Now()
	res, err := g.n.Add(g.Interface)
	if err != nil {
		m.w.refused("ADD with a claim", g.n.Name, &attachment{Interface: g.Interface}, err)
		return
	}
	m.w.stats.tookClaim(time.Since(began))
	var got []netip.Prefix
	for _, ip := range res.IPs {
		got = append(got, ip.Address)
	}
	if !slices.Equal(got, m.addrs) {
		m.w.t.Errorf("I3: %s on %s is answered %v; its claim has %v", g.Pod, g.n.Name, got, m.addrs)
	}
}

// endPod ends a pod.
func (m *machine) endPod(g *guest) {
	if !g.n.gate.TryRLock() {
		return
	}
	defer g.n.gate.RUnlock()
	m.pods = slices.DeleteFunc(m.pods, func(o *guest) bool { return o == g })
	if err := g.n.Del(g.Interface); err != nil {
		m.ended = append(m.ended, guestCall{g.n, g.Interface})
	}
	m.unpod(g)
}

func (m *machine) unpod(g *guest) {
	if err := m.w.unpod(m.w.t.Context(), g.Interface); err != nil {
		m.w.stats.count("pods not deleted")
	}
	_ = os.Remove(g.Netns) // once for each pod, and what is left is in a temporary directory
}

// finish ends the machine.
func (m *machine) finish() {
	m.mourn()
	for _, g := range slices.Clone(m.pods) {
		m.endPod(g)
	}
	for _, e := range m.ended {
		m.w.insist("DEL of "+e.i.Pod+" on "+e.n.Name, delOn(e.n, e.i))
	}
	m.w.insist("delete claim "+m.name, func(ctx context.Context) error {
		c := &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: m.name}}
		if m.claim != nil {
			m.w.fleet.Observer.Unclaimed(string(m.claim.UID))
		}
		return client.IgnoreNotFound(kc.Delete(ctx, c))
	})
}

// delOn is a DEL to be insisted on.
func delOn(n *node, i fleet.Interface) func(context.Context) error {
	return func(context.Context) error { return n.Del(i) }
}

package simulation

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// networkNames are the networks that claims name: "vlan" has addresses of one pool, "dual" of that
// pool and of one with IPv6, "lan" of the nodes' pool, and "others" is not Tenure's.
var networkNames = []string{"vlan", "dual", "lan", "others"}

var resolutions = sync.OnceValue(func() map[string]networks.Resolution {
	all := map[string]networks.Resolution{}
	for _, name := range networkNames {
		all[name] = networks.Resolve([]networks.Network{networks.Read("ns", name, epoch, configOf(name, ""))}, "ns")
	}
	return all
})

// simPods are pods that may come up on any node: two of a virtual machine on the
// move, a StatefulSet's, and two replicas.
var simPods = []protocol.PodRef{
	{Namespace: "ns", Name: "virt-a", UID: "p0", Owner: protocol.OwnerRef{Kind: "VirtualMachineInstance", Name: "vm", UID: "vmi"}},
	{Namespace: "ns", Name: "virt-b", UID: "p1", Owner: protocol.OwnerRef{Kind: "VirtualMachineInstance", Name: "vm", UID: "vmi"}},
	{Namespace: "ns", Name: "db-0", UID: "p2", Owner: protocol.OwnerRef{Kind: "StatefulSet", Name: "db", UID: "sts"}},
	{Namespace: "ns", Name: "db-0", UID: "p3", Owner: protocol.OwnerRef{Kind: "StatefulSet", Name: "db", UID: "sts"}},
	{Namespace: "ns", Name: "db-1", UID: "p4", Owner: protocol.OwnerRef{Kind: "StatefulSet", Name: "db", UID: "sts"}},
	{Namespace: "ns", Name: "web-1", UID: "p5", Owner: protocol.OwnerRef{Kind: "ReplicaSet", Name: "web-5f", UID: "rs"}},
	{Namespace: "ns", Name: "web-2", UID: "p6", Owner: protocol.OwnerRef{Kind: "ReplicaSet", Name: "web-5f", UID: "rs"}},
}

// mayShare reports whether two of simPods, on two nodes, may have one address at
// once: the two of the virtual machine, and those of one name in the StatefulSet.
func mayShare(a, b protocol.PodRef) bool {
	return a.Owner.UID == b.Owner.UID && (a.Owner.UID == "vmi" || a.Owner.UID == "sts" && a.Name == b.Name)
}

// personClaims makes a claim, deletes one, or meddles with its status.
func (w *world) personClaims() {
	busy := func(c simClaim) bool { // an ADD is at it
		return slices.ContainsFunc(w.nodes, func(n *simNode) bool {
			return len(n.with(func(s *sandbox) bool { return s.adding && s.pod.claim == c.Name })) > 0
		})
	}
	if c, ok := pickOf(w, w.api.claims.list(busy)); ok && w.one(8) {
		w.deleteClaim(c)
		return
	}
	c, out := w.api.claims.read(fmt.Sprintf("c%d", w.rng.IntN(4)))
	switch {
	case out != protocol.Done:
		w.makeClaim(fmt.Sprintf("c%d", w.rng.IntN(4)))
	case w.api.claims.finalizers[c.Name] && w.one(2):
		w.logf("somebody: finalizer off claim %s", c.Name)
		w.api.claims.finalize(c.Name)
	case w.one(3):
		w.deleteClaim(c)
	case w.kind.handWrites && w.one(3):
		w.writeStatus(c)
	}
}

func (w *world) makeClaim(name string) {
	owners := []protocol.OwnerRef{{}, simPods[0].Owner, simPods[2].Owner}
	network, _ := pickOf(w, []string{"vlan", "vlan", "dual", "dual", "dual", "lan", "lan", "others"})
	if w.kind.edge && !w.one(4) {
		network = string(poolName)
	}
	obj := &ipamclaims.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Generation: 1},
		Spec:       ipamclaims.IPAMClaimSpec{Network: network},
	}
	if o := owners[w.rng.IntN(len(owners))]; o.UID != "" {
		obj.OwnerReferences = []metav1.OwnerReference{{Kind: o.Kind, Name: o.Name, UID: types.UID(o.UID)}}
	}
	w.annotate(&obj.ObjectMeta)
	c, out := w.api.claims.create(claimOf(obj))
	if out != protocol.Done {
		return
	}
	w.logf("person: makes claim %s (%s) of network %s", name, c.UID, network)
	w.truth[c.UID] = &tenure{name: name}
	w.grantByName(c)
}

func (w *world) deleteClaim(c simClaim) {
	w.logf("person: deletes claim %s (%s)", c.Name, c.UID)
	if w.one(4) { // somebody else keeps it for a while
		w.api.claims.finalizers[c.Name] = true
	}
	w.api.claims.remove(c.Meta)
}

// writeStatus is somebody else's hand in a claim's status: it clears the
// addresses, or writes those of somebody else, or what is none.
func (w *world) writeStatus(c simClaim) {
	var ips []string
	switch w.rng.IntN(4) {
	case 0:
		ips = []string{}
	case 1:
		ips = []string{"10.9.0.2/24"}
	case 2:
		ips = []string{"10.9.0.77/24"}
	case 3:
		ips = []string{"none"}
	}
	w.logf("person: writes %q into the status of claim %s (%s)", ips, c.Name, c.UID)
	w.api.updateClaim(protocol.Meta{Name: c.Name}, func(o *ipamclaims.IPAMClaim) { o.Status.IPs = ips })
	if t := w.truth[c.UID]; t != nil {
		t.meddled = true
	}
}

// tenure is the truth about one claim: the addresses that its status has shown,
// backed by grants. From then on they are its own, until it is gone and no pod uses
// them.
type tenure struct {
	name  string
	shown []netip.Addr
	// meddled says that somebody wrote into the status: what it shows means
	// nothing any more, what was granted does.
	meddled bool
	// void says that somebody deleted a lease under the grants.
	void bool
}

// voidGrants notes that the lease l was deleted by hand.
func (w *world) voidGrants(l protocol.Lease) {
	for _, g := range l.Grants {
		if t := w.truth[g.To.UID]; t != nil {
			t.void = true
		} else {
			w.excuse(g.To.UID) // a request
		}
	}
}

// voidClaim reports whether somebody deleted a lease by hand that granted to that claim:
// its uses may find that nothing is granted, and are right then to count as taken.
func (w *world) voidClaim(uid protocol.UID) bool {
	t := w.truth[uid]
	return t != nil && t.void
}

// checkClaims holds I3, and what of I1 has to do with claims, against this moment.
func (w *world) checkClaims() {
	if w.checked == w.api.revision {
		return
	}
	w.checked = w.api.revision
	granted := w.grants()
	owners := map[netip.Addr]protocol.UID{}
	for _, c := range w.api.claims.objects {
		t := w.truth[c.UID]
		if t.void || c.Network == "others" {
			continue
		}
		var shown []netip.Addr
		backed := len(c.IPs) > 0
		for _, ip := range c.IPs {
			shown = append(shown, ip.Addr())
			g, ok := granted[ip.Addr()]
			backed = backed && ok && g.To.UID == c.UID && !g.Freeing
		}
		if t.shown == nil && backed {
			t.shown = shown
			w.checkPlace(c, shown)
			w.count("claim allocated")
		}
		if t.shown != nil && !t.meddled && !slices.Equal(t.shown, shown) {
			w.fail(I3, "claim %s (%s) had %v, and shows %v", c.Name, c.UID, t.shown, shown)
		}
		if t.meddled { // what a pod has of it, checkSandboxes looks after
			continue
		}
		for _, a := range t.shown {
			if g, ok := granted[a]; !ok || g.To.UID != c.UID {
				w.fail(I3, "claim %s (%s) has lost %v: granted to %q", t.name, c.UID, a, g.To.UID)
			}
			owners[a] = c.UID
		}
	}
	for a, uid := range owners {
		w.checkOthers(a, uid)
	}
}

// checkOthers holds that no node gives out an address that is a claim's, as far as the
// node has noticed whose it is again since the API server went back.
func (w *world) checkOthers(a netip.Addr, uid protocol.UID) {
	for _, n := range w.nodes {
		if !n.serving() {
			continue
		}
		for _, r := range n.disk.rights {
			if r.Kind == protocol.RightLease && n.serves(r) && r.Block.Contains(a) && !slices.Contains(r.Ceded, a) && !w.excused[r.UID] && !w.outrun[r.UID] {
				w.fail(I1, "%s serves %s, of which %v is claim %s's", n.machine, r.Name, a, uid)
			}
		}
	}
}

// grants returns what the leases grant, by address. An address granted on two
// leases has two owners.
func (w *world) grants() map[netip.Addr]protocol.Grant {
	granted := map[netip.Addr]protocol.Grant{}
	for _, l := range w.api.leases.objects {
		for _, g := range l.Grants {
			if o, twice := granted[g.Addr]; twice {
				w.fail(I1, "%v is granted to %q and to %q", g.Addr, o.To.UID, g.To.UID)
			}
			granted[g.Addr] = g
		}
	}
	return granted
}

// quench holds I5 for claims, while pods have what they have: a claim that waits gets
// any address of its pools that nobody has, wherever it is.
func (w *world) quench(nodes []*simNode) {
	if !w.until(nodes, quenchRounds, func() bool { return w.thirst(nodes) == "" }) {
		w.fail(I5, "%s", w.thirst(nodes))
	}
}

// quenchRounds is how many minutes a claim may wait for an address that is free: a
// machine waits F/2 for a registration that another one had, before it can be asked for
// anything, and a holder that had none is left alone for 80 seconds at most.
const quenchRounds = restRounds

// thirst says which claim waits while there are addresses for it, if any: not on leases of
// a machine that another has replaced, of which nobody has said that it is off.
func (w *world) thirst(nodes []*simNode) string {
	taken := w.grants()
	for _, n := range w.nodes {
		for _, a := range n.disk.atts {
			for _, x := range a.addrs {
				taken[x.addr] = protocol.Grant{Addr: x.addr}
			}
		}
	}
	for _, l := range w.api.leases.objects {
		reachable := l.Holder.Cluster || slices.ContainsFunc(nodes, func(n *simNode) bool { return n.name == l.Holder.Node && n.disk.store == l.Store })
		for a := l.Block.Addr(); l.Block.Contains(a) && !reachable; a = a.Next() {
			taken[a] = protocol.Grant{Addr: a}
		}
	}
	for _, c := range w.api.claims.list(func(c simClaim) bool { return len(c.IPs) == 0 && !c.Deleting && c.Network != "others" }) {
		if t := w.truth[c.UID]; !t.meddled && !t.void && w.opened(c.Network) && w.room(c, taken) {
			free := slices.DeleteFunc(w.addresses(), func(a netip.Addr) bool { _, ok := taken[a]; return ok })
			return fmt.Sprintf("claim %s (%s) of network %s waits, and there are addresses: %s; of pool %s %v", c.Name, c.UID, c.Network, c.Failed, poolName, w.leasesOf(free))
		}
	}
	return ""
}

// opened reports whether the pools of a network are open.
func (w *world) opened(network string) bool {
	return !slices.ContainsFunc(resolutions()[network].Network.Sources, func(src poolspec.Source) bool {
		p, _ := w.api.readPool(protocol.PoolName(src.Pool))
		return !p.Open || p.Deleting
	})
}

// ofClaims reports whether addresses of a lease have been granted to claims that
// exist: its node cannot give it back.
func (w *world) ofClaims(lease string) bool {
	l, _ := w.api.leases.read(lease)
	return slices.ContainsFunc(w.api.claims.list(nil), func(c simClaim) bool { return len(l.GrantsOf(c.UID)) > 0 })
}

// claimUnrest says what is left undone about claims, if anything.
func (w *world) claimUnrest() string {
	granted := w.grants()
	has := map[protocol.UID]int{}
	for _, g := range granted {
		has[g.To.UID]++
	}
	for _, c := range w.api.claims.list(nil) {
		t := w.truth[c.UID]
		n := has[c.UID]
		delete(has, c.UID)
		switch {
		case c.Network == "others":
			if n > 0 || len(c.obj.Status.Conditions) > 0 {
				return fmt.Sprintf("claim %s is another implementation's, and has been touched", c.Name)
			}
		case t.meddled || t.void || c.Deleting:
		case len(c.IPs) == 0 && n > 0:
			return fmt.Sprintf("claim %s (%s) holds addresses that its status does not show: %s", c.Name, c.UID, c.Failed)
		case len(c.IPs) == 0 && w.room(c, granted):
			return fmt.Sprintf("claim %s (%s) has no address, and there are some: %s", c.Name, c.UID, c.Failed)
		case len(c.IPs) == 0 && c.Failed == "":
			return fmt.Sprintf("claim %s (%s) has no address, and does not say why", c.Name, c.UID)
		case len(c.IPs) != n:
			return fmt.Sprintf("claim %s (%s) shows %v, and has %d grants", c.Name, c.UID, c.IPs, n)
		}
	}
	for uid, n := range has {
		return fmt.Sprintf("%d addresses are granted to %s, which is gone", n, uid)
	}
	return ""
}

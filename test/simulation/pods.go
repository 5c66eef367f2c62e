package simulation

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// simPod is a pod that a node is to run.
type simPod struct {
	ref           protocol.PodRef
	node          *simNode
	there         bool         // its object exists
	mirror        protocol.UID // of a static pod: the UID of the object in its stead
	claim         string       // the claim that it names, if any
	exact, forged netip.Addr   // what it asks for, and what another has that its status shows
	at            time.Duration
	// old says that it selects the definition that is another IPAM's first. shows is what its
	// status shows, and written how often that was written.
	old      bool
	shows    []netip.Addr
	written  int
	resource *resource // the ResourceClaim that it has, if any
}

// objectUID is the UID of the pod's object.
func (p *simPod) objectUID() protocol.UID {
	if p.mirror != "" {
		return p.mirror
	}
	return p.ref.UID
}

// A sandbox is one incarnation of a pod, and the truth about it: which addresses it
// believes to have.
type sandbox struct {
	cid   string
	pod   *simPod
	node  *simNode
	netns bool // its network namespace exists

	// What its ADD was answered, nil before; under which right, by name and UID.
	addrs []netip.Addr
	under map[string]protocol.UID
	claim protocol.UID
	// void says that its addresses are not its own any more, on the word of a
	// person: one who deleted what they rested on, or vouched that the node runs
	// nothing.
	void bool
	// unread says that the store was lost, and what the ADD was answered not read
	// back yet; unwritten, that the runtime had not written it down: nobody knows.
	unread, unwritten bool

	// device is the ResourceClaim and the device of which its addresses are; of another sandbox it
	// is empty.
	device attKey

	config string // of its network, as at its ADD
	since  since  // what its last ADD may go by

	adding bool // an ADD is under way
	ending bool // a DEL has begun: it uses nothing any more
	owes   int  // how many DELs are to be sent
	again  time.Duration
}

// uses reports whether s has addresses now.
func (s *sandbox) uses() bool { return len(s.addrs) > 0 && s.netns && !s.ending }

// has returns the addresses that s has now.
func (s *sandbox) has() []netip.Addr {
	if !s.uses() {
		return nil
	}
	return s.addrs
}

func (s *sandbox) String() string {
	return fmt.Sprintf("sandbox %s of pod %s on %s", s.cid, s.pod.ref.UID, s.node.machine)
}

// newPod makes a pod for n. Those with a claim are of workloads that share.
func (w *world) newPod(n *simNode) *simPod {
	p := &simPod{node: n, there: true, at: w.now, ref: w.podRef()}
	uid := p.ref.UID
	switch kind := w.rng.IntN(10); {
	case kind%2 == 1 && w.kind.devices:
		if !w.giveResource(p) {
			return nil
		}
	case kind >= 6 && w.kind.uses:
		if !w.claimPod(p) {
			return nil
		}
	case kind == 5:
		p.mirror = protocol.UID("mirror-" + string(uid))
	case kind == 4:
		if a, ok := pickOf(w, w.addresses()); ok {
			p.exact = a
		}
	case w.kind.edge && kind < 4: // back to the node that gave its address to the cluster while it was away
		if a, ok := pickOf(w, n.cededHere()); ok {
			p.exact = a
		}
	}
	w.all = append(w.all, p)
	return p
}

// cededHere returns the addresses that n has given to the cluster.
func (n *simNode) cededHere() (all []netip.Addr) {
	for _, name := range n.names(func(r protocol.Right) bool { return len(r.Ceded) > 0 }) {
		all = append(all, n.disk.rights[name].Ceded...)
	}
	return all
}

// claimPod makes p a pod that names a claim which it may have.
func (w *world) claimPod(p *simPod) bool {
	c, ok := pickOf(w, w.api.claims.list(func(c simClaim) bool { return !c.Deleting && c.Network != "others" }))
	if !ok {
		return false
	}
	ref := simPods[w.rng.IntN(len(simPods))]
	if ok, _ := protocol.BelongsTo(ref, c.Claim); !ok {
		return false
	}
	ref.UID = p.ref.UID
	p.ref, p.claim = ref, c.Name
	return true
}

// addresses returns the ordinary addresses of the pool as it is.
func (w *world) addresses() []netip.Addr {
	var all []netip.Addr
	shape := w.shape()
	if shape == nil {
		return nil
	}
	for a := poolRange.Addr(); poolRange.Contains(a); a = a.Next() {
		if shape.Ordinary(a) {
			all = append(all, a)
		}
	}
	return all
}

// live is the sandbox of p that is there, if any.
func (n *simNode) live(p *simPod) *sandbox {
	return firstOf(n.sandboxes, func(s *sandbox) bool { return s.pod == p && !s.ending })
}

// podObject returns the pod of that name on a node, if its object is there.
func (w *world) podObject(n *simNode, name string) *simPod {
	return firstOf(w.all, func(p *simPod) bool { return p.there && p.ref.Name == name && p.node == n })
}

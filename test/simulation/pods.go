package simulation

import (
	"fmt"
	"net/netip"
	"slices"
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
	for _, s := range n.sandboxes {
		if s.pod == p && !s.ending {
			return s
		}
	}
	return nil
}

// kubelet does one of the things that a kubelet and its runtime do.
func (n *simNode) kubelet() {
	w := n.w
	n.bury()
	if n.off {
		return
	}
	if w.other != nil && w.one(2) {
		n.otherWork()
		return
	}
	if w.kind.devices && w.one(6) {
		n.deviceWork()
		return
	}
	switch w.rng.IntN(8) {
	case 0, 1, 2:
		n.runPods()
	case 3:
		n.endSomething()
	case 4, 5:
		n.sendDels()
	case 6:
		n.check()
	case 7:
		switch w.rng.IntN(6) {
		case 0:
			n.callGC()
		case 1, 2:
			n.forgetDel()
		case 3, 4:
			n.replug()
		case 5:
			n.double()
		}
	}
}

// runPods gives a pod a sandbox, a new one or one that has none.
func (n *simNode) runPods() {
	w := n.w
	pods := w.podsOf(n)
	for _, p := range pods {
		if n.live(p) == nil && n.guestOf(p) == nil && w.one(2) {
			n.runPod(p)
			return
		}
	}
	if n.cut || w.calm || len(pods) >= 4 {
		return
	}
	if p := w.newPod(n); p != nil {
		n.newSandbox(p)
	}
}

// newSandbox makes a sandbox for p and asks for its addresses.
func (n *simNode) newSandbox(p *simPod) {
	s := &sandbox{pod: p, node: n, netns: true}
	if p.resource != nil {
		if s.device = p.resource.key(); n.inUse(s.device) {
			return
		}
	}
	n.w.cids++
	s.cid = fmt.Sprintf("c%d", n.w.cids)
	n.sandboxes = append(n.sandboxes, s)
	n.w.logf("%s: runs %v", n.machine, s)
	n.callAdd(s)
}

// addWait is how long an ADD waits before it fails: much longer than it ships, since
// everybody here is slow.
const addWait = 3 * time.Minute

// callAdd sends the ADD of s to the agent. Without one it fails.
func (n *simNode) callAdd(s *sandbox) {
	s.adding = true
	if n.agent == nil || n.paused || n.w.noPods() {
		n.answerAdd(s, nil)
		return
	}
	n.add(s)
}

// answerAdd is the answer to an ADD: the attachment, or none where it failed.
func (n *simNode) answerAdd(s *sandbox, att *attachment) {
	w := n.w
	s.adding = false
	if s.ending || !s.netns {
		return // nobody waits for it any more: a DEL follows
	}
	if att == nil {
		w.count("ADD failed")
		if w.one(2) { // the kubelet tries the same sandbox again, or makes a new one
			s.again = w.now + w.upTo(time.Minute)
			return
		}
		n.end(s)
		return
	}
	w.count("ADD")
	s.unread, s.addrs, s.under, s.claim = false, nil, map[string]protocol.UID{}, ""
	if att.claim != nil {
		w.count("ADD of a claim")
		s.claim = att.claim.UID
	}
	for _, a := range att.addrs {
		s.addrs = append(s.addrs, a.addr)
		name := att.under(a)
		r := n.disk.rights[name]
		s.under[name] = r.UID
		s.void = s.void || w.excused[r.UID]
	}
	s.void = s.void || n.voided[att.key]
	w.logf("%s: %v has %v", n.machine, s, s.addrs)
	if w.other != nil {
		n.showLater(s.pod, s.has)
	}
}

// end begins the end of s: from now on it uses nothing, and one DEL at least is to
// be sent.
func (n *simNode) end(s *sandbox) {
	if s.ending {
		return
	}
	s.ending, s.owes = true, 1
	if n.w.one(4) {
		s.owes = 2
	}
	if n.w.one(2) {
		s.netns = false
	}
	if s.hasDevice() { // the driver is told when it has stopped, if its pod has ended
		s.netns = false
		if s.pod.there {
			s.owes = 0
		}
	}
}

// endSomething ends a sandbox, whose pod then gets another; or a pod.
func (n *simNode) endSomething() {
	w := n.w
	s, ok := pickOf(w, n.with(func(s *sandbox) bool { return !s.ending && (len(s.addrs) > 0 || w.one(4)) }))
	if !ok {
		return
	}
	if w.one(2) {
		w.logf("%s: pod %s is deleted", n.machine, s.pod.ref.UID)
		s.pod.there = false
	}
	if w.one(3) { // the sandbox dies, and the kubelet has not seen it yet
		w.logf("%s: %v dies", n.machine, s)
		s.netns = false
	}
	n.end(s)
}

func (n *simNode) with(keep func(*sandbox) bool) []*sandbox {
	var some []*sandbox
	for _, s := range n.sandboxes {
		if keep(s) {
			some = append(some, s)
		}
	}
	return some
}

// sendDels sends a DEL that is due, and tries ADDs again.
func (n *simNode) sendDels() {
	w := n.w
	for _, s := range n.with(func(s *sandbox) bool {
		return !s.ending && !s.adding && s.addrs == nil && s.again <= w.now && s.netns && !n.delPending(s.key())
	}) {
		n.callAdd(s)
		return
	}
	s, ok := pickOf(w, n.with(func(s *sandbox) bool { return s.owes > 0 }))
	if !ok {
		return
	}
	s.owes--
	n.callDel(s)
	if s.owes == 0 {
		s.netns = false
	}
}

// callDel sends the DEL of s: to the agent, or to the journal.
func (n *simNode) callDel(s *sandbox) {
	if s.hasDevice() {
		n.releaseDevice(s)
		return
	}
	if n.agent == nil || n.paused {
		if n.full { // neither can be written: it is answered all the same
			n.w.count("DEL unwritten")
			return
		}
		n.journalDel(s)
		return
	}
	n.del(s)
}

// forgetDel loses a DEL for good.
func (n *simNode) forgetDel() {
	if s, ok := pickOf(n.w, n.with(func(s *sandbox) bool { return s.owes > 0 })); ok {
		n.w.logf("%s: forgets the DEL of %s", n.machine, s.cid)
		s.owes, s.netns = 0, false
	}
}

// bury forgets sandboxes that are over.
func (n *simNode) bury() {
	n.sandboxes = slices.DeleteFunc(n.sandboxes, func(s *sandbox) bool {
		return s.ending && s.owes == 0 && !s.netns && !s.adding
	})
	n.w.all = slices.DeleteFunc(n.w.all, func(p *simPod) bool {
		return !p.there && !slices.ContainsFunc(p.node.sandboxes, func(s *sandbox) bool { return s.pod == p }) && !slices.ContainsFunc(p.node.guests, func(g *guest) bool { return g.pod == p })
	})
}

// podObject returns the pod of that name on a node, if its object is there.
func (w *world) podObject(n *simNode, name string) (*simPod, bool) {
	i := slices.IndexFunc(w.all, func(p *simPod) bool { return p.there && p.ref.Name == name && p.node == n })
	if i < 0 {
		return nil, false
	}
	return w.all[i], true
}

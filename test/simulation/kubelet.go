package simulation

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

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

// callGC begins a GC, for which the runtime lists the sandboxes that it has, or sends
// the one that it has begun: by then there may be more, and some may have ended.
func (n *simNode) callGC() {
	if n.valid == nil {
		n.valid = map[string]bool{}
		for _, s := range n.sandboxes {
			n.valid[s.cid] = true
		}
		return
	}
	valid := n.valid
	n.valid = nil
	if n.agent == nil || n.paused {
		return // it fails, and the runtime calls again some time
	}
	n.w.logf("%s: GC, %d sandboxes are valid", n.machine, len(valid))
	n.collect(valid)
}

// replug unplugs the interface of a running sandbox and plugs it in again: a DEL
// and an ADD of one key.
func (n *simNode) replug() {
	s, ok := pickOf(n.w, n.with((*sandbox).uses))
	if !ok || s.hasDevice() {
		return
	}
	n.w.logf("%s: unplugs the interface of %v", n.machine, s)
	s.addrs, s.under, s.claim, s.void, s.unread = nil, nil, "", false, false
	n.callDel(s)
	s.again = n.w.now
}

// double runs a second sandbox for a pod whose first one still lives, as after a
// runtime that has lost track of it.
func (n *simNode) double() {
	s, ok := pickOf(n.w, n.with((*sandbox).uses))
	if !ok || n.cut || s.hasDevice() {
		return
	}
	n.w.logf("%s: loses track of %v", n.machine, s)
	n.newSandbox(s.pod)
}

// delPending reports whether a DEL of k has been sent and not been answered.
func (n *simNode) delPending(k attKey) bool {
	return n.agent != nil && slices.ContainsFunc(n.agent.dels, func(s *sandbox) bool { return s.key() == k })
}

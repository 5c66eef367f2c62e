package simulation

import "slices"

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

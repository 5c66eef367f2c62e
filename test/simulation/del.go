package simulation

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

package simulation

import (
	"slices"
	"time"
)

// del begins a DEL: of a key, or of what a generation of it had.
func (n *simNode) del(k attKey, gen uint64) {
	n.agent.dels = append(n.agent.dels, k)
	n.later(func() { n.tryDel(k, gen) })
}

func (n *simNode) tryDel(k attKey, gen uint64) {
	if n.agent.keys[k] {
		n.wait(time.Second, func() { n.tryDel(k, gen) })
		return
	}
	if n.full { // it cannot be written: answered all the same, and swept later
		n.w.count("DEL unwritten")
		n.unwritten[k] = true
		n.delDone(k)
		return
	}
	held, ok := n.disk.atts[k]
	n.commit(func(d *simDisk) { n.forget(d, k, gen) })
	n.w.logf("%s: DEL of %s", n.machine, k.cid)
	n.delDone(k)
	if ok && held.use != "" && (n.w.fault == M28 || !n.disk.ofUse(held.use)) {
		n.letGo(held.use)
	}
}

// forget is the transaction of a DEL.
func (n *simNode) forget(d *simDisk, k attKey, gen uint64) {
	if held, ok := d.atts[k]; ok && n.w.fault == M29 { // by the pod, whatever sandbox
		for _, other := range d.keys(func(x attachment) bool { return x.pod.Name == held.pod.Name }) {
			n.release(d, other, 0)
		}
		return
	}
	n.release(d, k, gen)
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
	n.later(func() { n.collect(valid) })
}

// collect frees what is not valid and has no network namespace any more.
func (n *simNode) collect(valid map[string]bool) {
	for _, k := range n.disk.keys(func(a attachment) bool { return !valid[a.key.cid] && (n.w.fault == M57 || !n.netnsOf(a.key.cid)) }) {
		n.w.count("collected")
		n.del(k, n.disk.atts[k].gen)
	}
}

func (n *simNode) delDone(k attKey) {
	if i := slices.Index(n.agent.dels, k); i >= 0 {
		n.agent.dels = slices.Delete(n.agent.dels, i, i+1)
	}
}

package foreign

import (
	"slices"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Unclaimed returns those of kept that nobody is said to have any more: no pod that has not ended
// shows the address, the other IPAM has no record of it for the pod, and no node has seen it. For
// what is kept from all those pods count that may have it of the pool: another segment may have the
// same addresses.
func (e *Evidence) Unclaimed(kept []Kept) []Kept {
	return slices.DeleteFunc(slices.Clone(kept), func(b Kept) bool {
		w := e.weighed[b.Pool]
		return slices.ContainsFunc(e.at(b.Addr, b.Addr), func(c claim) bool {
			return c.pod.on() == podOn{b.To.UID.OfPod(), b.To.Node} || b.To.UID.Several() && (w == nil || w.mayBeOf(c) || c.by == byNode && w.explained(c))
		})
	})
}

// mayBeOf reports whether what a claim says is of the pool's segment, or may be.
func (w *weighing) mayBeOf(c claim) bool {
	switch c.by {
	case byStatus:
		return !w.elsewhere(c)
	case byRecord:
		return w.explained(c) || w.unexplained(c)
	default:
		_, _, selected := w.ofNetwork(c.of, c.pod) // else others may have written a definition of that name
		return w.isOf(c) || w.wasOn(c) || w.unexplained(c) || !selected || !w.isOthers(c.of, c.pod, c.addr)
	}
}

// Ended returns those of kept that nobody has any more, as far as this look tells: nobody is said
// to have them, and the pod's node, asked of the pool, says that nothing of the pod runs there, or
// counts as dead. Of what is kept for several pods the agents of all nodes have to have answered.
// What is kept for a sandbox has ended, too, once the node tells whose it is and passesOn says that
// the address is asked for in the name of another by now. What holds up an end is in held: what a
// node cannot read, or "" for a node that has no agent, or one that does not live.
func (e *Evidence) Ended(kept []Kept, dead, passesOn func(Kept) bool) (ended []Kept, held map[Word]string) {
	held = map[Word]string{}
	running, told := map[protocol.NodeName]map[protocol.UID]bool{}, map[protocol.NodeName]map[protocol.UID]bool{}
	for node, r := range e.Reports {
		running[node], told[node] = map[protocol.UID]bool{}, map[protocol.UID]bool{}
		for _, uid := range r.Running {
			running[node][uid] = true
		}
		for _, s := range r.Has {
			if s.IPAM == Type && s.Pod.UID != "" {
				continue // it is in Running while it runs
			}
			running[node][protocol.UID(s.Sandbox)] = true
			if pod, ok := e.podOf(node, s); ok {
				running[node][pod.uid()], told[node][protocol.UID(s.Sandbox)] = true, true
			}
		}
	}
	for _, b := range e.Unclaimed(kept) {
		n, uid := b.To.Node, b.To.UID.OfPod()
		unread, gone := "", dead(b)
		if !gone && e.asked(n, b.Pool) {
			unread, gone = e.unread(n, b.Pool), !running[n][uid] || told[n][uid] && passesOn(b)
		}
		switch {
		case gone && unread != "":
			held[Word{n, b.Pool}] = unread
		case gone && (!b.To.UID.Several() || e.Heard(b)):
			ended = append(ended, b)
		case gone: // of several
			for node := range e.Agents {
				e.holdUp(held, node, b)
			}
		default:
			e.holdUp(held, n, b)
		}
	}
	return ended, held
}

// holdUp notes a node that has no agent which could say that what is kept has ended.
func (e *Evidence) holdUp(held map[Word]string, node protocol.NodeName, b Kept) {
	if at := (Word{node, b.Pool}); !e.Agents[node] && !e.PassedOver[at] && !e.asked(node, b.Pool) {
		held[at] = ""
	}
}

// Heard reports whether the nodes that may know of it were asked what has become of something kept,
// and have answered, or are passed over. It has not ended, then, if [Evidence.Ended] does not say
// so.
func (e *Evidence) Heard(b Kept) bool {
	for node := range e.Agents {
		if (node == b.To.Node || b.To.UID.Several()) && !e.asked(node, b.Pool) && !e.PassedOver[Word{node, b.Pool}] {
			return false
		}
	}
	return true
}

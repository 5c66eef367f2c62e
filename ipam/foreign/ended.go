package foreign

import (
	"slices"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Unclaimed returns those of kept that nobody is said to have any more: no pod that has not ended
// shows the address, the other IPAM has no record of it for the pod, and no node has seen it.
func (e *Evidence) Unclaimed(kept []Bar) []Bar {
	return slices.DeleteFunc(slices.Clone(kept), func(b Bar) bool {
		return slices.ContainsFunc(e.at(b.Addr, b.Addr), func(c claim) bool {
			return b.To.UID == protocol.SeveralPods || c.pod.uid() == b.To.UID
		})
	})
}

// Ended returns those of kept that nobody has any more, as far as this look tells: nobody is said
// to have them, and the pod's node, asked of the pool, says that nothing of the pod runs there, or
// counts as dead. Of what is kept for several pods the agents of all nodes have to say what they
// have.
func (e *Evidence) Ended(kept []Bar, dead func(Bar) bool) (ended []Bar) {
	networks := map[string]bool{}
	for _, d := range e.Definitions {
		networks[d.Network] = true
	}
	running := map[protocol.NodeName]map[protocol.UID]bool{}
	for node, r := range e.Reports {
		running[node] = map[protocol.UID]bool{}
		for _, uid := range r.Running {
			running[node][uid] = true
		}
		for _, s := range r.Has {
			if s.IPAM == Type && s.Pod.UID != "" {
				continue // it is in Running while it runs
			}
			// What is kept for a sandbox is its pod's once that is told, and counts.
			if pod, ok := e.podOf(node, s); ok && networks[s.Network] {
				running[node][pod.uid()] = true
			} else {
				running[node][protocol.UID(s.Sandbox)] = true
			}
		}
	}
	for _, b := range e.Unclaimed(kept) {
		over := true
		if b.To.UID != protocol.SeveralPods {
			over = dead(b) || e.saysAll(b.To.Node, b.Pool) && !running[b.To.Node][b.To.UID]
		} else {
			for node := range e.Agents {
				over = over && e.saysAll(node, b.Pool) && e.refused[node] == ""
			}
		}
		if over {
			ended = append(ended, b)
		}
	}
	return ended
}

// Heard reports whether the nodes that know of it were asked what has become of something kept, and
// have answered. It has not ended, then, if [Evidence.Ended] does not say so.
func (e *Evidence) Heard(b Bar) bool {
	if b.To.UID != protocol.SeveralPods {
		return e.asked(b.To.Node, b.Pool)
	}
	for node := range e.Agents {
		if !e.asked(node, b.Pool) {
			return false
		}
	}
	return true
}

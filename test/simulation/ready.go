package simulation

import (
	"slices"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// agentsBack reports whether every machine that is on has an agent which is ready.
func (w *world) agentsBack() bool {
	return !slices.ContainsFunc(w.nodes, func(n *simNode) bool { return !n.off && (n.agent == nil || !n.told()) })
}

// told reports whether the agent has told the API server, since it started, what its node
// holds: it is ready. For what is another's it does not wait.
func (n *simNode) told() bool {
	a, term := n.agent, n.agent.registrar.Term
	return a.heard && a.listed && term != 0 && len(n.names(func(r protocol.Right) bool {
		return !a.anothers[r.Name] && (!r.PutBack(term) || r.Phase == protocol.Held && a.unseen[r.Name])
	})) == 0
}

// seen notes that what the answer ev says of a right is recorded.
func (n *simNode) seen(name string, ev protocol.Event) {
	done := ev.Outcome == protocol.Done && ev.Call != protocol.CallConfirm && ev.Call != protocol.CallDelete
	if done || ev.Call == protocol.CallRead && ev.Outcome == protocol.NotFound {
		delete(n.agent.unseen, name)
	}
}

// noPods reports whether nobody is to start a pod: after a restore, until every machine
// that is on has an agent that is ready.
func (w *world) noPods() bool {
	w.holding = w.holding && !w.agentsBack()
	return w.holding
}

// unput reports whether a machine that is on has yet to put back what it holds.
func (w *world) unput() bool {
	return slices.ContainsFunc(w.nodes, func(n *simNode) bool { return !n.off && (n.agent == nil || !n.putBack()) })
}

// putBack reports whether all that n holds has been said in its term.
func (n *simNode) putBack() bool {
	term := n.agent.registrar.Term
	return term != 0 && len(n.names(func(r protocol.Right) bool {
		return !r.PutBack(term) && !(n.fence == 0 && n.agent.anothers[r.Name])
	})) == 0
}

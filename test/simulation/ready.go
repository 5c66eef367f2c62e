package simulation

import (
	"context"
	"slices"
)

// agentsBack reports whether every machine that is on has an agent which is ready.
func (w *world) agentsBack() bool {
	return !slices.ContainsFunc(w.nodes, func(n *simNode) bool { return !n.off && (n.agent == nil || !n.told()) })
}

// told reports whether the agent has told the API server, since it started, what its node
// holds: it is ready. For what is another's it does not wait.
func (n *simNode) told() bool {
	ready, _ := n.agent.agent.Ready(context.Background())
	return ready
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
	r := n.disk.history.Restored
	return n.told() && (r == nil || r.Back)
}

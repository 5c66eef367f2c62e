package agent

import (
	"context"
	"maps"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// sayTime is how long what cannot be listed, looked at or said keeps the agent from being
// ready.
const sayTime = time.Minute

// telling is how far an agent that has started has come with telling the API server of
// its node. mu of the agent guards it.
type announcement struct {
	heard  bool          // a heartbeat was accepted
	listed bool          // what is there in the node's name has been compared with the store
	since  time.Duration // by the boot clock, when the latest of these was
	done   bool
}

// Serving reports whether the agent may give out addresses now; if not, why.
func (a *Agent) Serving() (bool, string) { return a.serving() }

// Ready reports whether the agent can serve an ADD now and, since it started, has told the
// API server what its node holds; if not, why. Whoever restores etcd waits for that before
// he starts the controller, which gives out what it knows of nobody to have. An agent that
// is not ready for that alone serves ADDs. Ready waits for a disk that hangs until ctx ends.
func (a *Agent) Ready(ctx context.Context) (bool, string) {
	if ok, why := a.serving(); !ok {
		return false, why
	}
	now := a.sched.Now().Boot
	a.mu.Lock()
	t, term, except, unseen := a.announced, a.registrar.Term, maps.Clone(a.anothers), maps.Clone(a.unseen)
	a.mu.Unlock()
	age := now - t.since
	switch {
	case t.done:
		return true, ""
	case !t.heard:
		return false, "no heartbeat has been accepted since the agent started"
	case !t.listed && age < sayTime:
		return false, "what the API server has in this node's name is not known yet"
	case t.listed && age < sayTime:
		all, err := a.said(ctx, term, except, unseen)
		if err != nil {
			return false, err.Error()
		}
		if !all {
			return false, "what this node holds has not been said again yet"
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.announced != t { // the API server has gone back meanwhile, or what is there was listed
		return false, "what the API server has in this node's name is being compared"
	}
	a.announced.done = true
	return true, ""
}

// compared notes that what is there in the node's name, listed in that era, was compared
// with the store, which has shown these rights to be there otherwise, or not at all.
func (a *Agent) compared(rewinds int, otherwise []protocol.Right) {
	now := a.sched.Now().Boot
	unseen := map[string]bool{}
	for _, r := range otherwise {
		unseen[r.Name] = true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rewinds == rewinds { // else there is something else there by now
		a.announced.listed, a.announced.since, a.unseen = true, now, unseen
	}
}

// seen notes that what the answer ev says of a right is recorded: that it is there, or
// that it is not, so that it has to be said.
func (a *Agent) seen(name string, ev protocol.Event) {
	switch {
	case ev.Call == protocol.CallRead && ev.Outcome == protocol.NotFound:
	case ev.Outcome != protocol.Done:
		return
	case ev.Call != protocol.CallRead && ev.Call != protocol.CallCreate && ev.Call != protocol.CallFence:
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.unseen, name)
}

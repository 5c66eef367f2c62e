package agent

import (
	"maps"
	"time"
)

const (
	// lookTime is what the looks may take that a list of the node's own objects leads to.
	lookTime = 5 * time.Second
	// sayTime is how long what cannot be listed, and a right that cannot be said, keep the
	// agent from being ready.
	sayTime = time.Minute
)

// telling is how far an agent that has started has come with telling the API server of
// its node. mu of the agent guards it.
type telling struct {
	heard  bool          // a heartbeat was accepted
	listed bool          // what is there in the node's name has been compared with the store
	since  time.Duration // by the boot clock, when the latest of these was
	looks  bool          // which has led to looks
	done   bool
}

// Ready reports whether the agent can serve an ADD now and, since it started, has told the
// API server what its node holds; if not, why. Whoever restores etcd waits for that before
// he starts the controller, which gives out what it knows of nobody to have. An agent that
// is not ready for that alone serves ADDs.
func (a *Agent) Ready() (bool, string) {
	if ok, why := a.serving(); !ok {
		return false, why
	}
	now := a.clock.Now().Boot
	a.mu.Lock()
	t, term, anothers := a.told, a.sitting.Term, maps.Clone(a.anothers)
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
		all, err := a.said(term, anothers)
		if err != nil {
			return false, err.Error()
		}
		if !all || t.looks && age < lookTime {
			return false, "what this node holds has not been said again yet"
		}
	}
	a.mu.Lock()
	a.told.done = true
	a.mu.Unlock()
	return true, ""
}

// compared notes that what is there in the node's name was compared with the store, which
// has led to so many looks.
func (a *Agent) compared(looks int) {
	now := a.clock.Now().Boot
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told.listed, a.told.since, a.told.looks = true, now, looks > 0
}

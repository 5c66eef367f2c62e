package agent

import (
	"maps"
	"time"
)

const (
	// lookTime is what the looks may take that a list of the node's own objects leads to.
	lookTime = 5 * time.Second
	// hearTime is how long an agent that serves already is not ready for want of a word from
	// the API server: one that answers has answered by then.
	hearTime = 800 * time.Millisecond
	// sayTime is how long a right that cannot be said keeps the agent from being ready.
	sayTime = time.Minute
)

// telling is how far an agent that has started has come with telling the API server of
// its node. mu of the agent guards it.
type telling struct {
	began  time.Duration // by the boot clock, when the agent did
	heard  bool          // a heartbeat was accepted
	listed bool          // what is there in the node's name has been compared with the store
	since  time.Duration // by the boot clock, when it was
	looks  bool          // which has led to looks
	done   bool
}

// Ready reports whether the agent can serve an ADD now and, since it started, has told the
// API server what its node holds; if not, why. Whoever restores etcd waits for that before
// he starts the controller, which gives out what it knows of nobody to have. Where the API
// server does not answer nothing is to be told, and an agent that serves is ready.
func (a *Agent) Ready() (bool, string) {
	if ok, why := a.serving(); !ok {
		return false, why
	}
	now := a.clock.Now().Boot
	a.mu.Lock()
	t, term, anothers := a.told, a.sitting.Term, maps.Clone(a.anothers)
	a.mu.Unlock()
	age := now - t.since
	switch away := now-t.began >= hearTime && (!t.heard || a.trouble() != ""); {
	case t.done, away:
		return true, ""
	case !t.heard:
		return false, "no heartbeat has been accepted since the agent started"
	case !t.listed:
		return false, "what the API server has in this node's name is not known yet"
	case age < sayTime:
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

// trouble says what is wrong with the API server at this moment; "" if nothing is known.
func (a *Agent) trouble() string {
	if a.cl.Trouble == nil {
		return ""
	}
	return a.cl.Trouble()
}

// compared notes that what is there in the node's name was compared with the store, which
// has led to so many looks.
func (a *Agent) compared(looks int) {
	now := a.clock.Now().Boot
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told.listed, a.told.since, a.told.looks = true, now, looks > 0
}

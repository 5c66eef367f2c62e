package agent

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// readyTimeout is how long an agent that has started may stay not ready because the API server
// does not list or confirm what its node holds. After the API server has gone back there is no such
// bound: whoever restored it lets pods start, on other nodes too, once all agents are ready.
const readyTimeout = time.Minute

// announcement is what an agent has told the API server since it started.
type announcement struct {
	heard  bool          // a heartbeat was accepted
	listed bool          // what is there in the node's name has been compared with the store
	since  time.Duration // by the boot clock, when the latest of these was
	done   bool
}

// ready is [Agent.Ready].
func (reg *registration) ready(ctx context.Context) (bool, string) {
	if ok, why := reg.serving(); !ok {
		return false, why
	}
	now := reg.sched.Now().Boot
	reg.mu.Lock()
	t, term, except, unseen := reg.announced, reg.registrar.Term, maps.Clone(reg.disputed), maps.Clone(reg.unseen)
	back := reg.history.Restored
	reg.mu.Unlock()
	waits := now-t.since < readyTimeout || back != nil && !back.Back
	switch {
	case t.done:
		return true, ""
	case !t.heard:
		return false, "no heartbeat has been accepted since the agent started"
	case !t.listed && waits:
		return false, "what the API server has in this node's name is not known yet"
	case t.listed && waits:
		name, err := reg.unconfirmed(ctx, term, except, unseen)
		if err != nil {
			return false, err.Error()
		}
		if name != "" {
			return false, reg.whyUnconfirmed(name)
		}
	}
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if reg.announced != t { // the API server has gone back meanwhile, or what is there was listed
		return false, "what the API server has in this node's name is being compared"
	}
	reg.announced.done = true
	return true, ""
}

// whyUnconfirmed says that a right has not been confirmed again, and why not, if that is known.
func (reg *registration) whyUnconfirmed(name string) string {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	text := "what this node holds has not been confirmed again yet: " + name
	if why := reg.late[name]; why != "" {
		text += ": " + why
	}
	return text
}

// listSoon has what is there in the node's name be listed now.
func (reg *registration) listSoon() {
	sched.Signal(reg.listNow)
}

// compared notes that what is there in the node's name was listed, and compared with the store.
// The list has shown the rights of otherwise in another state, or not at all. One that was made
// before the API server last went back does not count.
func (reg *registration) compared(rewinds int, otherwise []protocol.Right) {
	now := reg.sched.Now().Boot
	unseen := map[string]bool{}
	for _, r := range otherwise {
		unseen[r.Name] = true
	}
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if reg.rewinds == rewinds { // else there is something else there by now
		reg.announced.listed, reg.announced.since, reg.unseen = true, now, unseen
	}
}

// seen notes that what the answer ev says of a right is recorded: that it is there, or
// that it is not, so that it has to be confirmed.
func (reg *registration) seen(name string, ev protocol.Event) {
	switch {
	case ev.Call == protocol.CallRead && ev.Outcome == protocol.NotFound:
	case ev.Outcome != protocol.Done:
		return
	case ev.Call != protocol.CallRead && ev.Call != protocol.CallCreate && ev.Call != protocol.CallFence:
		return
	}
	reg.mu.Lock()
	defer reg.mu.Unlock()
	delete(reg.unseen, name)
}

// isUnseen reports whether a list has shown a right otherwise than the store has it, and no answer
// has come since.
func (reg *registration) isUnseen(name string) bool {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	return reg.unseen[name]
}

// unread reports whether the attachments of a lost store must be read back before anything is given
// out: a registration that this agent has just taken, from the term had, names such a store, or one
// before it did. That is recorded with the registration, so that an agent that restarts before it
// has read them still knows.
func (reg *registration) unread(had int64, seen protocol.Registration) bool {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	return reg.unreadLocked(had, seen)
}

// unreadLocked is unread for a caller that holds mu.
func (reg *registration) unreadLocked(had int64, seen protocol.Registration) bool {
	return reg.reading || had == 0 && reg.lostHere(seen) && len(reg.readFor) == 0
}

// lostHere reports whether a registration that this agent has just taken says that a store
// of this machine was lost in this boot.
func (reg *registration) lostHere(seen protocol.Registration) bool {
	return slices.ContainsFunc(seen.Former, func(f protocol.Former) bool {
		return f.Machine == reg.cfg.Machine && f.Boot == reg.cfg.Boot && f.Store != reg.st.ID()
	})
}

// isRead reports whether all attachments of a lost store were looked for.
func (reg *registration) isRead(lost protocol.StoreID) bool {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	return reg.readFor[lost]
}

// noteRead notes that the attachments of a lost store were looked for, all of them or some.
func (reg *registration) noteRead(lost protocol.StoreID, all bool) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	reg.readFor[lost] = all
}

// readAll notes that what lost stores have left was looked for: addresses may be given out.
func (reg *registration) readAll() {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	reg.reading = false
}

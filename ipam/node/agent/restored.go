package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// errRewound says that an answer cannot be relied upon: the API server has gone
// back to an earlier state.
var errRewound = errors.New("the API server has gone back to an earlier state, as after a restore: nothing is concluded from its answer")

// A withheldError says why a call is not sent now.
type withheldError struct{ Pool protocol.PoolName }

func (e *withheldError) Error() string {
	return fmt.Sprintf("the API server has gone back to an earlier state, and pool %s has not been opened again since", e.Pool)
}

// A sight is what was known of the API server when a call was sent.
type epoch struct {
	history protocol.History
	rewinds int
	term    int64 // of the node's registration
}

func (a *Agent) epoch() epoch {
	a.mu.Lock()
	defer a.mu.Unlock()
	return epoch{a.history, a.rewinds, a.registrar.Term}
}

// wrote judges the answer to a write, or to a list, that was sent at s: errRewound
// says that it must not be relied upon.
func (a *Agent) wrote(ctx context.Context, s epoch, rev protocol.Revision) error {
	return a.judge(ctx, s, s.history.Behind(rev), func(h protocol.History) protocol.History { return h.SawObject(rev) })
}

// lastTerm is the highest term that the agent has had, or must not register in.
func (a *Agent) lastTerm() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.registrar.LastTerm
}

// read is wrote for a live read of an object of which the store has a record.
func (a *Agent) read(ctx context.Context, s epoch, behind bool) error {
	return a.judge(ctx, s, behind, func(h protocol.History) protocol.History { return h })
}

// known returns what the store has of a right, the zero Right for nothing.
func (a *Agent) known(name string) protocol.Right {
	r, _ := a.right(name)
	return r
}

// judgeRegistration judges the node's registration, as read or written with what was known at s.
func (a *Agent) judgeRegistration(ctx context.Context, s epoch, reg protocol.Registration) error {
	return a.judge(ctx, s, s.history.RegistrationBehind(reg), func(h protocol.History) protocol.History { return h.SawRegistration(reg) })
}

func (a *Agent) judge(ctx context.Context, s epoch, behind bool, saw func(protocol.History) protocol.History) error {
	a.mu.Lock()
	switch {
	case a.rewinds != s.rewinds: // it has gone back while the call was under way
		a.mu.Unlock()
		return errRewound
	case !behind:
		a.history = saw(a.history)
		a.mu.Unlock()
		return nil
	}
	a.rewinds++
	a.history = a.history.Rewound()
	a.registrar, a.announced = a.registrar.Rewound(), announcement{}
	a.heardSince, a.anothers, a.unseen = nil, nil, nil
	a.mu.Unlock()
	a.metrics.rewound.Inc()
	a.log.ErrorContext(ctx, "the API server has gone back to an earlier state: nothing is leased or given back until the controller has opened the pools again", "node", a.cfg.Node)
	a.BeatNow()
	a.wakeList()
	err := a.st.Update(ctx, func(tx *store.Tx) error {
		id, err := tx.Identity()
		if err != nil {
			return err
		}
		// An agent that starts now must not take up the registration, nor register in its term:
		// what was said in it may not be there any more.
		id.Boot, id.Term = "", max(id.Term, a.lastTerm())
		return errors.Join(tx.PutIdentity(id), tx.PutHistory(a.epoch().history))
	})
	if err != nil {
		a.log.ErrorContext(ctx, "that the API server has gone back is not recorded yet", "error", err)
	}
	return errRewound
}

// withheld returns an error if nothing may be acquired from a pool, or given back to
// it, because it has not been opened again since the API server has gone back.
func (a *Agent) withheld(name protocol.PoolName) error {
	if a.withholds(name) {
		return &withheldError{Pool: name}
	}
	return nil
}

// withholds reports whether there is a [*withheldError] of a pool.
func (a *Agent) withholds(name protocol.PoolName) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.history.Restored != nil && !a.reopened(name)
}

// reopened reports whether a pool has been opened since the API server has gone
// back, or is gone. One that was first heard of since may be what the restored data
// show: it counts when all others have been opened. a.mu must be held.
func (a *Agent) reopened(name protocol.PoolName) bool {
	p := a.pools[name]
	if p == nil || a.heardSince[name] {
		return false
	}
	known, absent, _ := p.now()
	return absent || known != nil && (known.Deleting || a.history.Restored.Reopened(known.Pool.Pool))
}

// withheldRight is withheld for a right, whatever its kind.
func (a *Agent) withheldRight(r protocol.Right) error {
	pools := []protocol.PoolName{}
	if r.Kind == protocol.RightLease {
		pools = append(pools, r.Pool)
	}
	if r.Request != nil {
		for _, w := range r.Request.Wants {
			pools = append(pools, w.Pool)
		}
	}
	for _, lease := range r.Leases {
		if pool, _, err := protocol.ParseLeaseName(lease); err == nil {
			pools = append(pools, pool)
		}
	}
	for _, name := range pools {
		if err := a.withheld(name); err != nil {
			return err
		}
	}
	return nil
}

// keptBack returns an error if r is not to be given back now: withheldRight, but for a
// lease of an earlier pool of its pool's name. That pool is gone.
func (a *Agent) keptBack(r protocol.Right) error {
	if r.Kind == protocol.RightLease && a.ofEarlierPool(r) {
		return nil
	}
	return a.withheldRight(r)
}

// waitsForPool reports whether r has been said, and its confirmation waits for nothing but
// that a pool is opened again. A request's may come before: the controller answers it.
func (a *Agent) waitsForPool(r protocol.Right) bool {
	a.mu.Lock()
	term, unseen := a.registrar.Term, a.unseen[r.Name]
	a.mu.Unlock()
	return r.Kind != protocol.RightRequest && r.Unconfirmed(term) && !unseen && a.withheldRight(r) != nil
}

// ofEarlierPool reports whether r is a lease of another pool than has its pool's name now.
func (a *Agent) ofEarlierPool(r protocol.Right) bool {
	a.mu.Lock()
	p := a.pools[r.Pool]
	a.mu.Unlock()
	if p == nil {
		return false
	}
	known, _, _ := p.now()
	return known != nil && known.UID != r.PoolUID
}

// heardOpening notes the opening of a pool as heard of; fresh says that the node had
// not heard of it before. Its revision proves nothing: a watch may tell what was
// before the API server went back.
func (a *Agent) heardOpening(p protocol.Pool, fresh bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.history = a.history.SawOpening(p.Opening)
	if fresh && a.history.Restored != nil {
		if a.heardSince == nil {
			a.heardSince = map[protocol.PoolName]bool{}
		}
		a.heardSince[protocol.PoolName(p.Name)] = true
	}
}

// readOpening notes the opening of a pool as read live: what is leased by it rests on
// it, and the watch may be behind. An agent that starts after this one knows it, too.
func (a *Agent) readOpening(ctx context.Context, p protocol.Pool) error {
	a.mu.Lock()
	a.history = a.history.SawOpening(p.Opening)
	h := a.history
	recorded := p.Opening <= a.recordedOpening
	a.mu.Unlock()
	if recorded {
		return nil
	}
	// What has been heard of meanwhile may not be on disk either.
	if err := a.st.Update(ctx, func(tx *store.Tx) error { h = a.epoch().history; return tx.PutHistory(h) }); err != nil {
		return err
	}
	a.mu.Lock()
	a.recordedOpening = max(a.recordedOpening, h.Opening)
	a.mu.Unlock()
	return nil
}

// mend brings the agent from having seen that the API server has gone back, by
// having put back what its node holds, to business as usual.
func (a *Agent) mend(ctx context.Context) {
	a.mu.Lock()
	restored, term := a.history.Restored, a.registrar.Term
	said, _ := protocol.ParseRestoration(a.registrar.Seen.Restored)
	over := restored != nil && restored.Back && said == *restored
	if over {
		for name := range a.pools {
			over = over && (a.heardSince[name] || a.reopened(name))
		}
	}
	if over {
		a.history.Restored, a.heardSince, a.anothers = nil, nil, nil
		for _, p := range a.pools {
			p.wake()
		}
	}
	a.mu.Unlock()
	switch {
	case over:
		a.log.InfoContext(ctx, "the pools have been opened again: leasing goes on")
		a.BeatNow()
	case restored != nil && !restored.Back && term != 0 && a.putBack(ctx, term):
		a.mu.Lock()
		if now := a.history.Restored; now != nil {
			a.history.Restored = &protocol.Restoration{Back: true, Opening: now.Opening}
		}
		a.mu.Unlock()
		a.log.InfoContext(ctx, "what this node holds has been put back: it waits for the pools to be opened again")
		a.BeatNow()
	}
}

// shown notes whether a live read has shown a lease that this node holds to be another's,
// which is waited for.
func (a *Agent) shown(lease string, anothers bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !anothers {
		delete(a.anothers, lease)
		return
	}
	if a.anothers == nil {
		a.anothers = map[string]bool{}
	}
	a.anothers[lease] = true
}

// putBack reports whether every right has been said in term. Where F is 0 a lease that is
// another's is not waited for: whoever has it may not give it back before the pools are
// open, and they would never be.
func (a *Agent) putBack(ctx context.Context, term int64) bool {
	var hopeless map[string]bool
	if a.cfg.Fence == 0 {
		a.mu.Lock()
		hopeless = maps.Clone(a.anothers)
		a.mu.Unlock()
	}
	all, err := a.said(ctx, term, hopeless, nil)
	if err != nil {
		a.log.ErrorContext(ctx, "store not read", "error", err)
	}
	return all && err == nil
}

// said reports whether every right has been said in term, and none that is Held is unseen,
// but for those of except.
func (a *Agent) said(ctx context.Context, term int64, except, unseen map[string]bool) (all bool, err error) {
	all = true
	err = a.st.ViewContext(ctx, func(tx *store.Tx) error {
		for r, err := range tx.Rights() {
			if err != nil {
				return err
			}
			unsaid := !r.PutBack(term) || r.Phase == protocol.Held && unseen[r.Name]
			all = all && (!unsaid || except[r.Name])
		}
		return nil
	})
	return all, err
}

// BeatNow has the next heartbeat sent now, and with it what the node says of itself.
func (a *Agent) BeatNow() {
	sched.Signal(a.beatNow)
}

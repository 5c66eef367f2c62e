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
		id.Boot, id.Term = "", max(id.Term, a.current().LastTerm)
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
	known, absent := a.heard(name) // first: a pool is noted as heard since before it is known
	restored, since := a.restored(name)
	return restored != nil && (since || !reopened(*restored, known, absent))
}

// reopened reports whether a pool, as last heard of, has been opened since the API server has gone
// back, or is gone. One that was first heard of since may be what the restored data show: it counts
// when all others have been opened.
func reopened(r protocol.Restoration, known *knownPool, absent bool) bool {
	return absent || known != nil && (known.Deleting || r.Reopened(known.Pool.Pool))
}

// restored returns what the API server has gone back to, nil if it has not, and whether a pool was
// first heard of since.
func (a *Agent) restored(name protocol.PoolName) (r *protocol.Restoration, heardSince bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.history.Restored, a.heardSince[name]
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
	return r.Kind != protocol.RightRequest && r.Unconfirmed(a.term()) && !a.isUnseen(r.Name) && a.withheldRight(r) != nil
}

// isUnseen reports whether a list has shown a right otherwise than the store has it, and no answer
// has come since.
func (a *Agent) isUnseen(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unseen[name]
}

// ofEarlierPool reports whether r is a lease of another pool than has its pool's name now.
func (a *Agent) ofEarlierPool(r protocol.Right) bool {
	known, _ := a.heard(r.Pool)
	return known != nil && known.UID != r.PoolUID
}

// heardEpoch notes the epoch of a pool as heard of; fresh says that the node had
// not heard of it before. Its revision proves nothing: a watch may tell what was
// before the API server went back.
func (a *Agent) heardEpoch(p protocol.Pool, fresh bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.history = a.history.SawEpoch(p.Epoch)
	if fresh && a.history.Restored != nil {
		if a.heardSince == nil {
			a.heardSince = map[protocol.PoolName]bool{}
		}
		a.heardSince[protocol.PoolName(p.Name)] = true
	}
}

// readEpoch notes the epoch of a pool as read live: what is leased by it rests on
// it, and the watch may be behind. An agent that starts after this one knows it, too.
func (a *Agent) readEpoch(ctx context.Context, p protocol.Pool) error {
	a.mu.Lock()
	a.history = a.history.SawEpoch(p.Epoch)
	h := a.history
	recorded := p.Epoch <= a.recordedEpoch
	a.mu.Unlock()
	if recorded {
		return nil
	}
	// What has been heard of meanwhile may not be on disk either.
	if err := a.st.Update(ctx, func(tx *store.Tx) error { h = a.epoch().history; return tx.PutHistory(h) }); err != nil {
		return err
	}
	a.mu.Lock()
	a.recordedEpoch = max(a.recordedEpoch, h.Epoch)
	a.mu.Unlock()
	return nil
}

// mend brings the agent from having seen that the API server has gone back, by
// having put back what its node holds, to business as usual.
func (a *Agent) mend(ctx context.Context) {
	restored, _ := a.restored("")
	if restored == nil {
		return
	}
	registrar := a.current()
	term := registrar.Term
	said, _ := protocol.ParseRestoration(registrar.Seen.Restored)
	switch {
	case restored.Back && said == *restored && a.allReopened(*restored) && a.endRestore(restored):
		for _, p := range a.followed() {
			p.wake()
		}
		a.log.InfoContext(ctx, "the pools have been opened again: leasing goes on")
		a.BeatNow()
	case !restored.Back && term != 0 && a.putBack(ctx, term):
		a.notePutBack()
		a.log.InfoContext(ctx, "what this node holds has been put back: it waits for the pools to be opened again")
		a.BeatNow()
	}
}

// allReopened reports whether all pools that were heard of before the API server went back have
// been opened since.
func (a *Agent) allReopened(r protocol.Restoration) bool {
	for _, p := range a.followed() {
		known, absent, _ := p.now()
		if _, since := a.restored(p.name); !since && !reopened(r, known, absent) {
			return false
		}
	}
	return true
}

// endRestore ends what began when the API server was seen to go back, to r. It reports whether that
// is still what it has gone back to.
func (a *Agent) endRestore(r *protocol.Restoration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.history.Restored != r {
		return false
	}
	a.history.Restored, a.heardSince, a.anothers = nil, nil, nil
	return true
}

// notePutBack notes that what the node holds has been put back.
func (a *Agent) notePutBack() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := a.history.Restored; now != nil {
		a.history.Restored = &protocol.Restoration{Back: true, Epoch: now.Epoch}
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

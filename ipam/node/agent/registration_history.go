package agent

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// errRewound says that an answer cannot be relied upon: the API server has gone
// back to an earlier state.
var errRewound = errors.New("the API server has gone back to an earlier state, as after a restore: nothing is concluded from its answer")

// era is what was known of the API server when a call was sent.
type era struct {
	history protocol.History
	rewinds int
	term    int64 // of the node's registration
	// recorded is after how many rewinds the registration was accepted that the store has.
	recorded int
}

// era returns the present one.
func (reg *registration) era() era {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	return era{reg.history, reg.rewinds, reg.registrar.Term, reg.recorded}
}

// wrote judges the answer to a write, or to a list, that was sent in era s. It returns errRewound
// if the answer must not be relied upon.
func (reg *registration) wrote(ctx context.Context, s era, rev protocol.Revision) error {
	return reg.judge(ctx, s, s.history.Behind(rev), func(h protocol.History) protocol.History { return h.SawObject(rev) })
}

// read judges the answer to a live read of an object of which the store has a record.
func (reg *registration) read(ctx context.Context, s era, behind bool) error {
	return reg.judge(ctx, s, behind, func(h protocol.History) protocol.History { return h })
}

// judgeRegistration judges the node's registration, as read or written with what was known at s.
func (reg *registration) judgeRegistration(ctx context.Context, s era, got protocol.Registration) error {
	return reg.judge(ctx, s, s.history.RegistrationBehind(got), func(h protocol.History) protocol.History { return h.SawRegistration(got) })
}

func (reg *registration) judge(ctx context.Context, s era, behind bool, saw func(protocol.History) protocol.History) error {
	reg.mu.Lock()
	switch {
	case reg.rewinds != s.rewinds: // it has gone back while the call was under way
		reg.mu.Unlock()
		return errRewound
	case !behind:
		reg.history = saw(reg.history)
		reg.mu.Unlock()
		return nil
	}
	reg.rewinds++
	reg.history = reg.history.Rewound()
	reg.registrar, reg.announced = reg.registrar.Rewound(), announcement{}
	reg.disputed, reg.unseen, reg.late = nil, nil, nil
	reg.mu.Unlock()
	reg.metrics.rewound.Inc()
	reg.log.ErrorContext(ctx, "the API server has gone back to an earlier state: nothing is leased or given back until the nodes have put back what they hold", "node", reg.cfg.Node)
	reg.beatSoon()
	reg.listSoon()
	if _, err := reg.keepHistory(ctx); err != nil {
		reg.log.ErrorContext(ctx, "that the API server has gone back is not recorded yet", "error", err)
	}
	return errRewound
}

// keepHistory records how far the API server was seen to come, and returns that.
func (reg *registration) keepHistory(ctx context.Context) (h protocol.History, err error) {
	err = reg.st.Update(ctx, func(tx *store.Tx) error { h, err = reg.putHistory(tx); return err })
	return h, err
}

// putHistory is keepHistory within a transaction.
func (reg *registration) putHistory(tx *store.Tx) (protocol.History, error) {
	now := reg.era()
	if now.history.Restored == nil || now.term != 0 || now.recorded == now.rewinds {
		return now.history, tx.PutHistory(now.history)
	}
	id, err := tx.Identity()
	if err != nil {
		return now.history, err
	}
	// An agent that starts now must not take up the registration, nor register in its term: what
	// was written in it may not be there any more.
	id.Boot, id.Term = "", max(id.Term, reg.current().LastTerm)
	return now.history, errors.Join(tx.PutIdentity(id), tx.PutHistory(now.history))
}

// noteRecorded notes, within the transaction that records a registration, that it was accepted
// after so many rewinds.
func (reg *registration) noteRecorded(rewinds int) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	reg.recorded = rewinds
}

// heardEpoch notes the epoch of a pool as heard of; first says that the node had not heard of it
// before, and has no lease of it. It reports whether that was since the API server went back. The
// pool's revision proves nothing: a watch may tell what was before that.
func (reg *registration) heardEpoch(p protocol.Pool, first bool) (since bool) {
	name := protocol.PoolName(p.Name)
	reg.mu.Lock()
	defer reg.mu.Unlock()
	reg.history = reg.history.SawEpoch(p.Epoch)
	if first {
		reg.history = reg.history.FirstHeard(name)
	}
	return reg.history.IsHeardSince(name)
}

// readEpoch notes the epoch of a pool as read live: what is leased by it rests on
// it, and the watch may be behind. An agent that starts after this one knows it, too.
func (reg *registration) readEpoch(ctx context.Context, p protocol.Pool) error {
	reg.mu.Lock()
	reg.history = reg.history.SawEpoch(p.Epoch)
	recorded := p.Epoch <= reg.recordedEpoch
	reg.mu.Unlock()
	if recorded {
		return nil
	}
	// What has been heard of meanwhile may not be on disk either.
	h, err := reg.keepHistory(ctx)
	if err != nil {
		return err
	}
	reg.mu.Lock()
	reg.recordedEpoch = max(reg.recordedEpoch, h.Epoch)
	reg.mu.Unlock()
	return nil
}

// restored returns what the API server has gone back to, nil if it has not.
func (reg *registration) restored() *protocol.Restoration { return reg.era().history.Restored }

// noteDisputed notes whether a live read has shown a right that this node holds to be another's,
// which is waited for.
func (reg *registration) noteDisputed(name string, disputed bool) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if !disputed {
		delete(reg.disputed, name)
		return
	}
	if reg.disputed == nil {
		reg.disputed = map[string]bool{}
	}
	reg.disputed[name] = true
}

// putBack reports whether every right has been written in term. Where F is 0 a right that is
// another's is not waited for: whoever has it may not give it back before the pools are
// open, and they would never be.
func (reg *registration) putBack(ctx context.Context, term int64) bool {
	var hopeless map[string]bool
	if reg.cfg.Fence == 0 {
		reg.mu.Lock()
		hopeless = maps.Clone(reg.disputed)
		reg.mu.Unlock()
	}
	name, err := reg.unconfirmed(ctx, term, hopeless, nil)
	if err != nil {
		reg.log.ErrorContext(ctx, "store not read", "error", err)
	}
	return name == "" && err == nil
}

// unconfirmed returns a right that has not been written in term, or is Held and unseen, and is not
// in except; "" if there is none.
func (reg *registration) unconfirmed(ctx context.Context, term int64, except, unseen map[string]bool) (name string, err error) {
	err = reg.st.ViewContext(ctx, func(tx *store.Tx) error {
		for r, err := range tx.Rights() {
			if err != nil {
				return err
			}
			if (!r.PutBack(term) || r.Phase == protocol.Held && unseen[r.Name]) && !except[r.Name] {
				name = r.Name
				return nil
			}
		}
		return nil
	})
	return name, err
}

// hasSaid reports whether the API server has accepted that this node has put back what it holds,
// after the API server went back to r.
func (reg *registration) hasSaid(r protocol.Restoration) bool {
	said, _ := protocol.ParseRestoration(reg.current().Seen.Restored)
	return r.Back && said == r
}

// notePutBack notes that what the node holds has been put back, after the API server was seen to go
// back for the rewinds-th time. It reports whether it has not gone back once more since.
func (reg *registration) notePutBack(rewinds int) bool {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if reg.rewinds != rewinds || reg.history.Restored == nil {
		return false
	}
	reg.history.Restored, reg.late = &protocol.Restoration{Back: true, Epoch: reg.history.Restored.Epoch}, nil
	return true
}

// noteLate notes why a right that is to be put back could not be when it was rechecked; "": it was,
// or need not be. Nothing else tells people what keeps the agent from being ready.
func (reg *registration) noteLate(ctx context.Context, name, why string) {
	reg.mu.Lock()
	if reg.history.Restored == nil || reg.history.Restored.Back || reg.disputed[name] {
		why = ""
	}
	news := why != "" && reg.late[name] != why
	switch {
	case why == "":
		delete(reg.late, name)
	case reg.late == nil:
		reg.late = map[string]string{name: why}
	default:
		reg.late[name] = why
	}
	reg.mu.Unlock()
	if news {
		reg.log.WarnContext(ctx, "what this node holds cannot be put back yet: the agent is not ready before", "right", name, "error", why)
	}
}

// whyLate says of a right why it has not been put back yet; empty if nothing is known of one.
func (reg *registration) whyLate() string {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if names := slices.Sorted(maps.Keys(reg.late)); len(names) > 0 {
		return names[0] + ": " + reg.late[names[0]]
	}
	if names := slices.Sorted(maps.Keys(reg.disputed)); len(names) > 0 {
		return names[0] + ": another store has it, as the API server has it now"
	}
	return ""
}

// endRestore ends what began when the API server was seen to go back for the rewinds-th time. It
// reports whether it has not gone back once more since, and this has not ended yet.
func (reg *registration) endRestore(rewinds int) bool {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if reg.rewinds != rewinds || reg.history.Restored == nil {
		return false
	}
	reg.history.Restored, reg.history.HeardSince, reg.disputed = nil, nil, nil
	return true
}

package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A restoreError says why a call about a pool is not sent now: the API server's data were restored,
// and that is not over for the pool.
type restoreError struct {
	Pool protocol.PoolName
	// Of is the pool that waits for nodes, maybe another one; "": this node has yet to put back
	// what it holds, and to say so.
	Of  protocol.PoolName
	Why string // more about that; may be empty
}

func (e *restoreError) Error() string {
	what := fmt.Sprintf("pool %s waits until the nodes have put back what they hold", e.Of)
	if e.Of == "" {
		what = "this node has yet to put back what it holds, and to say so"
	}
	if e.Why != "" {
		what += " (" + e.Why + ")"
	}
	if e.Of != e.Pool {
		what += fmt.Sprintf("; until then nothing is leased of pool %s either, of which this node has heard since", e.Pool)
	}
	return "the API server has gone back to an earlier state, and " + what
}

// underRestore returns a [*restoreError] if nothing may be acquired from a pool, or given back to
// it, since the API server has gone back, and the pool has not waited for the nodes yet. A pool
// that this node first heard of since may look as it was in the backup, and others have yet to put
// back their blocks of it. So it waits until this node has said that it has put back its own, and
// the pools that it knew before wait no more.
func (ps *pools) underRestore(name protocol.PoolName) error {
	epoch, gone, refused := "", false, ""
	if p := ps.entry(name); p != nil { // first: a pool is noted as heard since before it is known
		epoch, gone = p.lastEpoch()
		refused = p.whyRefused()
	}
	h := ps.reg.era().history
	if !endedFor(h, epoch, gone) {
		return &restoreError{name, name, refused}
	}
	if !h.IsHeardSince(name) {
		return nil
	}
	if of := ps.waiting(h); of != nil {
		return &restoreError{name, of.name, of.whyRefused()}
	}
	if !ps.reg.hasSaid(*h.Restored) {
		return &restoreError{name, "", ps.reg.whyLate()}
	}
	return nil
}

// isUnderRestore reports whether there is a [*restoreError] of a pool.
func (ps *pools) isUnderRestore(name protocol.PoolName) bool { return ps.underRestore(name) != nil }

// endedFor reports whether a pool, as last heard of, waits for nodes no more since the API server
// has gone back.
func endedFor(h protocol.History, epoch string, gone bool) bool {
	return h.Restored == nil || gone || h.Restored.EndedFor(epoch)
}

// rightUnderRestore is underRestore for a right, whatever its kind.
func (ps *pools) rightUnderRestore(r protocol.Right) error {
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
		if err := ps.underRestore(name); err != nil {
			return err
		}
	}
	return nil
}

// keptBack returns an error if r is not to be given back now. That is rightUnderRestore, except
// that a lease of an earlier pool of the same name may always go: that pool is gone.
func (ps *pools) keptBack(r protocol.Right) error {
	if r.Kind == protocol.RightLease && ps.ofEarlierPool(r) {
		return nil
	}
	return ps.rightUnderRestore(r)
}

// ofEarlierPool reports whether another pool has the name of r's pool now.
func (ps *pools) ofEarlierPool(r protocol.Right) bool {
	known, _ := ps.heard(r.Pool)
	return known != nil && known.UID != r.PoolUID
}

// waitsForPool reports whether r has been written in the term, and its confirmation waits for
// nothing but news of a pool: that it waits for nodes no more, or is open. A request's may come
// before: the controller answers it.
func (ps *pools) waitsForPool(r protocol.Right) bool {
	if r.Kind == protocol.RightRequest || !r.Unconfirmed(ps.reg.term()) || ps.reg.isUnseen(r.Name) {
		return false
	}
	return ps.rightUnderRestore(r) != nil || r.Kind == protocol.RightLease && ps.isShutFor(r)
}

// isShutFor reports whether the pool of a lease that had vanished is closed, or cannot be read, and
// the lease waits for nothing else. A pool that is deleted, or has other blocks, waits itself for
// the lease to go. A lease that was confirmed in an earlier term needs a write, and no pool.
func (ps *pools) isShutFor(r protocol.Right) bool {
	p := ps.entry(r.Pool)
	if p == nil || r.Deleting || r.Term != 0 {
		return false
	}
	known, absent, _ := p.now()
	if known == nil || absent || known.Deleting || known.Open && !known.Edited && p.whyRefused() == "" {
		return false
	}
	return known.UID == r.PoolUID && known.bits(allocator.FamilyOf(r.Block.Addr())) == r.Block.Bits()
}

// unleasable returns what stands against leasing a block of pool name, which is as
// heard: news of the pool may change it.
func (ps *pools) unleasable(name protocol.PoolName, known *knownPool, absent bool) string {
	if why := unready(known, absent); why != "" {
		return why
	}
	if !known.Open {
		return "is closed: " + known.notOpen()
	}
	if known.Edited { // its ranges may be another pool's by now
		return "was edited, and the controller has not accepted it yet"
	}
	return ps.waitsFor(name)
}

// waitsFor returns what pool name waits for since the API server has gone back; empty if for
// nothing.
func (ps *pools) waitsFor(name protocol.PoolName) string {
	if err := ps.underRestore(name); err != nil {
		return "waits: " + err.Error()
	}
	return ""
}

// mend ends what began when the API server was seen to go back. First the node puts back what it
// holds, and says so. Then the controller ends the wait of its pools, and leasing goes on.
func (ps *pools) mend(ctx context.Context) {
	now := ps.reg.era()
	h, restored := now.history, now.history.Restored
	if restored == nil {
		return
	}
	ps.followOwn(ctx)
	term := ps.reg.term()
	for _, p := range ps.followed() { // those may be free now that wait for others
		if h.IsHeardSince(p.name) {
			p.wake()
		}
	}
	switch {
	case ps.reg.hasSaid(*restored) && ps.waiting(h) == nil && ps.reg.endRestore(now.rewinds):
		for _, p := range ps.followed() {
			p.wake()
		}
		ps.log.InfoContext(ctx, "the pools wait for nodes no more: leasing goes on")
		ps.reg.beatSoon()
	case !restored.Back && term != 0 && ps.reg.putBack(ctx, term) && ps.reg.notePutBack(now.rewinds):
		ps.log.InfoContext(ctx, "what this node holds has been put back: its pools wait for other nodes")
		ps.reg.beatSoon()
	}
}

// followOwn follows the pools of this node's leases: one that a lost store left was taken up
// without. What is disputed waits for them, and nobody may name them any more.
func (ps *pools) followOwn(ctx context.Context) {
	leased, err := ps.leased(ctx)
	if err != nil {
		ps.log.ErrorContext(ctx, "store not read", "error", err)
	}
	for _, name := range slices.Sorted(maps.Keys(leased)) {
		ps.get(name)
	}
}

// leased returns the pools of which this node has a lease.
func (ps *pools) leased(ctx context.Context) (of map[protocol.PoolName]bool, err error) {
	of = map[protocol.PoolName]bool{}
	err = ps.st.ViewContext(ctx, func(tx *store.Tx) error {
		for r, err := range tx.Rights() {
			if err != nil {
				return err
			}
			if r.Kind == protocol.RightLease && r.Phase == protocol.Held {
				of[r.Pool] = true
			}
		}
		return nil
	})
	return of, err
}

// waiting returns a pool that was heard of before the API server went back and still waits for
// nodes; nil if there is none.
func (ps *pools) waiting(h protocol.History) *pool {
	for _, p := range ps.followed() {
		if epoch, gone := p.lastEpoch(); !h.IsHeardSince(p.name) && !endedFor(h, epoch, gone) {
			return p
		}
	}
	return nil
}

package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A restoreError says why a call about a pool is not sent now: the API server's data were restored,
// and that is not over for the pool.
type restoreError struct {
	Pool protocol.PoolName
	// Of is the pool that has not been opened again, maybe another one; "": the node has yet to put
	// back what it holds, and to say so.
	Of protocol.PoolName
}

func (e *restoreError) Error() string {
	what := fmt.Sprintf("pool %s has not been opened again since", e.Of)
	if e.Of == "" {
		what = "this node has yet to put back what it holds, and to say so"
	}
	if e.Of != e.Pool {
		what += fmt.Sprintf("; until then nothing is leased of pool %s either, of which this node has heard since", e.Pool)
	}
	return "the API server has gone back to an earlier state, and " + what
}

// underRestore returns a [*restoreError] if nothing may be acquired from a pool, or given back to
// it, because it has not been opened again since the API server has gone back. One that was first
// heard of since may be what the restored data have, and another node have yet to put back its
// blocks. It waits for those that were heard of before.
func (ps *pools) underRestore(name protocol.PoolName) error {
	known, absent := ps.heard(name) // first: a pool is noted as heard since before it is known
	h := ps.reg.era().history
	if !reopened(h, known, absent) {
		return &restoreError{name, name}
	}
	if !h.IsHeardSince(name) {
		return nil
	}
	of := ps.unreopened(h, true)
	if of == "" && ps.reg.hasSaid(*h.Restored) {
		return nil
	}
	return &restoreError{name, of}
}

// isUnderRestore reports whether there is a [*restoreError] of a pool.
func (ps *pools) isUnderRestore(name protocol.PoolName) bool { return ps.underRestore(name) != nil }

// reopened reports whether a pool, as last heard of, has been opened since the API server has gone
// back, or is gone.
func reopened(h protocol.History, known *knownPool, absent bool) bool {
	return h.Restored == nil || absent || known != nil && (known.Deleting || h.Restored.Reopened(known.Pool.Pool))
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
// nothing but that a pool is opened again. A request's may come before: the controller answers it.
func (ps *pools) waitsForPool(r protocol.Right) bool {
	return r.Kind != protocol.RightRequest && r.Unconfirmed(ps.reg.term()) && !ps.reg.isUnseen(r.Name) && ps.rightUnderRestore(r) != nil
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
	return ps.unopened(name)
}

// unopened returns that pool name has not been opened again since the API server has
// gone back; empty if that is not so.
func (ps *pools) unopened(name protocol.PoolName) string {
	if err := ps.underRestore(name); err != nil {
		return "waits: " + err.Error()
	}
	return ""
}

// mend ends what began when the API server was seen to go back. First the node puts back what it
// holds, and says so. Then the pools are opened again, and leasing goes on.
func (ps *pools) mend(ctx context.Context) {
	h := ps.reg.era().history
	restored := h.Restored
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
	case ps.reg.hasSaid(*restored) && ps.unreopened(h, false) == "" && ps.reg.endRestore(restored):
		for _, p := range ps.followed() {
			p.wake()
		}
		ps.log.InfoContext(ctx, "the pools have been opened again: leasing goes on")
		ps.reg.beatSoon()
	case !restored.Back && term != 0 && ps.reg.putBack(ctx, term) && ps.reg.notePutBack(restored):
		ps.log.InfoContext(ctx, "what this node holds has been put back: it waits for the pools to be opened again")
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

// unreopened returns a pool that was heard of before the API server went back and has not been
// opened again since; "" if there is none. If passing is true, pools are passed over that are
// closed for another reason, such as that they are stopped: nothing says when they are opened. Not
// so while a right of this node is another's by the restored data.
func (ps *pools) unreopened(h protocol.History, passing bool) protocol.PoolName {
	passing = passing && !ps.reg.hasDisputed()
	for _, p := range ps.followed() {
		known, absent, _ := p.now()
		closed := known != nil && known.text != "" && !known.Open && !known.Restored // not as it was kept
		closed = closed || known == nil && p.isRefused()
		if !h.IsHeardSince(p.name) && !reopened(h, known, absent) && !(passing && closed) {
			return p.name
		}
	}
	return ""
}

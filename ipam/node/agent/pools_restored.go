package agent

import (
	"context"
	"fmt"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A withheldError says why a call is not sent now.
type withheldError struct{ Pool protocol.PoolName }

func (e *withheldError) Error() string {
	return fmt.Sprintf("the API server has gone back to an earlier state, and pool %s has not been opened again since", e.Pool)
}

// withheld returns an error if nothing may be acquired from a pool, or given back to
// it, because it has not been opened again since the API server has gone back.
func (ps *pools) withheld(name protocol.PoolName) error {
	if ps.withholds(name) {
		return &withheldError{Pool: name}
	}
	return nil
}

// withholds reports whether there is a [*withheldError] of a pool.
func (ps *pools) withholds(name protocol.PoolName) bool {
	known, absent := ps.heard(name) // first: a pool is noted as heard since before it is known
	restored, since := ps.reg.restored(name)
	return restored != nil && (since || !reopened(*restored, known, absent))
}

// reopened reports whether a pool, as last heard of, has been opened since the API server has gone
// back, or is gone. One that was first heard of since may be what the restored data show: it counts
// when all others have been opened.
func reopened(r protocol.Restoration, known *knownPool, absent bool) bool {
	return absent || known != nil && (known.Deleting || r.Reopened(known.Pool.Pool))
}

// withheldRight is withheld for a right, whatever its kind.
func (ps *pools) withheldRight(r protocol.Right) error {
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
		if err := ps.withheld(name); err != nil {
			return err
		}
	}
	return nil
}

// keptBack returns an error if r is not to be given back now. That is withheldRight, except that a
// lease of an earlier pool of the same name may always go: that pool is gone.
func (ps *pools) keptBack(r protocol.Right) error {
	if r.Kind == protocol.RightLease && ps.ofEarlierPool(r) {
		return nil
	}
	return ps.withheldRight(r)
}

// ofEarlierPool reports whether another pool has the name of r's pool now.
func (ps *pools) ofEarlierPool(r protocol.Right) bool {
	known, _ := ps.heard(r.Pool)
	return known != nil && known.UID != r.PoolUID
}

// waitsForPool reports whether r has been written in the term, and its confirmation waits for
// nothing but that a pool is opened again. A request's may come before: the controller answers it.
func (ps *pools) waitsForPool(r protocol.Right) bool {
	return r.Kind != protocol.RightRequest && r.Unconfirmed(ps.reg.term()) && !ps.reg.isUnseen(r.Name) && ps.withheldRight(r) != nil
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
	if err := ps.withheld(name); err != nil {
		return "waits: " + err.Error()
	}
	return ""
}

// mend ends what began when the API server was seen to go back. First the node puts back what it
// holds, and says so. Then the pools are opened again, and leasing goes on.
func (ps *pools) mend(ctx context.Context) {
	restored, _ := ps.reg.restored("")
	if restored == nil {
		return
	}
	registrar := ps.reg.current()
	term := registrar.Term
	said, _ := protocol.ParseRestoration(registrar.Seen.Restored)
	switch {
	case restored.Back && said == *restored && ps.allReopened(*restored) && ps.reg.endRestore(restored):
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

// allReopened reports whether all pools that were heard of before the API server went back have
// been opened since.
func (ps *pools) allReopened(r protocol.Restoration) bool {
	for _, p := range ps.followed() {
		known, absent, _ := p.now()
		if _, since := ps.reg.restored(p.name); !since && !reopened(r, known, absent) {
			return false
		}
	}
	return true
}

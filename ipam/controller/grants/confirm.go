package grants

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// failRestored fails the writes that would grant something of a pool that is about to be closed
// because the API server's data went back in time. The cluster may have given back a lease that
// these data show, and a node may have leased its block since: the node waits to put that back.
func (b *Broker) failRestored(ctx context.Context, writes []*write) {
	if b.cfg.Restored == nil {
		return
	}
	known, unknown := map[protocol.PoolName]error{}, error(nil)
	for _, wr := range writes {
		if !wr.adds() {
			continue
		}
		name := wr.pool.name
		if _, asked := known[name]; !asked && unknown == nil {
			var restored bool
			if restored, unknown = b.cfg.Restored(ctx, name); restored {
				known[name] = fmt.Errorf("pool %s: %w", name, errRestored)
			} else {
				known[name] = nil
			}
		}
		if wr.err = known[name]; wr.err == nil {
			wr.err = unknown // the answer for this pool, or for an earlier one
		}
	}
}

// confirm reads each pool once that has leases which are not confirmed, and refuses the grants of
// writes whose lease the pool does not confirm.
func (b *Broker) confirm(ctx context.Context, writes []*write) {
	pools := map[protocol.PoolName][]*write{}
	b.mu.Lock()
	for _, wr := range writes {
		wr.begin()
		if wr.err == nil && wr.unconfirmed() {
			pools[wr.pool.name] = append(pools[wr.pool.name], wr)
		}
	}
	b.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		writes := pools[name]
		b.mu.Lock()
		uid := b.book.pool(name).state.UID
		others := b.book.unconfirmed(name, writes)
		b.mu.Unlock()
		seen, out, err := b.cluster.ReadPool(ctx, name)
		b.metrics.call("read", out)
		if known := out == protocol.Done || out == protocol.NotFound; known {
			b.mu.Lock()
			b.book.correct(name, uid, seen, out == protocol.Done)
			b.book.confirm(name, others, seen, out)
			b.mu.Unlock()
		}
		for _, wr := range writes {
			right := protocol.LeaseRight{Pool: name, PoolUID: wr.start.PoolUID, Block: wr.start.Block}
			ok, why := protocol.ConfirmLease(right, seen, out)
			keeps := wr.onlyKeeps()
			if keeps {
				ok, why = protocol.ConfirmKept(right, seen, out)
			}
			if ok && seen.Generation > 0 && wr.generation != seen.Generation {
				ok, why = false, fmt.Sprintf("pool %s was edited a moment ago", name)
			}
			switch {
			case out != protocol.Done && out != protocol.NotFound:
				wr.err = err
			case ok:
				b.mu.Lock()
				if wr.lease.UID == wr.start.UID && !keeps { // this holds for later grants, too
					wr.lease.confirmed = true
				}
				b.mu.Unlock()
				continue
			}
			wr.refuse(why)
			if wr.created.UID != "" { // only as created: another controller may have granted on it since
				b.release(ctx, wr.created)
			}
		}
	}
}

// A seenLease is a lease as it was seen at some moment.
type seenLease struct {
	*lease
	uid protocol.UID
}

// unconfirmed returns the leases of a pool that are not confirmed and that no write of but is for,
// as they are now.
func (b *book) unconfirmed(name protocol.PoolName, but []*write) []seenLease {
	written := map[*lease]bool{}
	for _, wr := range but {
		written[wr.lease] = true
	}
	var all []seenLease
	for _, l := range b.pool(name).leases {
		if !l.confirmed && l.Revision != "" && !written[l] {
			all = append(all, seenLease{l, l.UID})
		}
	}
	return all
}

// confirm confirms these leases by a pool that was read live, with outcome out, after they were
// seen. So one read confirms all of them, also those on which nothing is granted yet.
func (b *book) confirm(name protocol.PoolName, leases []seenLease, live protocol.Pool, out protocol.Outcome) {
	if live.Generation > 0 && live.Generation != b.pool(name).state.Generation {
		return
	}
	for _, l := range leases {
		ok, _ := protocol.ConfirmLease(protocol.LeaseRight{Pool: name, PoolUID: l.PoolUID, Block: l.Block}, live, out)
		l.confirmed = l.confirmed || ok && l.UID == l.uid
	}
}

package agent

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// darkLeases are the leases whose block is open and that do not serve: lost ones
// that attachments rest on, frozen ones, and those that have not been said again in a new term.
// What is free of them is no address that this node can give. The zero value is
// ready.
type unservingLeases struct {
	mu sync.Mutex
	of map[protocol.PoolName]map[netip.Prefix]bool // guarded by mu
}

// follow keeps the set with what a step in term has recorded of a lease.
func (d *unservingLeases) follow(term int64, res protocol.Result) {
	r := res.Next
	open := !res.Forget && slices.Contains([]protocol.Phase{protocol.Held, protocol.Lost, protocol.Frozen}, r.Phase)
	d.set(r, open && !r.Serves(term))
}

// set notes whether r is open and does not serve.
func (d *unservingLeases) set(r protocol.Right, unserving bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !unserving {
		delete(d.of[r.Pool], r.Block)
		return
	}
	if d.of == nil {
		d.of = map[protocol.PoolName]map[netip.Prefix]bool{}
	}
	if d.of[r.Pool] == nil {
		d.of[r.Pool] = map[netip.Prefix]bool{}
	}
	d.of[r.Pool][r.Block] = true
}

// blocks returns the unserving blocks of a pool.
func (d *unservingLeases) blocks(pool protocol.PoolName) map[netip.Prefix]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.of[pool]) == 0 {
		return nil
	}
	all := make(map[netip.Prefix]bool, len(d.of[pool]))
	for b := range d.of[pool] {
		all[b] = true
	}
	return all
}

// counts returns the sums of a pool's blocks of one family that serve.
func (a *Agent) counts(tx *store.Tx, name protocol.PoolName, f allocator.Family) (allocator.Counts, error) {
	space := allocator.NewSpace(tx.Table(name), nil)
	c, err := space.Counts(f)
	unserving := a.unserving.blocks(name)
	if err != nil || len(unserving) == 0 {
		return c, err
	}
	for b, err := range space.Blocks(f) {
		if err != nil {
			return c, err
		}
		if unserving[b.Prefix] {
			c.Blocks--
			c.Taken -= b.Taken
			c.Free -= b.Free
		}
	}
	return c, nil
}

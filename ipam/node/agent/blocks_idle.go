package agent

import (
	"context"
	"slices"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// giveBack lets go of leases and uses that nothing has needed for a while.
func (bs *blocks) giveBack(ctx context.Context) {
	bs.noteFreed(ctx)
	rights, err := bs.rightsThat(func(r protocol.Right) bool { return r.Phase == protocol.Held || r.Phase == protocol.Lost })
	if err != nil {
		bs.log.ErrorContext(ctx, "store not read", "error", err)
		return
	}
	// What is Lost is given back at any time: after a restore it may stand in the way of
	// whoever puts back what is his, or of its pool. So may what a pool that is closed waits
	// for (see [protocol.Right.MayGo]), and a lease of an earlier pool of the name.
	term := bs.reg.term()
	rights = slices.DeleteFunc(rights, func(r protocol.Right) bool {
		return r.Phase != protocol.Lost && !r.MayGo(term) && bs.pools.keptBack(r) != nil
	})
	idle := bs.idleRights(rights)
	sched.Each(ctx, bs.sched, bs.cfg.Parallel, idle, func(r protocol.Right) {
		if r.Kind == protocol.RightLease && r.Phase == protocol.Held {
			bs.handBack(ctx, r)
			return
		}
		bs.rights.letGo(ctx, r)
	})
}

// idleRights returns which of rights to let go: empty for long enough, without an address that
// rests, and not part of the reserve of a pool that the node uses.
func (bs *blocks) idleRights(rights []protocol.Right) []protocol.Right {
	now, term := bs.sched.Now(), bs.reg.term()
	empty, rests := map[string]bool{}, map[string]bool{}
	spare := map[protocol.PoolName]map[allocator.Family]int{} // free addresses beyond the reserve
	var info map[assign.BlockKey]allocator.BlockInfo
	err := bs.st.View(func(tx *store.Tx) error {
		var err error
		if info, err = assign.Blocks(tx); err != nil {
			return err
		}
		for _, r := range rights {
			if isGranted(r) {
				continue
			}
			used, err := inUse(tx, r)
			if err != nil {
				return err
			}
			empty[r.Name] = !used
			if rests[r.Name], err = bs.heldBack(tx, r); err != nil {
				return err
			}
			if _, ok := spare[r.Pool]; r.Kind == protocol.RightLease && !ok {
				spare[r.Pool] = bs.spare(tx, r.Pool)
			}
		}
		return nil
	})
	if err != nil {
		bs.log.Error("store not read", "error", err)
		return nil
	}
	var idle []protocol.Right
	stay := bs.pools.staying(rights, empty)
	for _, r := range rights {
		if !empty[r.Name] {
			bs.rights.idle.end(r.Name)
			continue
		}
		if stay[r.Name] {
			continue
		}
		since := bs.rights.idle.since(r.Name, now)
		after := bs.cfg.Idle
		if r.Phase == protocol.Lost || r.Kind == protocol.RightLease && bs.pools.pressed(r.Pool) && !cededWhole(r) {
			after = 0
		}
		if rests[r.Name] || now.Since(since) < after {
			continue
		}
		if r.Kind == protocol.RightLease && r.Usable(term) { // another gives nothing, and is no reserve
			// Not the block's size: at the edges of a pool, and where addresses are
			// excluded or static-only, a block has fewer to give, or none.
			f, free := allocator.FamilyOf(r.Block.Addr()), info[assign.BlockKey{Pool: r.Pool, Block: r.Block}].Free
			if free > 0 && spare[r.Pool][f] < free {
				continue // part of the reserve
			}
			spare[r.Pool][f] -= free
		}
		bs.rights.idle.end(r.Name)
		idle = append(idle, r)
	}
	return idle
}

// heldBack reports whether a lease is kept because addresses of its block rest: whoever leases it
// next does not know that they do. Where addresses become scarce, or the pool is closed, it goes.
func (bs *blocks) heldBack(tx *store.Tx, r protocol.Right) (bool, error) {
	if r.Kind != protocol.RightLease || r.Phase != protocol.Held || cededWhole(r) || bs.pools.pressed(r.Pool) {
		return false, nil
	}
	n, err := resting(tx, r.Pool, r.Block, bs.rested(r.Pool))
	return n > 0, err
}

// isGranted reports whether r is a request that was granted: it goes when its ADD does not come
// again.
func isGranted(r protocol.Right) bool {
	return r.Kind == protocol.RightRequest && r.Phase == protocol.Held
}

// cededWhole reports whether every address of a lease's block has been ceded: the
// cluster may take it over.
func cededWhole(r protocol.Right) bool {
	return r.Kind == protocol.RightLease && len(r.Ceded) == 1<<(r.Block.Addr().BitLen()-r.Block.Bits())
}

// spare returns how many free addresses the node has in a pool beyond the reserve
// that its use of the pool suggests.
func (bs *blocks) spare(tx *store.Tx, name protocol.PoolName) map[allocator.Family]int {
	more := map[allocator.Family]int{}
	pressure, perNode := allocator.PressureLow, false
	if known, absent := bs.pools.heard(name); known != nil {
		pressure, perNode = known.Pressure, known.Text.PerNode != nil
		if absent || known.Deleting || !known.Open {
			pressure = allocator.PressureExhausted
		}
	}
	for _, f := range allocator.Families() {
		c, err := bs.ready(tx, name, f)
		if err != nil {
			bs.log.Error("pool state not read", "pool", name, "error", err)
			continue
		}
		reserve := 0
		if c.Taken > 0 && !perNode { // a node has one subnet, whatever it uses
			reserve = allocator.Reserve(c.Taken, pressure)
		}
		more[f] = c.Free - reserve
	}
	return more
}

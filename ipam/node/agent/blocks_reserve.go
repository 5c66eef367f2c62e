package agent

import (
	"cmp"
	"context"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// reserveAfter is how long after an ADD or DEL a pool's reserve is looked after: in a burst others
// need these blocks more.
const reserveAfter = 2 * time.Second

// scheduleUpkeep notes that the pools of an attachment have changed: their reserve is
// looked after, or under pressure what has become idle given back, once for all
// that touch them meanwhile.
func (bs *blocks) scheduleUpkeep(att store.Attachment) {
	var last protocol.PoolName
	for _, addr := range att.Addresses {
		if addr.Pool == last || addr.Lease == "" {
			continue
		}
		last = addr.Pool
		p := bs.pools.get(addr.Pool)
		p.upkeepDue.Store(true)
		bs.upkeep(p)
	}
	for _, addr := range att.Addresses {
		bs.rights.idle.end(addr.Lease)
	}
}

// upkeep does what is due of a pool, unless that is under way: then it is done again afterwards.
// Of several at once each would look at the same idle leases.
func (bs *blocks) upkeep(p *pool) {
	if !p.upkeepRuns.CompareAndSwap(false, true) {
		return
	}
	bs.background(func(ctx context.Context) {
		for p.upkeepDue.Swap(false) {
			bs.reserveIn(p, reserveAfter)
			if bs.pools.pressed(p.name) && !p.acquires.busy() { // else what seems idle is about to be used
				bs.giveBack(ctx)
			}
		}
		p.upkeepRuns.Store(false)
		if p.upkeepDue.Load() {
			bs.upkeep(p)
		}
	})
}

// reserveIn has reserve called in d, once for all that want it meanwhile.
func (bs *blocks) reserveIn(p *pool, d time.Duration) {
	if !p.reserving.CompareAndSwap(false, true) {
		return
	}
	bs.background(func(ctx context.Context) {
		due := bs.wait(ctx, d)
		p.reserving.Store(false)
		if due {
			bs.reserve(p)
		}
	})
}

// reserve acquires ahead of need what the pool's use on this node suggests.
func (bs *blocks) reserve(p *pool) {
	known, absent, _ := p.now()
	if bs.pools.unleasable(p.name, known, absent) != "" || known.Text.PerNode != nil {
		return
	}
	if !bs.reg.isSeen() { // it alone shows that the API server has gone back, and the block is another's
		bs.reserveIn(p, regRetry)
		return
	}
	for _, f := range known.shape.Families() {
		var c allocator.Counts
		err := bs.st.Peek(func(tx *store.Tx) error {
			var err error
			c, err = bs.ready(tx, p.name, f)
			return err
		})
		if err != nil || c.Taken == 0 {
			continue
		}
		size := 1 << (f.BitLen() - known.bits(f))
		wanted := allocator.Wanted(c.Taken, c.Free, size, known.Pressure)
		aq, slot := &p.acquires, assign.Slot{Family: f}
		if wanted == 0 || aq.unmet(slot, bs.sched.Now()) != nil {
			continue // those who wait need what there is
		}
		aq.mu.Lock()
		begin := max(0, min(wanted, bs.cfg.Parallel)-aq.running())
		aq.change(slot, begin, 0)
		aq.mu.Unlock()
		for range begin {
			bs.background(func(ctx context.Context) {
				unmet, err := bs.acquire(ctx, p, slot)
				bs.land(aq, slot, unmet)
				if err = cmp.Or(unmet, err); err != nil {
					p.rests.failed(bs.sched.Now())
					bs.log.DebugContext(ctx, "no reserve", "pool", p.name, "error", err)
				}
			})
		}
	}
}

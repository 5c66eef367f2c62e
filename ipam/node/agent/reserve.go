package agent

import (
	"context"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// reserveAfter is how long after an ADD or DEL a pool's reserve is looked after: in a burst others
// need these blocks more.
const reserveAfter = 2 * time.Second

// reserveIn has reserve called in d, once for all that want it meanwhile.
func (a *Agent) reserveIn(p *pool, d time.Duration) {
	if !p.reserving.CompareAndSwap(false, true) {
		return
	}
	a.background(func(ctx context.Context) {
		due := a.wait(ctx, d)
		p.reserving.Store(false)
		if due {
			a.reserve(p)
		}
	})
}

// reserve acquires ahead of need what the pool's use on this node suggests.
func (a *Agent) reserve(p *pool) {
	known, absent, _ := p.now()
	if a.unleasable(p.name, known, absent) != "" {
		return
	}
	if !a.regSeen() { // only the registration may show that the API server has gone back, and the block is another's
		a.reserveIn(p, regRetry)
		return
	}
	for _, f := range known.shape.Families() {
		var c allocator.Counts
		err := a.st.Peek(func(tx *store.Tx) error {
			var err error
			c, err = a.counts(tx, p.name, f)
			return err
		})
		if err != nil || c.Taken == 0 {
			continue
		}
		size := 1 << (f.BitLen() - known.bits(f))
		wanted := allocator.Wanted(c.Taken, c.Free, size, known.Pressure)
		d := &p.demands
		if wanted == 0 || d.unmet(addressDemand{family: f}, a.sched.Now()) != nil {
			continue // those who wait need what there is
		}
		n := addressDemand{family: f}
		d.mu.Lock()
		begin := max(0, min(wanted, a.cfg.Parallel)-d.acquires())
		d.change(n, begin, 0)
		d.mu.Unlock()
		for range begin {
			a.background(func(ctx context.Context) {
				err := a.acquire(ctx, p, n)
				a.land(d, n, err)
				if err != nil {
					a.log.DebugContext(ctx, "no reserve", "pool", p.name, "error", err)
				}
			})
		}
	}
}

// regSeen reports whether the agent has seen its registration since it started.
func (a *Agent) regSeen() bool { return a.current().Seen.UID != "" }

// touch notes that the pools of an attachment have changed: their reserve is
// looked after, or under pressure what has become idle given back, once for all
// that touch them meanwhile.
func (a *Agent) touch(att store.Attachment) {
	var last protocol.PoolName
	for _, addr := range att.Addresses {
		if addr.Pool == last || addr.Lease == "" {
			continue
		}
		last = addr.Pool
		p := a.pool(addr.Pool)
		p.touched.Store(true)
		a.tend(p)
	}
	for _, addr := range att.Addresses {
		a.idle.end(addr.Lease)
	}
}

// tend does what is due of a pool that was touched, unless that is under way: then it is
// done again afterwards. Of several at once each would look at the same idle leases.
func (a *Agent) tend(p *pool) {
	if !p.tending.CompareAndSwap(false, true) {
		return
	}
	a.background(func(ctx context.Context) {
		for p.touched.Swap(false) {
			a.reserveIn(p, reserveAfter)
			if a.pressed(p.name) && !p.demands.busy() { // else what seems idle is about to be used
				a.giveBack(ctx)
			}
		}
		p.tending.Store(false)
		if p.touched.Load() {
			a.tend(p)
		}
	})
}

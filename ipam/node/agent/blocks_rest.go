package agent

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/ipam/rest"
)

const (
	// restWait is how long after its coming an ADD is answered an address that rests, at the
	// latest, where it waits for a block.
	restWait = time.Second
	// restRetry is how long no block is leased to spare addresses that rest, after one was not to
	// be had: in a pool that is nearly leased out each ADD would probe in vain.
	restRetry = 10 * time.Second
)

// errRestWait ends an ADD's wait for a block: it is given an address that rests instead.
var errRestWait = &notReadyError{Why: "has no other block for this node soon"}

// rests are which freed addresses of a pool have rested. They are not kept on disk: after a restart
// of the agent every freed address rests anew. The zero value is ready.
type rests struct {
	mu     sync.Mutex
	of     map[allocator.Family]*rest.Notes // guarded by mu
	inVain *protocol.Instant                // guarded by mu; when a block was last not to be had
}

// note notes how many addresses of family f had been freed by now.
func (r *rests) note(f allocator.Family, freed uint64, now protocol.Instant, reuseAfter time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[allocator.Family]*rest.Notes{}
	}
	if r.of[f] == nil {
		r.of[f] = &rest.Notes{}
	}
	r.of[f].Note(freed, now.Boot, reuseAfter)
}

// rested returns, by family, how many of the addresses that were freed first have rested; nil where
// none has to.
func (r *rests) rested(now protocol.Instant, reuseAfter time.Duration) map[allocator.Family]uint64 {
	if reuseAfter <= 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	rested := map[allocator.Family]uint64{}
	for f, notes := range r.of {
		rested[f] = notes.Rested(now.Boot, reuseAfter)
	}
	return rested
}

// failed notes that a block to spare what rests was not to be had.
func (r *rests) failed(now protocol.Instant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inVain = &now
}

// spares reports whether a block may be leased to spare what rests.
func (r *rests) spares(now protocol.Instant) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inVain == nil || now.Since(*r.inVain) >= restRetry
}

// reuseAfter returns for how long addresses of p are to rest.
func (p *pool) reuseAfter() time.Duration {
	known, _, _ := p.now()
	if known == nil {
		return 0
	}
	return known.ReuseAfter
}

// rested returns, by family, how many of the addresses of a pool that were freed first have rested;
// nil where none has to.
func (bs *blocks) rested(name protocol.PoolName) map[allocator.Family]uint64 {
	p := bs.pools.entry(name)
	if p == nil {
		return nil
	}
	return p.rests.rested(bs.sched.Now(), p.reuseAfter())
}

// noteFreed notes how far pools with a reuseAfter have come in the order of what they have freed.
func (bs *blocks) noteFreed(ctx context.Context) {
	for _, p := range bs.pools.followed() {
		reuseAfter := p.reuseAfter()
		if reuseAfter <= 0 {
			continue
		}
		freed := map[allocator.Family]uint64{}
		err := bs.st.View(func(tx *store.Tx) (err error) {
			for _, f := range allocator.Families() {
				if freed[f], err = allocator.NewSpace(tx.Table(p.name), nil).Freed(f); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			bs.log.ErrorContext(ctx, "store not read", "error", err)
			return
		}
		now := bs.sched.Now() // after the read: what it has seen was freed before
		for f, n := range freed {
			p.rests.note(f, n, now, reuseAfter)
		}
	}
}

// resting returns how many addresses of a block rest, by rested.
func resting(tx *store.Tx, name protocol.PoolName, block netip.Prefix, rested map[allocator.Family]uint64) (int, error) {
	if rested == nil {
		return 0, nil
	}
	n, err := allocator.NewSpace(tx.Table(name), nil).Resting(block, rested[allocator.FamilyOf(block.Addr())])
	if errors.Is(err, allocator.ErrNoBlock) {
		return 0, nil
	}
	return n, err
}

// ready returns the sums of a pool's blocks of one family that serve. What rests is no free address
// there, unless addresses are scarce, or no block is to be had to spare it.
func (bs *blocks) ready(tx *store.Tx, name protocol.PoolName, f allocator.Family) (allocator.Counts, error) {
	c, err := bs.rights.counts(tx, name, f)
	p := bs.pools.entry(name)
	if err != nil || p == nil {
		return c, err
	}
	rested := bs.rested(name)
	if rested == nil || bs.pools.pressed(name) || !p.rests.spares(bs.sched.Now()) {
		return c, nil
	}
	unserving := bs.rights.unserving.blocks(name)
	for b, err := range allocator.NewSpace(tx.Table(name), nil).Blocks(f) {
		if err != nil {
			return c, err
		}
		if unserving[b.Prefix] {
			continue
		}
		n, err := resting(tx, name, b.Prefix, rested)
		if err != nil {
			return c, err
		}
		c.Free -= n
	}
	return c, nil
}

// spareResting has a block leased for the slot of an ADD that came at arrived, for which
// addresses that rest will do. It reports whether the caller is to look for room again. If not, no
// other block is to be had soon, or addresses are scarce.
func (bs *blocks) spareResting(ctx context.Context, p *pool, slot assign.Slot, arrived protocol.Instant, finished uint64) bool {
	now := bs.sched.Now()
	left := restWait - now.Since(arrived)
	known, absent, _ := p.now()
	if left <= 0 || bs.pools.pressed(p.name) || !p.rests.spares(now) || bs.pools.unleasable(p.name, known, absent) != "" || bs.unmetNow(p, slot) != nil {
		return false
	}
	ctx, cancel := bs.sched.WithTimeout(ctx, left, errRestWait)
	defer cancel()
	if unmet, err := bs.lease(ctx, p, slot, finished); unmet != nil || err != nil {
		p.rests.failed(bs.sched.Now())
		return false
	}
	return true
}

package agent

import (
	"context"
	"net/netip"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// smallPool is how many blocks a pool has at most whose leases are listed when a
// probe has met another's. In such pools nodes often meet, and a probe that fails costs
// as much as one that succeeds; a list of names costs about three of them.
const smallPool = 1024

const (
	// lookEach is for how long a list is new enough not to be made again; so is one for
	// lookTimes as long as it took: under load, everything takes its time.
	lookEach  = 200 * time.Millisecond
	lookTimes = 2
	// lookHolds is for how long blocks that others were seen to have are left out.
	lookHolds = 2 * time.Second
)

// An overview is which blocks of a pool were seen leased. It only saves probes.
type overview struct {
	at      protocol.Instant // when the last list was begun
	took    time.Duration    // how long it took
	leased  map[netip.Prefix]bool
	listing chan struct{} // closes when the list that is under way ends; nil if none is
}

// small reports whether p has few blocks of family f.
func (p *knownPool) small(f allocator.Family) bool {
	return p.shape.Capacity(f)>>(f.BitLen()-p.bits(f)) <= smallPool
}

// look has an overview of p that was begun a moment ago at most, and shares the list
// with the acquires that want one at the same time. The list is made within spread:
// nodes that have met at once do not look, and go on, at once. It reports whether there is
// news. Without the list the acquires go on as before.
func (a *Agent) look(ctx context.Context, p *pool, spread time.Duration) (news bool) {
	d := &p.demands
	d.mu.Lock()
	if d.seen.leased != nil && a.sched.Now().Since(d.seen.at) < max(lookEach, lookTimes*d.seen.took) {
		d.mu.Unlock()
		return false
	}
	if listing := d.seen.listing; listing != nil {
		d.mu.Unlock()
		return a.sched.Wait(ctx, sched.Forever, listing) == 0
	}
	listing := make(chan struct{})
	d.seen.listing = listing
	d.mu.Unlock()

	if spread > 0 {
		a.wait(ctx, sched.N(a.sched, spread))
	}
	began := a.sched.Now()
	blocks, err := a.cl.Leases.LeasedBlocks(ctx, p.name)
	if err != nil {
		a.log.DebugContext(ctx, "leases of a pool not listed", "pool", p.name, "error", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen.listing = nil
	close(listing)
	if err != nil {
		return false
	}
	d.seen.at, d.seen.took, d.seen.leased = began, a.sched.Now().Since(began), make(map[netip.Prefix]bool, len(blocks))
	for _, b := range blocks {
		d.seen.leased[b] = true
	}
	return true
}

// met notes that a probe has met another's lease of block.
func (d *demands) met(block netip.Prefix, now protocol.Instant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rush = &now
	if d.seen.leased != nil {
		d.seen.leased[block] = true
	}
}

// overviewNow returns the blocks that were seen leased lately; nil if none was looked
// for. d.mu must be held.
func (d *demands) overviewNow(now protocol.Instant) map[netip.Prefix]bool {
	if now.Since(d.seen.at) >= lookHolds {
		return nil
	}
	return d.seen.leased
}

package agent

import (
	"math"
	"net/netip"
	"sync"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// demands collects what waits for blocks of one pool and bounds how many are
// acquired at once.
type demands struct {
	mu sync.Mutex
	// queues are of demands for which an ADD waits, or an acquire is under way; guarded by mu.
	queues      map[demandKey]queue
	ended       chan struct{}                   // guarded by mu; closed and replaced whenever an acquire ends
	cursor      map[allocator.Family]netip.Addr // guarded by mu; where to probe next
	easing      *protocol.Instant               // guarded by mu; when the pool was last not exhausted any more
	unmetLately map[demandKey]unmetLately       // guarded by mu; what could not be acquired lately
	trying      map[netip.Prefix]bool           // guarded by mu; blocks that acquires are at
}

// demandKey tells demands by what would meet them.
type demandKey struct {
	family allocator.Family
	view   string
}

func (n addressDemand) key() demandKey { return demandKey{n.family, n.view.String()} }

// queue is who waits for blocks that meet one demand, and how many are being acquired.
type queue struct {
	running int // acquires
	waiting int // ADDs
}

type unmetLately struct {
	at  protocol.Instant
	err error
}

// unmetHolds is how long it is believed that a demand cannot be met: in a pool that is nearly full
// each ADD would probe in vain before it asks.
const unmetHolds = time.Second

// acquiring is an acquire that an ADD has begun. What came of it may be read when ended is closed.
type acquiring struct {
	ended      chan struct{}
	unmet, err error
}

// change adds to the queue of n, and returns what it is then. d.mu must be held.
func (d *demands) change(n addressDemand, running, waiting int) queue {
	if d.queues == nil {
		d.queues = map[demandKey]queue{}
	}
	key := n.key()
	q := d.queues[key]
	q.running, q.waiting = q.running+running, q.waiting+waiting
	if d.queues[key] = q; q == (queue{}) {
		delete(d.queues, key)
	}
	return q
}

// acquires returns how many acquires are under way. d.mu must be held.
func (d *demands) acquires() (n int) {
	for _, q := range d.queues {
		n += q.running
	}
	return n
}

// unmet returns why n could not be met a moment ago, nil if it could or was not tried.
func (d *demands) unmet(n addressDemand, now protocol.Instant) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, ok := d.unmetLately[n.key()]
	if !ok || now.Since(l.at) >= unmetHolds {
		return nil
	}
	return l.err
}

// leave ends the wait of an ADD that has joined for n.
func (d *demands) leave(n addressDemand) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.change(n, 0, -1)
}

// busy reports whether ADDs wait for blocks, or blocks are being acquired.
func (d *demands) busy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.queues) > 0
}

// claim takes block for one acquire: another would only wait for it. ok is false where
// one is at it already.
func (d *demands) claim(block netip.Prefix) (ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.claimLocked(block)
}

// claimLocked is claim for a caller that holds d.mu.
func (d *demands) claimLocked(block netip.Prefix) (ok bool) {
	if d.trying[block] {
		return false
	}
	if d.trying == nil {
		d.trying = map[netip.Prefix]bool{}
	}
	d.trying[block] = true
	return true
}

// underWay returns a channel that closes when the next acquire ends, nil if none is at
// a block.
func (d *demands) underWay() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.trying) == 0 {
		return nil
	}
	if d.ended == nil {
		d.ended = make(chan struct{})
	}
	return d.ended
}

// unclaim ends what claim began.
func (d *demands) unclaim(block netip.Prefix) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.trying, block)
}

// claimAlone is claim, where no acquire may be at another block meanwhile. release ends it, and
// wakes whoever waits; it is nil where an acquire is at a block.
func (d *demands) claimAlone(block netip.Prefix) (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.trying) > 0 {
		return nil
	}
	d.claimLocked(block)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.trying, block)
		d.wake()
	}
}

// wake has all that wait for an acquire look for room again. d.mu must be held.
func (d *demands) wake() {
	if d.ended != nil {
		close(d.ended)
	}
	d.ended = make(chan struct{})
}

// ease notes when the pool was not exhausted any more.
func (d *demands) ease(now protocol.Instant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.easing = &now
}

// eased returns for how long the pool has not been exhausted.
func (d *demands) eased(now protocol.Instant) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.easing == nil {
		return math.MaxInt64
	}
	return now.Since(*d.easing)
}

// blockSize returns how many addresses a block has that could serve n.
func blockSize(p *pool, n addressDemand) int {
	known, _, _ := p.now()
	if known == nil {
		return 1
	}
	return 1 << min(8, n.family.BitLen()-known.bits(n.family))
}

package agent

import (
	"math"
	"net/netip"
	"sync"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// acquires counts those of one pool that are under way, and the ADDs that wait for them.
type acquires struct {
	mu sync.Mutex
	// queues are of slots for which an ADD waits, or an acquire is under way; guarded by mu.
	queues      map[slotKey]queue
	ended       chan struct{}                   // guarded by mu; closed and replaced whenever an acquire ends
	cursor      map[allocator.Family]netip.Addr // guarded by mu; where to probe next
	easing      *protocol.Instant               // guarded by mu; when the pool was last not exhausted any more
	unmetLately map[slotKey]unmetLately         // guarded by mu; what could not be acquired lately
	trying      map[netip.Prefix]bool           // guarded by mu; blocks that acquires are at
}

// slotKey tells slots by which blocks would do for them.
type slotKey struct {
	family allocator.Family
	view   string
}

func keyOf(slot assign.Slot) slotKey { return slotKey{slot.Family, slot.View.String()} }

// queue is how many ADDs wait for blocks that would do for like slots, and how many are acquired.
type queue struct {
	running int // acquires
	waiting int // ADDs
}

type unmetLately struct {
	at  protocol.Instant
	err error
}

// unmetHolds is how long it is believed that no block is to be had for a slot: in a pool that is
// nearly full each ADD would probe in vain before it asks.
const unmetHolds = time.Second

// acquiring is an acquire that an ADD has begun. What came of it may be read when ended is closed.
type acquiring struct {
	ended      chan struct{}
	unmet, err error
}

// change adds to the queue of a slot, and returns what it is then. aq.mu must be held.
func (aq *acquires) change(slot assign.Slot, running, waiting int) queue {
	if aq.queues == nil {
		aq.queues = map[slotKey]queue{}
	}
	key := keyOf(slot)
	q := aq.queues[key]
	q.running, q.waiting = q.running+running, q.waiting+waiting
	if aq.queues[key] = q; q == (queue{}) {
		delete(aq.queues, key)
	}
	return q
}

// running returns how many acquires are under way. aq.mu must be held.
func (aq *acquires) running() (n int) {
	for _, q := range aq.queues {
		n += q.running
	}
	return n
}

// unmet returns why no block was to be had for a slot a moment ago, nil if one was, or none was
// tried.
func (aq *acquires) unmet(slot assign.Slot, now protocol.Instant) error {
	aq.mu.Lock()
	defer aq.mu.Unlock()
	l, ok := aq.unmetLately[keyOf(slot)]
	if !ok || now.Since(l.at) >= unmetHolds {
		return nil
	}
	return l.err
}

// leave ends the wait of an ADD that has joined for a slot.
func (aq *acquires) leave(slot assign.Slot) {
	aq.mu.Lock()
	defer aq.mu.Unlock()
	aq.change(slot, 0, -1)
}

// busy reports whether ADDs wait for blocks, or blocks are being acquired.
func (aq *acquires) busy() bool {
	aq.mu.Lock()
	defer aq.mu.Unlock()
	return len(aq.queues) > 0
}

// claim takes block for one acquire: another would only wait for it. ok is false where
// one is at it already.
func (aq *acquires) claim(block netip.Prefix) (ok bool) {
	aq.mu.Lock()
	defer aq.mu.Unlock()
	return aq.claimLocked(block)
}

// claimLocked is claim for a caller that holds aq.mu.
func (aq *acquires) claimLocked(block netip.Prefix) (ok bool) {
	if aq.trying[block] {
		return false
	}
	if aq.trying == nil {
		aq.trying = map[netip.Prefix]bool{}
	}
	aq.trying[block] = true
	return true
}

// underWay returns a channel that closes when the next acquire ends, nil if none is at
// a block.
func (aq *acquires) underWay() <-chan struct{} {
	aq.mu.Lock()
	defer aq.mu.Unlock()
	if len(aq.trying) == 0 {
		return nil
	}
	if aq.ended == nil {
		aq.ended = make(chan struct{})
	}
	return aq.ended
}

// unclaim ends what claim began.
func (aq *acquires) unclaim(block netip.Prefix) {
	aq.mu.Lock()
	defer aq.mu.Unlock()
	delete(aq.trying, block)
}

// claimAlone is claim, where no acquire may be at another block meanwhile. release ends it, and
// wakes whoever waits; it is nil where an acquire is at a block.
func (aq *acquires) claimAlone(block netip.Prefix) (release func()) {
	aq.mu.Lock()
	defer aq.mu.Unlock()
	if len(aq.trying) > 0 {
		return nil
	}
	aq.claimLocked(block)
	return func() {
		aq.mu.Lock()
		defer aq.mu.Unlock()
		delete(aq.trying, block)
		aq.wake()
	}
}

// wake has all that wait for an acquire look for room again. aq.mu must be held.
func (aq *acquires) wake() {
	if aq.ended != nil {
		close(aq.ended)
	}
	aq.ended = make(chan struct{})
}

// ease notes when the pool was not exhausted any more.
func (aq *acquires) ease(now protocol.Instant) {
	aq.mu.Lock()
	defer aq.mu.Unlock()
	aq.easing = &now
}

// eased returns for how long the pool has not been exhausted.
func (aq *acquires) eased(now protocol.Instant) time.Duration {
	aq.mu.Lock()
	defer aq.mu.Unlock()
	if aq.easing == nil {
		return math.MaxInt64
	}
	return now.Since(*aq.easing)
}

// blockSize returns how many addresses a block has that could serve a slot.
func blockSize(p *pool, slot assign.Slot) int {
	known, _, _ := p.now()
	if known == nil {
		return 1
	}
	return 1 << min(8, slot.Family.BitLen()-known.bits(slot.Family))
}

package agent

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"net/netip"
	"sync"
	"sync/atomic"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// pool is a pool that this node uses, as last heard of, and the acquires of its
// blocks.
type pool struct {
	name protocol.PoolName

	mu      sync.Mutex
	known   *knownPool    // guarded by mu; nil until heard of
	absent  bool          // guarded by mu; the API server says that there is none
	changed chan struct{} // guarded by mu; closed and replaced at each change
	// refused says why what was heard last was not taken over; empty: it was. Guarded by mu.
	refused string
	epoch   string // guarded by mu; as heard last, also where the rest was refused

	// missed is how many calls of [pools.forget] in a row have found the pool gone, and named by
	// nobody; guarded by pools.mu.
	missed   int
	unfollow func() // guarded by pools.mu; ends the following, and returns when it has ended

	hearing sched.Locks[struct{}] // held while what was heard is taken over
	news    int                   // guarded by hearing; how often the pool was told of

	acquires   acquires
	rests      rests
	upkeepDue  atomic.Bool // the reserve, and what is idle, are to be seen to
	upkeepRuns atomic.Bool // one is under way
	reserving  atomic.Bool // one is planned
}

// knownPool is an immutable view of a pool: a change replaces it.
type knownPool struct {
	Pool
	shape *allocator.Shape // the part of whole that is for this node
	whole *allocator.Shape
	text  string // as kept in the store; empty for a pool that was kept and not heard of since
	// notHere says why no address of it is for this node; empty if some are.
	notHere string
}

func newPool(name protocol.PoolName) *pool {
	return &pool{name: name, changed: make(chan struct{})}
}

// now returns the pool as last heard of, and a channel that closes when that
// changes.
func (p *pool) now() (known *knownPool, absent bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known, p.absent, p.changed
}

func (p *pool) set(known *knownPool, absent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known, p.absent, p.refused = known, absent, ""
	p.wakeLocked()
}

// refuse notes why what was heard is not taken over.
func (p *pool) refuse(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = why
	p.wakeLocked()
}

// heardEpoch notes in which epoch p is, before the rest of what was heard is taken over.
func (p *pool) heardEpoch(epoch string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.epoch = epoch
}

// lastEpoch returns in which epoch p is, as heard last, and whether it is gone or about to go.
func (p *pool) lastEpoch() (epoch string, gone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		return p.epoch, p.absent
	}
	return max(p.epoch, p.known.Epoch), p.absent || p.known.Deleting
}

// whyRefused says why what was heard of p last could not be taken over; empty: it was.
func (p *pool) whyRefused() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}

// whyUnknown says why nothing is known of p.
func (p *pool) whyUnknown() string {
	return cmp.Or(p.whyRefused(), unread)
}

// wake has all that wait for news of the pool go on.
func (p *pool) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wakeLocked()
}

func (p *pool) wakeLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// A notReadyError says why nothing can be taken from a pool now; it may change.
type notReadyError struct {
	Pool protocol.PoolName
	Why  string
	News bool // only news of the pool will change it
}

func (e *notReadyError) Error() string { return fmt.Sprintf("pool %s %s", e.Pool, e.Why) }

// until waits until nothing stands against p by the word of against, which it asks
// again at each news of p. It returns p as it is then, and whether it has waited; when
// ctx ends, a [*notReadyError] with what stood against p last.
func (p *pool) until(ctx context.Context, s sched.Scheduler, against func(known *knownPool, absent bool) string) (known *knownPool, waited bool, err error) {
	for {
		known, absent, changed := p.now()
		why := against(known, absent)
		switch {
		case why == "":
			return known, waited, nil
		case known == nil && !absent:
			why = p.whyUnknown()
		}
		if err := p.awaitNews(ctx, s, changed, why); err != nil {
			return nil, true, err
		}
		waited = true
	}
}

// awaitNews waits until changed, which came from [pool.now], closes. When ctx ends it
// returns a [*notReadyError] with why p was waited for.
func (p *pool) awaitNews(ctx context.Context, s sched.Scheduler, changed <-chan struct{}, why string) error {
	if s.Wait(ctx, sched.Forever, changed) == 0 {
		return nil
	}
	return &notReadyError{Pool: p.name, Why: why}
}

// unread says of a pool that nothing was heard of it yet.
const unread = "has not been read yet: the API server does not answer"

func unready(known *knownPool, absent bool) string {
	switch {
	case absent:
		return "does not exist: create the IPPool, or correct the name in the network configuration"
	case known == nil:
		return unread
	case known.Deleting:
		return "is being deleted"
	case known.Stopped:
		return "gives no addresses: its spec.allocation is Stopped"
	case known.Bits4 == 0 && known.Bits6 == 0:
		return "is not open yet: " + known.notOpen()
	}
	return known.notHere
}

// unanswerable is unready, but that a pool which is stopped will do: who has an address keeps it.
func unanswerable(known *knownPool, absent bool) string {
	why := unready(known, absent)
	if why == "" || absent || known == nil {
		return why
	}
	started := *known
	started.Stopped = false
	if unready(&started, false) == "" {
		return ""
	}
	return why
}

// notOpen says why p is not open, in the words of its condition where it has one.
func (p *knownPool) notOpen() string { return cmp.Or(p.Waits, "see its condition Ready") }

// bits returns the prefix length of p's blocks of family f.
func (p *knownPool) bits(f allocator.Family) int {
	if f == allocator.IPv4 {
		return p.Bits4
	}
	return p.Bits6
}

// leaseOf returns the name of the lease that has an address of p.
func (p *knownPool) leaseOf(addr netip.Addr) string {
	return protocol.LeaseName(protocol.PoolName(p.Name), p.shape.Block(addr, p.bits(allocator.FamilyOf(addr))))
}

// unnamed reports whether p is of the default domain.
func (p *knownPool) unnamed() bool { return poolspec.InDefaultDomain(p.Name, p.Domain) }

// around returns the blocks that would do for a slot, each once: those from an address on, and then
// those before it.
func (p *knownPool) around(slot assign.Slot, from netip.Addr) iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		var first netip.Prefix
		for at := from; ; {
			found, more := p.shape.NextBlock(slot.Family, p.bits(slot.Family), slot.View, at)
			if !more { // begin again at the start of the pool
				found, more = p.shape.NextBlock(slot.Family, p.bits(slot.Family), slot.View, netip.Addr{})
			}
			if !more || found == first || !yield(found) {
				return
			}
			if !first.IsValid() {
				first = found
			}
			at = netipx.PrefixLastIP(found).Next()
		}
	}
}

// fits reports whether x would do for a slot.
func (p *knownPool) fits(slot assign.Slot, x netip.Addr) bool {
	if slot.Exact.IsValid() {
		return x == slot.Exact
	}
	return allocator.FamilyOf(x) == slot.Family && slot.View.Contains(x) && p.shape.Ordinary(x)
}

// gives reports whether block has an ordinary address that would do for a slot.
func (p *knownPool) gives(block netip.Prefix, slot assign.Slot) bool {
	found, ok := p.shape.NextBlock(slot.Family, p.bits(slot.Family), slot.View, block.Addr())
	return ok && found == block
}

package grants

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A book is what the broker knows: every pool, every lease, every grant, which
// addresses are free and the cluster's to give, and which holders have been asked
// to cede some. It does no I/O. Its methods must not be called concurrently.
//
// It is told what was seen of the cluster, in any order and more than once, and
// keeps the newest of each object. It may be behind; it is never ahead.
type book struct {
	now   func() time.Time
	made  time.Time // when the book was
	pools map[protocol.PoolName]*pool
	held  map[holding][]Held
	// names are the UIDs with grants, by what the grants call their grantee.
	names map[protocol.Grantee][]protocol.UID

	// tick orders asks, recalls and live calls: see [Answer.Stamp].
	tick  uint64
	queue queue
	woken []*pool // pools that have changed since the queue was last looked at
	// starvingChanged are pools that may have begun or ceased to starve since anybody was
	// notified.
	starvingChanged []*pool

	holders map[protocol.NodeName]*holder
	// turns are of nodes whose requests have many views: see hasTurn.
	turns   map[protocol.NodeName]int
	id      string // of the recalls of this book, among all books'
	recalls uint64 // how many there have been
}

// PoolState is what was seen of a pool.
type PoolState struct {
	protocol.Pool
	// Generation is that of the spec which Shape was read from.
	Generation int64
	// Shape is nil where the spec cannot be read; Fault then says why.
	Shape *allocator.Shape
	Fault string
	// Pressure is the pool's, as nodes are told it.
	Pressure allocator.Pressure
	// Restored says that the API server's data went back in time, and that nodes
	// have yet to put back what they hold of the pool: nothing of it is granted.
	Restored bool
	// Unopened says that the pool was never open: it is not known yet which of its
	// addresses pods of other IPAMs have.
	Unopened bool
	// Stopped says that nobody is given an address that he has not.
	Stopped bool
	// GivenAway says that the pool was stopped, and is not open again: another IPAM may have given
	// what is free.
	GivenAway bool
	// Sourced says that the pool has a source, by which claims alone have its addresses.
	Sourced bool
	// ReuseAfter is how long a freed address rests: it is not granted while others are free.
	ReuseAfter time.Duration
	// Unpooled is, as text, what Shape lacks of the spec, by the pool's status.
	Unpooled string
}

// scarce reports whether what is idle goes back at once.
func (s PoolState) scarce() bool { return s.Pressure != allocator.PressureLow }

// pool is one pool, or what is left of it: leases may outlive their pool, and be
// seen before it.
type pool struct {
	name  protocol.PoolName
	state PoolState // zero UID: the pool is not there
	// ahead says that state's protocol.Pool comes from a live read that no watch has shown yet.
	// The rest of state is older then.
	ahead bool
	// stocks have the usable leases' blocks open.
	stocks [kinds]stock
	leases map[netip.Prefix]*lease
	// cursor is where the search for a block without a lease goes on. full are the searches that
	// have found none since a lease was last given back.
	cursor map[allocator.Family]netip.Addr
	full   map[string]bool
	// waiting are the asks to be tried again when the pool changes; woken says
	// that it has.
	waiting map[*waiter]struct{}
	woken   bool
	// askAgain is when holders that were passed over may be asked again; zero if no ask waits
	// for that.
	askAgain time.Time
	// starving are the asks that have found no address although every holder was asked, by
	// [want.key]. announced are their keys when the pool was last notified.
	starving        map[string]starving
	announced       string
	starvingChanged bool
}

// lease is one lease of a pool, or one about to be created.
type lease struct {
	protocol.Lease // without Revision: about to be created
	// confirmed says that the pool was read live, and open with blocks of this
	// size, after this lease was seen. Nothing is granted before.
	confirmed bool
	// writing are the grantees, without their UIDs, to which a write that is under way grants
	// something. They are notified when it is over; its answer shows the lease live.
	writing []protocol.Grantee
	// liveAt is when the last call began that has shown this lease live, in the book's count.
	// shownAt is when a call last showed it, by the clock. watched says that a watch has shown
	// it, too.
	liveAt  uint64
	shownAt time.Time
	watched bool
	// open says that the block is open in the pool's stock of this kind. taken and barred are
	// its taken and barred addresses there, each sorted.
	open          bool
	kind          kind
	taken, barred []netip.Addr
	// idleSince is when the lease was first seen without grants; zero if it has grants. leaving
	// says that it is being given back.
	idleSince time.Time
	leaving   bool
	// reserved are the addresses that the round under way wants to grant.
	reserved []netip.Addr

	asked asked
}

// newBook returns an empty book that reads the time from now.
func newBook(now func() time.Time) *book {
	return &book{
		now:     now,
		made:    now(),
		pools:   map[protocol.PoolName]*pool{},
		held:    map[holding][]Held{},
		names:   map[protocol.Grantee][]protocol.UID{},
		holders: map[protocol.NodeName]*holder{},
		turns:   map[protocol.NodeName]int{},
		queue: queue{
			asks:    map[protocol.UID]*waiter{},
			byName:  map[protocol.Grantee][]protocol.UID{},
			settled: map[protocol.UID]arrival{},
		},
	}
}

// age returns how old the book is.
func (b *book) age(now time.Time) time.Duration { return now.Sub(b.made) }

// pool returns the pool of that name, which it makes if it is new.
func (b *book) pool(name protocol.PoolName) *pool {
	p := b.pools[name]
	if p == nil {
		p = &pool{
			name: name, stocks: newStocks(), leases: map[netip.Prefix]*lease{}, cursor: map[allocator.Family]netip.Addr{},
			full: map[string]bool{}, waiting: map[*waiter]struct{}{},
		}
		b.pools[name] = p
	}
	return p
}

// forgetUnseen forgets a pool of which only the name is known, once no ask waits for it: asks may
// name any number of pools that do not exist.
func (b *book) forgetUnseen(p *pool) {
	if p.state.Revision == "" && p.state.UID == "" && len(p.leases)+len(p.waiting) == 0 && b.pools[p.name] == p {
		delete(b.pools, p.name)
	}
}

// setPool tells what was seen of a pool. It reports whether that is news.
func (b *book) setPool(s PoolState) bool {
	p := b.pool(protocol.PoolName(s.Name))
	old := p.state
	if newer(old.Revision, s.Revision) || s.Revision == old.Revision && s.Generation == old.Generation && !p.ahead {
		return false
	}
	p.ahead = false
	if s.UID == old.UID && s.Generation == old.Generation && s.Unpooled == old.Unpooled && old.Generation > 0 && old.Shape != nil {
		s.Shape, s.Fault = old.Shape, old.Fault
	}
	p.state = s
	clear(p.full)
	if s.Shape != old.Shape {
		for k := range p.stocks {
			p.stocks[k].space = allocator.NewSpace(p.stocks[k].table, s.Shape)
			must(p.stocks[k].space.Reshape())
		}
	}
	p.settleAll()
	b.wake(p)
	return true
}

// correct takes over what a live read has shown of a pool. A watch may show it only later, and
// until then a closed pool would be tried again and again. known is the UID that the pool had when
// the read began. there says whether the read found a pool: if it did not, the pool may have been
// made again since.
func (b *book) correct(name protocol.PoolName, known protocol.UID, live protocol.Pool, there bool) {
	p := b.pool(name)
	switch {
	case !there && p.state.UID == known, there && live.UID != p.state.UID && newer(live.Revision, p.state.Revision):
		p.state.Open = false // until the watch has told what has come of it
	case there && live.UID == p.state.UID && newer(live.Revision, p.state.Revision):
		live.Edited = live.Edited || p.state.Edited // Shape lacks what is withheld since
		p.state.Pool, p.ahead = live, true          // the rest comes with the watch
		p.settleAll()
	}
}

// dropPool tells that the pool of that name and UID is gone.
func (b *book) dropPool(name protocol.PoolName, uid protocol.UID) {
	p := b.pools[name]
	if p == nil || p.state.UID != uid {
		return
	}
	// The revision stays: what was seen before the pool went is no news.
	p.state = PoolState{Pool: protocol.Pool{Meta: protocol.Meta{Name: string(name), Revision: p.state.Revision}}}
	p.ahead = false
	p.settleAll() // closes every block
	p.stocks = newStocks()
	clear(p.full)
	b.wake(p)
}

// begin returns the time, in the book's own count, at which a call begins.
func (b *book) begin() uint64 {
	b.tick++
	return b.tick
}

// Observe takes over what was seen of a lease: live, by a call that began at begun, or on a watch,
// where begun is 0. It returns, without their UIDs, the grantees whose grants have changed.
func (b *book) Observe(seen protocol.Lease, begun uint64) []protocol.Grantee {
	if protocol.LeaseName(seen.Pool, seen.Block) != seen.Name {
		return nil // not a lease of ours: nothing is granted on it
	}
	p := b.pool(seen.Pool)
	l := p.leases[seen.Block]
	if l == nil {
		l = &lease{}
		p.leases[seen.Block] = l
	}
	if begun > 0 {
		l.liveAt, l.shownAt = max(l.liveAt, begun), b.now()
	} else if seen.UID == l.UID {
		l.watched = true
	}
	if seen.Revision == l.Revision || newer(l.Revision, seen.Revision) {
		return nil
	}
	old := l.Lease
	if seen.UID != old.UID {
		l.confirmed, l.leaving, l.idleSince, l.watched = false, false, time.Time{}, begun == 0
	}
	l.Lease = seen.Clone()
	changed := b.index(old, l.Lease)
	if p.settle(l) {
		b.wake(p)
	}
	b.hear(p, l, old)
	return changed
}

// forget tells that the lease of that name and UID is gone. It returns, without
// their UIDs, the grantees that have lost grants.
func (b *book) forget(name string, uid protocol.UID) []protocol.Grantee {
	p, l := b.lease(name)
	if l == nil || l.UID != uid {
		return nil
	}
	return b.drop(p, l)
}

// lease returns the lease of that name, or nil.
func (b *book) lease(name string) (*pool, *lease) {
	pn, block, err := protocol.ParseLeaseName(name)
	if err != nil || b.pools[pn] == nil {
		return nil, nil
	}
	return b.pools[pn], b.pools[pn].leases[block]
}

// drop removes l, which leaves its block to others.
func (b *book) drop(p *pool, l *lease) []protocol.Grantee {
	changed := b.index(l.Lease, protocol.Lease{})
	b.cancel(l)
	p.discard(l)
	b.wake(p)
	return changed
}

// wake has everything that waits for p tried again, in the next round.
func (b *book) wake(p *pool) {
	if !p.woken {
		p.woken = true
		b.woken = append(b.woken, p)
	}
}

// newer reports whether revision a is later than b. Both are numbers without
// leading zeros, as the API server writes them; the empty revision is earliest.
func newer(a, b protocol.Revision) bool {
	if len(a) != len(b) {
		return len(a) > len(b)
	}
	return a > b
}

// must panics on an error of a space. A space in memory has no I/O errors, so an error means that
// the book contradicts itself, and nothing may be granted from it.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("broker: the book contradicts its space: %v", err))
	}
}

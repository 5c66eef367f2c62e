package grants

import (
	"hash/fnv"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// spot is an address that a round wants to grant, and the lease that it is on.
type spot struct {
	pool  *pool
	lease *lease
	addr  netip.Addr
}

// find returns a free address for w, which by wants. It takes one of a block that the cluster
// holds; else of a block that nobody holds, which it enters as a lease to create; else one that a
// node has ceded, first of a block that the node still uses. If it returns neither an address nor a
// problem, nodes have been asked to cede some.
func (b *book) find(r *round, by *waiter, w want) (spot, Problem) {
	p := w.pool
	size := p.bits(w.family)
	if size == 0 {
		return spot{}, problem(PoolNotReady, "pool %s is not open: see its condition Ready", p.name)
	}
	if p.state.GivenAway && !w.keeps && !w.isKept(size) {
		return spot{}, problem(PoolNotReady, "pool %s was stopped, and has not been opened again yet: see its condition Ready", p.name)
	}
	if w.addr.IsValid() {
		return b.findNamed(r, by, w, size)
	}
	if key := w.key(); !r.exhausted[key] {
		if s, bad := w.free(size, b.age(r.now)); s.lease != nil || bad.Reason != NoProblem {
			return s, bad
		}
		r.exhausted[key] = true
	}
	if !p.state.Open {
		return spot{}, problem(PoolNotReady, "pool %s is closed: see its condition Ready", p.name)
	}
	return spot{}, b.askHolders(r, by, w, size)
}

// isKept reports whether w names an address that is kept for its pod, because another IPAM gave it.
func (w want) isKept(size int) bool {
	if !w.addr.IsValid() {
		return false
	}
	l := w.pool.leases[w.pool.state.Shape.Block(w.addr, size)]
	if l == nil {
		return false
	}
	g, ok := l.GrantOf(w.addr)
	return ok && keptFor(g, w.pod)
}

// key returns the same text for all wants that the same addresses fit.
func (w want) key() string { return w.family.String() + " " + string(w.pool.name) + " " + w.search }

// free returns an address for w without asking any holder: one that rests only where there is no
// other. It returns neither an address nor a problem if there is none.
func (w want) free(size int, now time.Duration) (spot, Problem) {
	p := w.pool
	if a, ok := p.room(ofCluster, w, p.rested(ofCluster, w.family, now)); ok {
		return p.spot(a, size), Problem{}
	}
	if block, ok := p.findUnleased(w, size); ok {
		if bad := p.enter(block, false); bad.Reason != NoProblem {
			return spot{}, bad
		}
	}
	for k := range kinds {
		if a, ok := p.room(k, w, p.rested(k, w.family, now)); ok {
			return p.spot(a, size), Problem{}
		}
	}
	if !p.spares() {
		return spot{}, Problem{}
	}
	for k := range kinds {
		if a, ok := p.room(k, w, math.MaxUint64); ok {
			return p.spot(a, size), Problem{}
		}
	}
	return spot{}, Problem{}
}

// findNamed finds room for an address that is asked for by name.
func (b *book) findNamed(r *round, by *waiter, w want, size int) (spot, Problem) {
	p, block := w.pool, w.pool.state.Shape.Block(w.addr, size)
	l := p.leases[block]
	if l == nil {
		if bad := p.enter(block, w.keeps); bad.Reason != NoProblem {
			return spot{}, bad
		}
		return p.spot(w.addr, size), Problem{}
	}
	if g, ok := l.GrantOf(w.addr); ok && keptFor(g, w.pod) {
		return p.spot(w.addr, size), Problem{}
	} else if ok {
		return spot{}, w.takenProblem(l, "belongs to %v", g.To)
	}
	if l.open {
		state, err := p.stocks[l.kind].space.State(w.addr)
		must(err)
		switch state {
		case allocator.Free:
			return p.spot(w.addr, size), Problem{}
		case allocator.Taken:
			return spot{}, w.takenProblem(l, "is about to be given to somebody else")
		case allocator.Barred, allocator.NoBlock: // not ceded
		}
	}
	if !p.recallable(l) {
		return spot{}, w.takenProblem(l, "lies in a block of %v", l.Holder)
	}
	return spot{}, b.askHolder(r, by, w, l)
}

// room returns the address for w in the open blocks of a kind, of those that were never freed and
// of the first freed ones, if they have one.
func (p *pool) room(k kind, w want, freed uint64) (netip.Addr, bool) {
	a, ok, err := p.stocks[k].space.FindRested(w.family, w.view, freed)
	must(err)
	return a, ok
}

func (p *pool) spot(a netip.Addr, size int) spot {
	return spot{pool: p, lease: p.leases[p.state.Shape.Block(a, size)], addr: a}
}

// bits returns the prefix length of p's blocks; 0 where it is not decided.
func (p *pool) bits(f allocator.Family) int {
	if f == allocator.IPv4 {
		return p.state.Bits4
	}
	return p.state.Bits6
}

// enter notes a lease that is about to be created for the cluster. In a closed pool that is done
// only to keep addresses for pods of other IPAMs.
func (p *pool) enter(block netip.Prefix, keeps bool) Problem {
	if !p.state.Open && !keeps {
		return problem(PoolNotReady, "pool %s is closed: see its condition Ready", p.name)
	}
	l := &lease{Lease: protocol.Lease{
		Meta:     protocol.Meta{Name: protocol.LeaseName(p.name, block)},
		Protocol: protocol.Version, Pool: p.name, PoolUID: p.state.UID, Block: block,
		Holder: protocol.Holder{Cluster: true},
	}}
	p.leases[block] = l
	p.settle(l)
	return Problem{}
}

// reserve keeps s for the round under way.
func (s spot) reserve() {
	s.lease.reserved = append(s.lease.reserved, s.addr)
	s.pool.settle(s.lease)
}

// unreserve ends the reservation, and reports whether the address is free again. An address that
// was granted meanwhile stays taken.
func (s spot) unreserve() (freed bool) {
	s.lease.reserved = slices.DeleteFunc(s.lease.reserved, func(a netip.Addr) bool { return a == s.addr })
	if !s.lease.open { // it may be gone
		return false
	}
	return s.pool.settle(s.lease)
}

// fullMost is how many searches that have found nothing are remembered of a pool: a node may ask
// for any part of it, in a long text.
const fullMost = 256

// findUnleased finds a block with an ordinary address for w that nobody is known to hold, in an
// open pool. The search starts at a point hashed from the pool's name, away from where the nodes'
// own searches start. A search that found nothing is remembered.
func (p *pool) findUnleased(w want, size int) (netip.Prefix, bool) {
	f, v, search := w.family, w.view, w.key()
	if !p.state.Open || p.full[search] {
		return netip.Prefix{}, false
	}
	shape := p.state.Shape
	start, ok := p.cursor[f]
	if !ok {
		h := fnv.New64a()
		_, _ = h.Write([]byte("cluster/" + p.name)) // a hash takes everything
		start = shape.Spread(f, h.Sum64())
	}
	first := shape.Block(start, size).Addr()
	for from, wrapped := start, false; ; {
		block, ok := shape.NextBlock(f, size, v, from)
		if ok && (!wrapped || block.Addr().Less(first)) {
			from = netipx.PrefixLastIP(block).Next()
			if p.leases[block] == nil {
				if from.IsValid() {
					p.cursor[f] = from
				}
				return block, true
			}
			if from.IsValid() {
				continue
			}
		}
		if wrapped {
			if len(p.full) >= fullMost {
				clear(p.full)
			}
			p.full[search] = true
			return netip.Prefix{}, false
		}
		from, wrapped = lowest(f), true
	}
}

func lowest(f allocator.Family) netip.Addr {
	if f == allocator.IPv4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// shorten keeps a message readable where a view has many pieces.
func shorten(view string) string {
	const most = 5
	parts := strings.SplitN(view, ",", most+1)
	if len(parts) <= most {
		return view
	}
	return strings.Join(parts[:most], ",") + ", …"
}

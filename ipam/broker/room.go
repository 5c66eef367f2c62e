package broker

import (
	"hash/fnv"
	"net/netip"
	"strings"

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

// find returns a free address for w: in a block that the cluster holds, else in a
// block that nobody holds, which it then enters as one to be leased. Addresses
// that nodes have ceded are to come third.
func (w want) find() (spot, Problem) {
	p := w.pool
	size := p.bits(w.family)
	if size == 0 {
		return spot{}, problem(PoolNotReady, "pool %s is not open: see its condition Ready", p.name)
	}
	if w.addr.IsValid() {
		return w.findNamed(size)
	}
	if a, ok := p.room(w); ok {
		return p.spot(a, size), Problem{}
	}
	block, ok := p.unleased(w.family, size, w.view)
	if !ok {
		if w.view.IsAll() {
			return spot{}, problem(Exhausted, "pool %s has no free %v address", p.name, w.family)
		}
		return spot{}, problem(Exhausted, "pool %s has no free %v address within %s", p.name, w.family, shorten(w.view.String()))
	}
	if bad := p.enter(block); bad.Reason != NoProblem {
		return spot{}, bad
	}
	a, ok := p.room(w)
	if !ok {
		return spot{}, problem(Exhausted, "pool %s has no free %v address in block %v", p.name, w.family, block)
	}
	return p.spot(a, size), Problem{}
}

// findNamed is find for an address that is asked for by name.
func (w want) findNamed(size int) (spot, Problem) {
	p, block := w.pool, w.pool.state.Shape.Block(w.addr, size)
	l := p.leases[block]
	if l == nil {
		if bad := p.enter(block); bad.Reason != NoProblem {
			return spot{}, bad
		}
		return p.spot(w.addr, size), Problem{}
	}
	if g, ok := l.GrantOf(w.addr); ok {
		return spot{}, problem(Taken, "%v of pool %s belongs to %v", w.addr, p.name, g.To)
	}
	if !l.open {
		return spot{}, problem(Taken, "%v of pool %s lies in a block of %v", w.addr, p.name, l.Holder)
	}
	state, err := p.space.State(w.addr)
	must(err)
	if state != allocator.Free {
		return spot{}, problem(Taken, "%v of pool %s is about to be given to somebody else", w.addr, p.name)
	}
	return p.spot(w.addr, size), Problem{}
}

// room returns the address for w in the open blocks, if they have one.
func (p *pool) room(w want) (netip.Addr, bool) {
	a, ok, err := p.space.Find(w.family, w.view)
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

// enter notes a lease that is about to be created for the cluster.
func (p *pool) enter(block netip.Prefix) Problem {
	if !p.state.Open {
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
	must(s.pool.space.Take(s.addr))
	if s.lease.reserved == nil {
		s.lease.reserved = map[netip.Addr]struct{}{}
	}
	s.lease.reserved[s.addr] = struct{}{}
}

// unreserve ends that, and reports whether the address is free again. What has
// been granted meanwhile stays taken.
func (s spot) unreserve() (freed bool) {
	delete(s.lease.reserved, s.addr)
	if _, granted := s.lease.GrantOf(s.addr); granted || !s.lease.open {
		return false
	}
	must(s.pool.space.Free(s.addr))
	return true
}

// unleased returns a block of family f with an ordinary address within v that
// nobody is known to hold. It goes round from a point hashed from the pool's name,
// away from where the nodes' own searches start, and remembers when it has found
// nothing.
func (p *pool) unleased(f allocator.Family, size int, v allocator.View) (netip.Prefix, bool) {
	search := f.String() + v.String()
	if p.full[search] {
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

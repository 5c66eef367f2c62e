package grants

import (
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/ipam/rest"
)

// kind says why addresses of a lease may be granted. Addresses are taken from the
// kinds in this order; a block that nobody holds comes after the first.
type kind uint8

const (
	ofCluster  kind = iota // the cluster holds the block
	ofNode                 // a node does, and has ceded some of its addresses
	idleOfNode             // a node does, and has ceded them all
	kinds
)

// stock has the open blocks of one kind. In it an address is taken if it is granted or reserved,
// and barred if a node has not ceded it.
type stock struct {
	table allocator.Table
	space allocator.Space
	// rests are which of the addresses that the space has freed have rested, by family.
	rests map[allocator.Family]*rest.Notes
}

func newStocks() (stocks [kinds]stock) {
	for k := range stocks {
		table := allocator.NewMem()
		stocks[k] = stock{table, allocator.NewSpace(table, nil), map[allocator.Family]*rest.Notes{allocator.IPv4: {}, allocator.IPv6: {}}}
	}
	return stocks
}

// unready returns why nothing of p can be granted, or no problem. keeps says that the grant keeps
// an address for a pod of another IPAM: that can be done before the pool is opened.
func (p *pool) unready(keeps bool) Problem {
	bad := Problem{}
	switch {
	case p.state.Deleting:
		bad = problem(PoolNotReady, "pool %s is being deleted", p.name)
		bad.Lasting = true
	case p.state.Shape == nil:
		bad = problem(PoolNotReady, "pool %s is faulty: %s", p.name, p.state.Fault)
		bad.Lasting = true
	case p.state.Restored:
		bad = problem(PoolNotReady, "pool %s is closed, because the API server's data went back in time: see its condition Ready", p.name)
	case keeps:
	case p.state.Unopened:
		bad = problem(PoolNotReady, "pool %s has not been opened yet: see its condition Ready", p.name)
	case p.state.Edited: // Shape has what the edit added, which pods of another IPAM may have
		bad = problem(PoolNotReady, "pool %s was edited, and the controller has not accepted it yet", p.name)
	case p.state.Stopped:
		bad = problem(PoolNotReady, "pool %s gives no addresses: its spec.allocation is Stopped", p.name)
	}
	return bad
}

// ofPool reports whether l is a lease of p as p is now, and one that may be
// written.
func (p *pool) ofPool(l *lease) bool {
	return l.Protocol <= protocol.Version && !l.Deleting && !l.leaving &&
		p.state.UID != "" && l.PoolUID == p.state.UID && p.state.BlockBits(l.Block.Addr()) == l.Block.Bits()
}

// usable reports whether addresses of l may be granted if the pool is ready, and of which kind its
// block is.
func (p *pool) usable(l *lease) (kind, bool) {
	switch {
	case !p.ofPool(l):
		return 0, false
	case l.Holder.Cluster:
		return ofCluster, true
	case cededWhole(&l.Lease):
		return idleOfNode, true
	default:
		return ofNode, len(l.Ceded) > 0
	}
}

// settle brings the stocks up to date with l: whether its block is open, and which of its addresses
// are taken and barred. It reports whether an address has become free.
func (p *pool) settle(l *lease) (freed bool) {
	k, ok := p.usable(l)
	if l.open && (!ok || k != l.kind) {
		p.close(l)
	}
	if !ok {
		return false
	}
	opened := !l.open
	if opened {
		must(p.stocks[k].space.Open(l.Block))
		l.open, l.kind = true, k
	}
	taken := l.takenNow()
	return p.mark(l, taken, l.barredNow(taken)) || opened
}

// settleAll settles every lease. It closes blocks first: a block of an old size may overlap one of
// the new size that is to be opened.
func (p *pool) settleAll() {
	for _, l := range p.leases {
		if k, ok := p.usable(l); l.open && (!ok || k != l.kind) {
			p.close(l)
		}
	}
	for _, l := range p.leases {
		p.settle(l)
	}
}

func (p *pool) close(l *lease) {
	if !l.open {
		return
	}
	p.mark(l, nil, l.barred)
	must(p.stocks[l.kind].space.Close(l.Block))
	l.open, l.barred = false, nil
}

// mark sets which addresses of l are taken and barred in its stock. l must be open. It reports
// whether an address has become free.
func (p *pool) mark(l *lease, taken, barred []netip.Addr) (freed bool) {
	space := p.stocks[l.kind].space
	for _, a := range l.barred {
		if !has(barred, a) {
			must(space.Bar(a, false))
			freed = freed || !has(taken, a)
		}
	}
	for _, a := range l.taken {
		if !has(taken, a) {
			must(space.Free(a))
			freed = freed || !has(barred, a)
		}
	}
	for _, a := range taken {
		if !has(l.taken, a) {
			must(space.Take(a))
		}
	}
	for _, a := range barred {
		if !has(l.barred, a) {
			must(space.Bar(a, true))
		}
	}
	l.taken, l.barred = taken, barred
	return freed
}

// takenNow returns, sorted, the addresses of l's block that are granted or reserved. Grants that a
// person wrote by hand may name an address twice, or one of another block.
func (l *lease) takenNow() []netip.Addr {
	taken := make([]netip.Addr, 0, len(l.Grants)+len(l.reserved))
	for _, g := range l.Grants {
		if l.Block.Contains(g.Addr) {
			taken = append(taken, g.Addr)
		}
	}
	return sorted(append(taken, l.reserved...))
}

// barredNow returns, sorted, the addresses of l's block that are neither taken nor
// the cluster's to give.
func (l *lease) barredNow(taken []netip.Addr) []netip.Addr {
	if l.Holder.Cluster {
		return nil
	}
	ceded := sorted(slices.Clone(l.Ceded))
	var barred []netip.Addr
	for a, last := l.Block.Addr(), netipx.PrefixLastIP(l.Block); ; a = a.Next() {
		if !has(ceded, a) && !has(taken, a) {
			barred = append(barred, a)
		}
		if a == last {
			return barred
		}
	}
}

func sorted(addrs []netip.Addr) []netip.Addr {
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}

// has reports whether a is one of addrs, which are sorted.
func has(addrs []netip.Addr, a netip.Addr) bool {
	_, found := slices.BinarySearchFunc(addrs, a, netip.Addr.Compare)
	return found
}

// discard removes l as if it had never been there. Unlike drop it has no ask tried again, for
// nothing has changed. But it forgets that searches found every block leased: they counted l.
func (p *pool) discard(l *lease) {
	p.close(l)
	delete(p.leases, l.Block)
	clear(p.full)
}

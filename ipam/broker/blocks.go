package broker

import (
	"net/netip"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// unready returns why nothing of p can be granted, or nothing.
func (p *pool) unready() string {
	switch {
	case p.state.Deleting:
		return "is being deleted"
	case p.state.Shape == nil:
		return "is faulty: " + p.state.Fault
	case p.state.Restored:
		return "is closed, because the API server's data went back in time: see its condition Ready"
	default:
		return ""
	}
}

// usable reports whether addresses of l may be granted, as far as l itself goes.
func (p *pool) usable(l *lease) bool {
	return l.Holder.Cluster && l.Protocol <= protocol.Version && !l.Deleting && !l.leaving &&
		p.state.UID != "" && l.PoolUID == p.state.UID && p.state.BlockBits(l.Block.Addr()) == l.Block.Bits()
}

// settle opens or closes l's block as it should be.
func (p *pool) settle(l *lease) {
	if p.usable(l) {
		p.open(l)
		return
	}
	p.close(l)
}

// settleAll settles every lease. What is to be closed comes first: blocks of an
// old size may lie where blocks of the new one are to be opened.
func (p *pool) settleAll() {
	for _, l := range p.leases {
		if !p.usable(l) {
			p.close(l)
		}
	}
	for _, l := range p.leases {
		p.settle(l)
	}
}

func (p *pool) open(l *lease) {
	if l.open {
		return
	}
	must(p.space.Open(l.Block))
	l.open = true
	for a := range l.takenBy(l.Grants) {
		must(p.space.Take(a))
	}
}

func (p *pool) close(l *lease) {
	if !l.open {
		return
	}
	for a := range l.takenBy(l.Grants) {
		must(p.space.Free(a))
	}
	must(p.space.Close(l.Block))
	l.open = false
}

// retake makes the space agree with l, whose grants were old before.
func (p *pool) retake(l *lease, old []protocol.Grant) {
	was, is := l.takenBy(old), l.takenBy(l.Grants)
	for a := range was {
		if _, ok := is[a]; !ok {
			must(p.space.Free(a))
		}
	}
	for a := range is {
		if _, ok := was[a]; !ok {
			must(p.space.Take(a))
		}
	}
}

// takenBy returns the addresses of l's block that grants or reservations take.
// What a person wrote by hand may name an address twice, or one of another block.
func (l *lease) takenBy(grants []protocol.Grant) map[netip.Addr]struct{} {
	taken := make(map[netip.Addr]struct{}, len(grants)+len(l.reserved))
	for _, g := range grants {
		if l.Block.Contains(g.Addr) {
			taken[g.Addr] = struct{}{}
		}
	}
	for a := range l.reserved {
		taken[a] = struct{}{}
	}
	return taken
}

// discard removes l as if it had never been there. Unlike drop it has nothing
// tried again: nothing has changed.
func (p *pool) discard(l *lease) {
	p.close(l)
	delete(p.leases, l.Block)
}

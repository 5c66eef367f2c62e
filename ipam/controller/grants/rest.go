package grants

import (
	"math"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
)

// spares reports whether freed addresses of p rest: while addresses are scarce they do not.
func (p *pool) spares() bool {
	return p.state.ReuseAfter > 0 && p.state.Open && !p.state.Deleting && !p.state.scarce()
}

// noteFreed notes how far the stocks have come in the order of what they have freed. It is called
// at every sweep.
func (p *pool) noteFreed(now time.Duration) {
	if p.state.ReuseAfter <= 0 {
		return
	}
	for _, s := range p.stocks {
		for f, notes := range s.rests {
			freed, err := s.space.Freed(f)
			must(err)
			notes.Note(freed, now, p.state.ReuseAfter)
		}
	}
}

// rested returns how many of the addresses of a kind that were freed first may be granted while
// others rest: all, where none has to.
func (p *pool) rested(k kind, f allocator.Family, now time.Duration) uint64 {
	if !p.spares() {
		return math.MaxUint64
	}
	return p.stocks[k].rests[f].Rested(now, p.state.ReuseAfter)
}

// resting reports whether an address of l's block rests. Of whoever leases the block next nobody
// knows that it does.
func (p *pool) resting(l *lease, now time.Duration) bool {
	if !l.open || !p.spares() {
		return false
	}
	n, err := p.stocks[l.kind].space.Resting(l.Block, p.rested(l.kind, allocator.FamilyOf(l.Block.Addr()), now))
	must(err)
	return n > 0
}

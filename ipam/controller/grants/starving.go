package grants

import "github.com/tenure-ipam/tenure/ipam/protocol"

// starve notes the pools in which w has found no address although every holder was asked.
func (b *book) starve(w *waiter, in []*pool) {
	for _, p := range w.starves {
		p.starving--
		b.noteStarving(p)
	}
	w.starves = in
	for _, p := range in {
		p.starving++
		b.noteStarving(p)
	}
}

// noteStarving notes that p may have begun or ceased to starve.
func (b *book) noteStarving(p *pool) {
	if !p.starvingChanged {
		p.starvingChanged = true
		b.starvingChanged = append(b.starvingChanged, p)
	}
}

// takeChanged returns the pools whose Starving has changed since takeChanged was last called.
func (b *book) takeChanged() []protocol.PoolName {
	var names []protocol.PoolName
	for _, p := range b.starvingChanged {
		p.starvingChanged = false
		if now := p.starving > 0; now != p.announced {
			p.announced = now
			names = append(names, p.name)
		}
	}
	b.starvingChanged = b.starvingChanged[:0]
	return names
}

package grants

import (
	"maps"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// starving is how many asks have found no address of a pool within a view.
type starving struct {
	want want // one of them
	asks int
}

// starve notes for what w has found no address although every holder was asked.
func (b *book) starve(w *waiter, of []want) {
	for _, was := range w.starves {
		p, key := was.pool, was.key()
		if s := p.starving[key]; s.asks > 1 {
			s.asks--
			p.starving[key] = s
		} else {
			delete(p.starving, key)
		}
		b.noteStarving(p)
	}
	w.starves = of
	for _, now := range of {
		p, key := now.pool, now.key()
		if p.starving == nil {
			p.starving = map[string]starving{}
		}
		p.starving[key] = starving{now, p.starving[key].asks + 1}
		b.noteStarving(p)
	}
}

// noteStarving notes that somebody may have begun or ceased to starve in p.
func (b *book) noteStarving(p *pool) {
	if !p.starvingChanged {
		p.starvingChanged = true
		b.starvingChanged = append(b.starvingChanged, p)
	}
}

// takeChanged returns the pools of which other views starve than when takeChanged was last called.
func (b *book) takeChanged() []protocol.PoolName {
	var names []protocol.PoolName
	for _, p := range b.starvingChanged {
		p.starvingChanged = false
		if now := strings.Join(slices.Sorted(maps.Keys(p.starving)), ";"); now != p.announced {
			p.announced = now
			names = append(names, p.name)
		}
	}
	b.starvingChanged = b.starvingChanged[:0]
	return names
}

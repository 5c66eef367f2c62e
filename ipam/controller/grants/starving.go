package grants

import "github.com/tenure-ipam/tenure/ipam/protocol"

// starve notes in which pools w has found nothing, after every holder was asked.
func (b *Book) starve(w *waiter, in []*pool) {
	for _, p := range w.starves {
		p.starving--
		b.touch(p)
	}
	w.starves = in
	for _, p := range in {
		p.starving++
		b.touch(p)
	}
}

func (b *Book) touch(p *pool) {
	if !p.touched {
		p.touched = true
		b.touched = append(b.touched, p)
	}
}

// takeChanged returns the pools whose Starving has changed since takeChanged was last called.
func (b *Book) takeChanged() []protocol.PoolName {
	var names []protocol.PoolName
	for _, p := range b.touched {
		p.touched = false
		if now := p.starving > 0; now != p.announced {
			p.announced = now
			names = append(names, p.name)
		}
	}
	b.touched = b.touched[:0]
	return names
}

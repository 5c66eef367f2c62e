package grants

import (
	"cmp"
	"slices"
	"time"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// search has the holders to ask for addresses of a family and a view. It is made once in a round.
type search struct {
	asks  int      // how many asks found nothing in this round
	under int      // recalls under way
	left  []*lease // whose holders are still to be asked, the most promising first
	again time.Time
}

// unaskedFor is how long an ask of a pool that has no block left waits before a holder is asked.
// Holders learn that the pool is exhausted, and cede what is free without being asked.
const unaskedFor = time.Second

// searchesMost is how many searches for holders a round makes for one node's requests. A search
// takes a step for every lease of the pool, and a node may write any number of requests.
const searchesMost = 16

// allLeased reports whether every block of a family is leased.
func (p *pool) allLeased(f allocator.Family, size int) bool {
	_, left := p.findUnleased(want{pool: p, family: f, search: allocator.View{}.String()}, size)
	return !left
}

// askHolders asks holders to cede what w wants for by, until enough recalls are under way. If there
// is no holder left to ask, the pool is exhausted.
func (b *book) askHolders(r *round, by *waiter, w want, size int) Problem {
	if until := by.came.Add(unaskedFor); r.now.Before(until) && w.pool.allLeased(w.family, size) {
		w.pool.askAgain = earlier(w.pool.askAgain, until)
		return Problem{}
	}
	s := r.searches[w.key()]
	if s == nil {
		if !b.hasTurn(r, by.ask.Pod.Node) {
			w.pool.askAgain = earlier(w.pool.askAgain, r.now.Add(answerTimeout))
			return Problem{}
		}
		s = b.holdersFor(w, size, r.now)
		r.searches[w.key()] = s
	}
	s.asks++
	most := min(eachAsks*s.asks, recallsMost)
	for s.under < most && len(s.left) > 0 {
		l := s.left[0]
		s.left = s.left[1:]
		if l.asked.under == nil {
			b.recall(r, w.pool, l, w.view)
		}
		s.under++
	}
	if s.under > 0 {
		return Problem{}
	}
	w.pool.askAgain = earlier(w.pool.askAgain, s.again)
	if w.view.IsAll() {
		return problem(Exhausted, "pool %s has no free %v address", w.pool.name, w.family)
	}
	return problem(Exhausted, "pool %s has no free %v address within %s", w.pool.name, w.family, shorten(w.view.String()))
}

// hasTurn reports whether this round searches holders for one more view of a node's requests. The
// other views have their turn in one of the next rounds.
func (b *book) hasTurn(r *round, node protocol.NodeName) bool {
	if r.wants[node] <= searchesMost || node == "" { // of claims, definitions say which views there are
		return true
	}
	nth := r.views[node]
	r.views[node]++
	return nth >= b.turns[node] && nth < b.turns[node]+searchesMost
}

// noteTurns notes, for each node that has more views than one round may search for, with which view
// the next round begins.
func (b *book) noteTurns(r *round) {
	for node, n := range r.views {
		if next := b.turns[node] + searchesMost; next < n {
			b.turns[node] = next
		} else {
			delete(b.turns, node)
		}
	}
	if len(b.queue.asks) == 0 {
		clear(b.turns)
	}
}

// holdersFor returns the leases whose holders may be asked for w: first those that have published
// free addresses, then those that were asked longest ago. A node's second lease comes after the
// first lease of every node.
func (b *book) holdersFor(w want, size int, now time.Time) *search {
	s := &search{}
	for _, l := range w.pool.leases {
		if !w.pool.recallable(l) || !w.gives(l, size) {
			continue
		}
		h := b.holders[l.Holder.Node]
		switch {
		case l.asked.under != nil:
			s.under++
		case now.Before(l.asked.backoffUntil(w.search)):
			s.again = earlier(s.again, l.asked.backoffUntil(w.search))
		case h != nil && h.silent && now.Before(h.again):
			s.again = earlier(s.again, h.again)
		default:
			s.left = append(s.left, l)
		}
	}
	slices.SortFunc(s.left, func(x, y *lease) int {
		return cmp.Or(
			-cmp.Compare(min(x.Published.Free, 1), min(y.Published.Free, 1)),
			x.asked.last.Compare(y.asked.last),
			x.Block.Addr().Compare(y.Block.Addr()),
		)
	})
	seen, nth := map[protocol.NodeName]int{}, map[*lease]int{}
	for _, l := range s.left {
		nth[l] = seen[l.Holder.Node]
		seen[l.Holder.Node]++
	}
	slices.SortStableFunc(s.left, func(x, y *lease) int { return cmp.Compare(nth[x], nth[y]) })
	return s
}

// recallable reports whether a node holds l and could cede some of it.
func (p *pool) recallable(l *lease) bool {
	return l.Holder.Node != "" && p.ofPool(l) && !cededWhole(&l.Lease)
}

// gives reports whether l has an address for w that is not ceded.
func (w want) gives(l *lease, size int) bool {
	shape := w.pool.state.Shape
	if allocator.FamilyOf(l.Block.Addr()) != w.family {
		return false
	}
	if block, ok := shape.NextBlock(w.family, size, w.view, l.Block.Addr()); !ok || block != l.Block {
		return false
	}
	if len(l.Ceded) == 0 {
		return true
	}
	for a, last := l.Block.Addr(), netipx.PrefixLastIP(l.Block); ; a = a.Next() {
		if shape.Ordinary(a) && w.view.Contains(a) && !slices.Contains(l.Ceded, a) {
			return true
		}
		if a == last {
			return false
		}
	}
}

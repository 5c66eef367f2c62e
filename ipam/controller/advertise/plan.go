package advertise

import (
	"cmp"
	"slices"
)

// most is the most that a node offers beyond what its pods have asked for. No node runs so many
// pods, and where a pool has more the numbers stay as they are.
const most = 10000

// A node is what decides how much a Node publishes of one pool.
type node struct {
	name string
	// parts are those of the pool whose addresses its pods get.
	parts []int
	// serves says that a pod may be scheduled there, and get an address.
	serves bool
	// asked is what pods that are bound there ask for. The scheduler takes it off what is
	// published.
	asked int64
	// shown is what the Node publishes, and has says that it publishes something.
	shown int64
	has   bool
	// busy says that a pod that asks was bound there a moment ago: the next may be on its way, and
	// would be turned away by the kubelet if less were published now.
	busy bool
}

// offered returns how much n offers to pods to come.
func (n node) offered() int64 {
	if !n.has {
		return 0
	}
	return max(n.shown-n.asked, 0)
}

// A change is what a Node is to publish from now on.
type change struct {
	node   string
	number int64
	gone   bool // nothing is published
}

// planned is what is to be done.
type planned struct {
	// changes come in the order in which they matter.
	changes []change
	// lowers says that some of them take from what a node offers. Others may be offered it once
	// the scheduler has seen that.
	lowers bool
	// waits says that more would be taken from nodes that are busy.
	waits bool
}

// add has p do what o says as well.
func (p *planned) add(o planned) {
	p.changes = append(p.changes, o.changes...)
	p.lowers, p.waits = p.lowers || o.lowers, p.waits || o.waits
}

// plan decides what nodes publish, where free addresses are free to all of them: each what its pods
// have asked for and its share of what is free. The shares sum to what is free.
//
//	free=14 asked=0,0 shown=-,-  ->  7, 7
//	free=7  asked=5,2 shown=7,7  ->  7, 6   2 and 5 are offered, 3 and 4 are right
//	free=7  asked=5,2 shown=7,6  ->  8, 6   and now 3 and 4 are
//
// Every write costs, so a node keeps its number while that is within a tenth of what is right, and
// nobody else needs what it has too much. What is taken from one node is not given to another in
// the same plan, nor where settled is false: the scheduler may not have seen yet that it was taken,
// and could give it away twice.
func plan(free int64, nodes []node, settled bool) planned {
	var p planned
	serving := make([]*node, 0, len(nodes))
	for i := range nodes {
		if n := &nodes[i]; n.serves {
			serving = append(serving, n)
		} else {
			p.leave(*n)
		}
	}
	s := share(max(free, 0), serving)
	p.take(s)
	p.give(s, settled)
	return p
}

// leave decides about a node where no pod is to be scheduled: it keeps what its pods have.
func (p *planned) leave(n node) {
	switch {
	case n.has && n.asked == 0:
		p.changes = append(p.changes, change{node: n.name, gone: true})
	case n.has && n.shown != n.asked:
		p.changes = append(p.changes, change{node: n.name, number: n.asked})
	}
}

// shares are what nodes offer and what they should.
type shares struct {
	nodes []*node // who offers most comes first
	right []int64 // what each should offer
	room  int64   // what is free and nobody offers; less than 0 where more is offered than is free
}

// share divides what is free. What does not divide evenly goes to those who offer most already.
func share(free int64, nodes []*node) shares {
	slices.SortFunc(nodes, func(a, b *node) int {
		return cmp.Or(cmp.Compare(b.offered(), a.offered()), cmp.Compare(a.name, b.name))
	})
	free = min(free, most*int64(len(nodes)))
	s := shares{nodes: nodes, right: make([]int64, len(nodes)), room: free}
	for i, n := range nodes {
		left := int64(len(nodes) - i)
		s.right[i] = min((free+left-1)/left, most)
		free -= s.right[i]
		s.room -= n.offered()
	}
	return s
}

// far reports whether offered is more than a tenth off what is right. To zero and from zero always
// is.
func far(offered, right int64) bool {
	d := offered - right
	return max(d, -d)*10 > offered
}

// wanted returns how much more nodes are to offer.
func (s shares) wanted() (all int64) {
	for i, n := range s.nodes {
		if d := s.right[i] - n.offered(); d > 0 && far(n.offered(), s.right[i]) {
			all += d
		}
	}
	return all
}

// take has those who offer too much offer less, as far as that is missing elsewhere.
func (p *planned) take(s shares) {
	wanted := s.wanted()
	missing := wanted - s.room
	order := make([]int, 0, len(s.nodes))
	for i, n := range s.nodes {
		if n.offered() > s.right[i] {
			order = append(order, i)
		}
	}
	surplus := func(i int) int64 { return s.nodes[i].offered() - s.right[i] }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(surplus(b), surplus(a)) })
	for _, i := range order {
		n := s.nodes[i]
		switch {
		case missing <= 0 || wanted == 0 && !far(n.offered(), s.right[i]):
		case n.busy:
			p.waits = true
			missing -= surplus(i)
		default:
			p.lowers = true
			missing -= surplus(i)
			p.changes = append(p.changes, change{node: n.name, number: n.asked + s.right[i]})
			n.shown = n.asked + s.right[i]
		}
	}
}

// give has nodes publish what their pods have at least, and, where more may be offered, their
// shares of it, as far as there is room.
func (p *planned) give(s shares, more bool) {
	room := max(s.room, 0)
	// Who offers nothing comes first.
	for i, n := range slices.Backward(s.nodes) {
		offers := n.offered()
		if d := min(s.right[i]-offers, room); more && d > 0 && far(offers, s.right[i]) {
			offers += d
			room -= d
		}
		if number := n.asked + offers; !n.has || n.shown != number {
			p.changes = append(p.changes, change{node: n.name, number: number})
		}
	}
}

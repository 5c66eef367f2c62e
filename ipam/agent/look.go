package agent

import (
	"context"
	"math/rand/v2"
	"net/netip"

	"github.com/tenure-ipam/tenure/allocator"
)

// smallPool is how many blocks a pool has at most whose leases are listed when a
// probe has met another's. In such pools nodes often meet, and each time costs two
// calls; a list of theirs costs little more than one.
const smallPool = 1024

// small reports whether p has few blocks of family f.
func (p *knownPool) small(f allocator.Family) bool {
	return p.shape.Capacity(f)>>(f.BitLen()-p.bits(f)) <= smallPool
}

// look notes in tried which blocks of a small pool others hold, and moves the next
// probe to a place of its own: nodes that go on where they met would meet again at
// every block. A list only saves probes: without it they go on.
func (a *Agent) look(ctx context.Context, p *pool, known *knownPool, n need, tried map[netip.Prefix]bool) {
	leases, _, err := a.cl.Leases.PoolLeases(ctx, p.name)
	if err != nil {
		a.log.DebugContext(ctx, "leases of a pool not listed", "pool", p.name, "error", err)
		return
	}
	for _, l := range leases {
		tried[l.Block] = true
	}
	p.demand.mu.Lock()
	defer p.demand.mu.Unlock()
	p.demand.cursor[n.family] = position{addr: known.shape.Spread(n.family, rand.Uint64()), set: true}
}

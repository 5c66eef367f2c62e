package grants

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestSearchesOfOneNode: the requests of one node may have any number of views, and each is looked
// for in all leases. In a round few of them are, each in its turn, and those of other nodes.
func TestSearchesOfOneNode(t *testing.T) {
	now := time.Now()
	b := newBook(func() time.Time { return now })
	pool := lan(t, "lan", "10.0.0.0/24")
	pool.Bits4, pool.Revision = 26, "1"
	b.setPool(pool)
	for i := range 4 {
		block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i * 64)}), 26)
		b.Observe(protocol.Lease{
			Meta: protocol.Meta{Name: protocol.LeaseName("lan", block), UID: protocol.UID(block.String()), Revision: "2"}, Protocol: protocol.Version,
			Pool: "lan", PoolUID: pool.UID, Block: block, Holder: protocol.Holder{Node: "holder"}, Store: "s", Term: 1,
		}, 0)
	}
	asks := func(node protocol.NodeName, first, n int) {
		for i := range n {
			a := requestOf(t, fmt.Sprintf("%s-%d", node, i), "lan", fmt.Sprintf("10.0.0.%d-10.0.0.%d", first+i, first+i+1))
			a.Pod = protocol.Grantee{Kind: protocol.GranteePod, UID: "pod", Node: node}
			b.ask(a, never)
		}
	}
	asks("many", 1, 100)
	asks("few", 150, 3)
	found := map[string]bool{}
	for round := range 20 {
		now = now.Add(20 * time.Second)
		b.expire(now)
		b.wake(b.pool("lan"))
		r := b.plan(b.take(1024, now), nil, now)
		if len(r.searches) > searchesMost+4 {
			t.Fatalf("round %d looks for addresses of %d views; want %d of one node, and 4 of others", round, len(r.searches), searchesMost)
		}
		for key := range r.searches {
			found[key] = true
		}
		b.finish(r, now)
		b.ask(ask("other", "lan"), never) // a round of somebody else's comes between
		b.finish(b.plan(b.take(1024, now), nil, now), now)
	}
	if len(found) != 104 {
		t.Errorf("addresses of %d views were looked for; want all 104", len(found))
	}
	for uid := range b.queue.asks {
		b.withdraw(uid)
	}
	b.finish(b.plan(nil, nil, now), now)
	if len(b.turns) > 0 {
		t.Errorf("turns are kept of %v, and nobody asks for anything any more", b.turns)
	}
}

// TestFullSearchesAreFew: however many parts of a pool somebody asks for, few of those in which
// every block is leased are remembered.
func TestFullSearchesAreFew(t *testing.T) {
	b := newBook(time.Now)
	pool := lan(t, "lan", "10.0.0.0/16")
	pool.Bits4 = 16
	b.setPool(pool)
	p := b.pools["lan"]
	block := netip.MustParsePrefix("10.0.0.0/16")
	p.leases[block] = &lease{}
	for i := range 1000 {
		a := requestOf(t, "a", "lan", fmt.Sprintf("10.0.%d.1-10.0.%d.%d", i/200, i/200, 2+i%200)).prepare()
		wants, _ := b.expand(a)
		if _, found := p.findUnleased(wants[0], 16); found {
			t.Fatal("a block without a lease is found")
		}
	}
	if len(p.full) > fullMost {
		t.Errorf("%d searches are remembered; want %d at most", len(p.full), fullMost)
	}
}

package nodes_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// TestFreedAddressRests: in a pool with a reuseAfter an address that was freed goes to no other pod
// while the pool has blocks for the node, also after a restart of the agent; its lease is kept
// until it has rested, and goes back then.
func TestFreedAddressRests(t *testing.T) {
	const pool = "rests"
	openPool(t, pool, cidr("10.95.0.0/24")) // blocks of one address
	limit(t, pool, `{"reuseAfter":"1h"}`)
	f := fleet.New(t, cp.Config())
	f.Change = func(c *daemon.Config) { c.Agent.Idle = time.Second }
	n := f.Start(pool)
	first := onPool(pool, "c0", "net1")
	freed := mustAdd(t, n, first)[0]
	mustDel(t, n, first)
	other := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if got := mustAdd(t, n, onPool(pool, fmt.Sprintf("c%d", i), "net1"))[0]; got == freed {
				t.Errorf("pod %d got %v, which was freed a moment ago", i, got)
			}
		}
	}
	other(1, 4)
	time.Sleep(3 * time.Second) // an idle lease goes back after one
	if !held(t, pool, freed.Addr()) {
		t.Error("the lease of the address that rests has gone back")
	}
	n.Stop()
	n = f.Start(pool)
	other(4, 7)
	if !held(t, pool, freed.Addr()) {
		t.Error("the lease of the address that rests has gone back after a restart")
	}
	for i := 1; i < 7; i++ {
		mustDel(t, n, onPool(pool, fmt.Sprintf("c%d", i), "net1"))
	}
	limit(t, pool, `{"reuseAfter":"1s"}`)
	eventually(t, 30*time.Second, noLeases(t, pool))
}

// held reports whether an address's block is leased.
func held(t *testing.T, pool string, x netip.Addr) bool {
	t.Helper()
	for _, l := range leasesOf(t, pool) {
		if l.Block.Contains(x) {
			return true
		}
	}
	return false
}

// TestRestIsNoBar: where a node has no other address, and no block is to be had, a pod is given one
// that rests.
func TestRestIsNoBar(t *testing.T) {
	const pool = "rests-not"
	openPool(t, pool, cidr("10.96.0.0/30")) // two addresses
	limit(t, pool, `{"reuseAfter":"1h"}`)
	n := fleet.New(t, cp.Config()).Start(pool)
	a, b := onPool(pool, "a", "net1"), onPool(pool, "b", "net1")
	freed := mustAdd(t, n, a)[0]
	mustAdd(t, n, b)
	mustDel(t, n, a)
	for i := range 3 {
		next := onPool(pool, fmt.Sprintf("next-%d", i), "net1")
		if got := mustAdd(t, n, next)[0]; got != freed {
			t.Errorf("got %v; want %v, the only one that is free", got, freed)
		}
		mustDel(t, n, next)
	}
}

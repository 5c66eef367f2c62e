package grants

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestLeaseThatNoWatchEnds: a call shows a lease of whose end no watch tells any more.
// The book must not take its block for leased for ever (I5).
func TestLeaseThatNoWatchEnds(t *testing.T) {
	const node = "n1"
	block := netip.MustParsePrefix("10.0.0.0/32")
	name := protocol.LeaseName("lan", block)
	tests := []struct {
		name string
		show func(t *testing.T, r rig, pool PoolState)
	}{
		{"the answer comes after the news that it is gone", func(t *testing.T, r rig, pool PoolState) {
			r.server.hold(pool, block, node)
			r.server.mu.Lock()
			r.server.slow = 2 * time.Second
			r.server.mu.Unlock()
			time.AfterFunc(time.Second, func() { r.server.unhold(pool, block, node) })
			if _, ok, err := r.ReadLease(t.Context(), name); !ok || err != nil {
				t.Fatalf("read: there %v, %v", ok, err)
			}
		}},
		{"it came and went while the watch was away", func(t *testing.T, r rig, pool PoolState) {
			r.server.mu.Lock()
			watchers := r.server.watchers
			r.server.watchers = nil
			r.server.mu.Unlock()
			r.server.hold(pool, block, node)
			if _, ok, err := r.ReadLease(t.Context(), name); !ok || err != nil {
				t.Fatalf("read: there %v, %v", ok, err)
			}
			r.server.unhold(pool, block, node)
			r.server.mu.Lock()
			r.server.watchers = watchers
			r.server.mu.Unlock()
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := calm()
				r := newRig(t, s)
				pool := lan(t, "lan", "10.0.0.0/32")
				s.setPool(pool)
				time.Sleep(time.Second)
				tt.show(t, r, pool)
				s.mu.Lock()
				s.slow = 0
				s.mu.Unlock()
				r.Ask(ask("a", "lan"))
				time.Sleep(unwatchedFor + 3*time.Second)
				if got := r.Ask(ask("a", "lan")); len(got.Granted) != 1 {
					t.Errorf("granted %q, problem %q; want the pool's one address", addrs(got), got.Problem.Message)
				}
			})
		})
	}
}

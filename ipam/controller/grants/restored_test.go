package grants

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestWithheldBeforeThePoolIsClosed (I1): of a pool that is about to be closed, because the
// API server's data went back in time, nothing is granted any more, although it is open: a
// lease that the cluster has by these data may be one that a node waits for. A write that only
// frees is made.
func TestWithheldBeforeThePoolIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calm()
		var restored atomic.Value
		restored.Store("no")
		r := newRig(t, s, func(c *Config) {
			c.Restored = func(_ context.Context, pools ...protocol.PoolName) (bool, error) {
				if restored.Load() == "unknown" {
					return false, errors.New("no answer")
				}
				return restored.Load() == "yes" && pools[0] == "lan", nil
			}
		})
		s.setPool(lan(t, "lan", "10.0.0.0/24"))
		s.setPool(lan(t, "other", "10.1.0.0/24"))
		before := ask("before", "lan")
		if got := r.settle(before); len(got.Granted) != 1 {
			t.Fatalf("granted %q, problem %+v; want one address", addrs(got), got.Problem)
		}
		leases := s.count()
		for _, tt := range []struct {
			now string
			why Reason
		}{{"unknown", Failed}, {"yes", PoolNotReady}} {
			restored.Store(tt.now)
			time.Sleep(10 * time.Second)
			if got := r.settle(ask("a", "lan")); len(got.Granted) > 0 || got.Problem.Reason != tt.why {
				t.Errorf("whether it was restored: %s: granted %q, problem %+v; want %v", tt.now, addrs(got), got.Problem, tt.why)
			}
		}
		if n := s.count(); n != leases {
			t.Errorf("%d leases; want %d as before", n, leases)
		}
		if got := r.settle(ask("b", "other")); len(got.Granted) != 1 {
			t.Errorf("of another pool: granted %q, problem %+v; want one address", addrs(got), got.Problem)
		}
		r.free(t, r.Held(before.To.UID))
		if got := r.Held(before.To.UID); len(got) > 0 {
			t.Errorf("not freed: %+v", got)
		}
		restored.Store("no")
		time.Sleep(time.Minute)
		if got := r.settle(ask("a", "lan")); len(got.Granted) != 1 {
			t.Errorf("afterwards: granted %q, problem %+v; want one address", addrs(got), got.Problem)
		}
	})
}

package grants

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestStartedAgain (I1): of a pool that was stopped nothing free is granted before it is open
// again, not even of the leases on which this broker has granted before: another IPAM may have
// given it. Who has an address keeps it, also when a broker begins anew. Addresses of pods of
// another IPAM are kept, and what is kept for a pod the pod gets.
func TestStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calm()
		r := newRig(t, s)
		pool := lan(t, "lan", "10.0.0.0/24")
		pool.Bits4, pool.Epoch = 28, "1"
		set := func(change func()) {
			change()
			pool.Generation++
			pool.Pool.Generation = pool.Generation
			s.setPool(pool)
			time.Sleep(time.Second) // until the watch shows it
		}
		set(func() {})
		has := r.settle(ask("c1", "lan"))
		if len(has.Granted) != 1 {
			t.Fatalf("open: c1 gets %+v", has)
		}
		waits := func(when string) {
			t.Helper()
			got := r.settle(ask("c2", "lan"))
			if len(got.Granted) > 0 || got.Problem.Reason != PoolNotReady || !strings.Contains(got.Problem.Message, "stopped") && !strings.Contains(got.Problem.Message, "Stopped") {
				t.Errorf("%s: c2 gets %q, %+v; want that the pool was stopped", when, addrs(got), got.Problem)
			}
		}
		set(func() { pool.Open, pool.Stopped, pool.GivenAway = false, true, true })
		waits("stopped")
		set(func() { pool.Stopped = false })
		waits("started again")

		kept := protocol.Grantee{Kind: protocol.GranteePod, UID: "u", Namespace: "ns", Name: "p", Node: "n1"}
		one := []Source{{Pool: "lan", Addr: has.Granted[0].Addr.Next(), Families: []allocator.Family{allocator.IPv4}}}
		if got := r.settle(Ask{To: kept, From: one}); len(got.Granted) != 1 {
			t.Errorf("what a pod has of another IPAM is not kept: %+v", got.Problem)
		}
		request := Ask{To: protocol.Grantee{Kind: protocol.GranteeSubLease, UID: "u-q", Name: "q"}, From: one, Pod: kept}
		if got := r.settle(request); len(got.Granted) != 1 {
			t.Errorf("the pod does not get what is kept for it: %+v", got.Problem)
		}
		anew := newRig(t, s)
		set(func() {})
		named := ask("c1", "lan")
		named.Exactly = []netip.Addr{has.Granted[0].Addr}
		for _, a := range []Ask{ask("c1", "lan"), named} {
			if got := anew.settle(a); addrs(got) != addrs(has) {
				t.Errorf("anew, exactly %v: c1 has %q, %+v; want what it had, %q", a.Exactly, addrs(got), got.Problem, addrs(has))
			}
		}
		set(func() { pool.Open, pool.GivenAway = true, false })
		if got := r.settle(ask("c2", "lan")); len(got.Granted) != 1 {
			t.Errorf("open again: c2 gets nothing: %+v", got.Problem)
		}
	})
}

package grants

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// TestGrantsLetAddressesRest: an address that was freed goes to nobody else within the pool's
// reuseAfter while blocks are left that nobody holds, and its lease is kept as long. Where nothing
// else is free it is granted at once.
func TestGrantsLetAddressesRest(t *testing.T) {
	for _, reuseAfter := range []time.Duration{0, 10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s := calm()
			r := newRig(t, s)
			pool := lan(t, "lan", "10.0.0.0/29")
			pool.Bits4, pool.ReuseAfter = 32, reuseAfter
			s.setPool(pool)
			time.Sleep(time.Second)
			granted := func(name string) netip.Addr {
				t.Helper()
				r.Ask(ask(name, "lan"))
				time.Sleep(time.Second)
				got := r.Ask(ask(name, "lan"))
				if len(got.Granted) != 1 {
					t.Fatalf("%s is granted %q, problem %q; want one address", name, addrs(got), got.Problem.Message)
				}
				return got.Granted[0].Addr
			}
			free := func(name string) {
				t.Helper()
				if err := r.Drop(t.Context(), r.Held(ask(name, "lan").To.UID)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second) // a sweep
			}
			leases := func() int {
				s.mu.Lock()
				defer s.mu.Unlock()
				return len(s.leases)
			}
			first := granted("a")
			free("a")
			if again := granted("b") == first; again != (reuseAfter == 0) {
				t.Errorf("reuseAfter %v: the address is granted again at once: %v", reuseAfter, again)
			}
			for _, name := range []string{"c", "d", "e", "f"} { // five of the six addresses in all
				granted(name)
			}
			granted("g")
			if reuseAfter == 0 {
				return
			}
			if got := r.Ask(ask("g", "lan")).Granted[0].Addr; got != first {
				t.Errorf("the last is granted %v; want %v, the one that is left", got, first)
			}
			free("g")
			time.Sleep(5 * time.Minute)
			if n := leases(); n != 6 {
				t.Errorf("%d leases five minutes after the address was freed; want 6", n)
			}
			time.Sleep(7 * time.Minute)
			if n := leases(); n != 5 {
				t.Errorf("%d leases twelve minutes after the address was freed; want 5", n)
			}
		})
	}
}

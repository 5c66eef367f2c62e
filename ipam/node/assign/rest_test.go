package assign

import (
	"errors"
	"testing"

	"github.com/tenure-ipam/tenure/allocator"
)

// TestAddressesRest: what was freed after what has rested is passed over, and said to rest; where
// the ADD says that it will do, it is given, that which was freed longest ago first.
func TestAddressesRest(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/30") // one address beside the gateway
	q := openPool(t, st, "q", "10.1.0.0/29") // five
	s := p.any(allocator.IPv4)
	s.Rested = new(uint64)
	mustHold(t, st, demand("c1", s)) // it was never freed
	noRoom := func(container string) NoRoomError {
		t.Helper()
		_, err := hold(st, demand(container, s))
		full, ok := errors.AsType[*NoRoomError](err)
		if !ok {
			t.Fatalf("%v; want NoRoomError", err)
		}
		return *full
	}
	if full := noRoom("c2"); full.Rests {
		t.Error("without a free address it is said that one rests")
	}
	release(t, st, key("c1", "net1"))
	if full := noRoom("c2"); !full.Rests {
		t.Error("it is not said that one rests")
	}
	unrested := demand("c2", s)
	unrested.Unrested = true
	if got := addrs(mustHold(t, st, unrested)); got != "10.0.0.2/30" {
		t.Errorf("got %s; want the one that rests", got)
	}
	release(t, st, key("c2", "net1"))
	s.Rested = new(uint64(2))
	if got := addrs(mustHold(t, st, demand("c3", s))); got != "10.0.0.2/30" {
		t.Errorf("got %s; want the one that has rested", got)
	}

	s = q.any(allocator.IPv4)
	for _, c := range []string{"a", "b", "c", "d", "e"} {
		mustHold(t, st, demand(c, s))
	}
	release(t, st, key("c", "net1"))
	release(t, st, key("a", "net1"))
	s.Rested = new(uint64(1))
	if got := addrs(mustHold(t, st, demand("f", s))); got != "10.1.0.4/29" {
		t.Errorf("got %s; want the one that has rested", got)
	}
	if full := noRoom("g"); !full.Rests {
		t.Error("it is not said that one rests")
	}
	exact := q.exact("10.1.0.2")
	exact.Rested = new(uint64)
	if got := addrs(mustHold(t, st, demand("g", exact))); got != "10.1.0.2/29" {
		t.Errorf("got %s; want the one that is asked for by name, though it rests", got)
	}
}

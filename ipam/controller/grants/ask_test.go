package grants

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestMatchByView: of what a claim has each address is for the source in whose view it lies,
// in whatever order it is held. What lies in no view any more is kept, for who is left.
func TestMatchByView(t *testing.T) {
	shape, err := allocator.NewShape([]allocator.Range{{Prefix: netip.MustParsePrefix("10.0.0.0/24")}})
	if err != nil {
		t.Fatal(err)
	}
	var wants []want
	for i, view := range []string{"10.0.0.1-10.0.0.99", "10.0.0.100-10.0.0.199"} {
		var b netipx.IPSetBuilder
		b.AddRange(netipx.MustParseIPRange(view))
		set, err := b.IPSet()
		if err != nil {
			t.Fatal(err)
		}
		wants = append(wants, want{source: i, pool: &pool{name: "p", state: PoolState{Shape: shape}}, family: allocator.IPv4, view: allocator.NewView(set)})
	}
	for _, tt := range []struct {
		name string
		held []string
		want [2]string // invalid IP: none
	}{
		{"in order", []string{"10.0.0.1", "10.0.0.100"}, [2]string{"10.0.0.1", "10.0.0.100"}},
		{"in the other order", []string{"10.0.0.100", "10.0.0.1"}, [2]string{"10.0.0.1", "10.0.0.100"}},
		{"the second's alone", []string{"10.0.0.100"}, [2]string{"invalid IP", "10.0.0.100"}},
		{"one in no view", []string{"10.0.0.200", "10.0.0.1"}, [2]string{"10.0.0.1", "10.0.0.200"}},
		{"none in a view", []string{"10.0.0.200", "10.0.0.201"}, [2]string{"10.0.0.200", "10.0.0.201"}},
		{"both in the second's", []string{"10.0.0.100", "10.0.0.101"}, [2]string{"10.0.0.101", "10.0.0.100"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var held []Held
			for _, a := range tt.held {
				addr := netip.MustParseAddr(a)
				held = append(held, Held{Pool: "p", Block: netip.PrefixFrom(addr, 32), Grant: protocol.Grant{Addr: addr}})
			}
			given, all := match(wants, held)
			if got := [2]string{given[0].Grant.Addr.String(), given[1].Grant.Addr.String()}; got != tt.want || all != (len(held) == 2) {
				t.Errorf("got %v, all: %v; want %v", got, all, tt.want)
			}
		})
	}
}

// TestRequested: an address that was asked for, and any of the other family. What waits for
// an address that another has holds up nobody, and comes true when that is given back.
func TestRequested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calm()
		r := newRig(t, s)
		s.setPool(lan(t, "lan", "10.0.0.0/24", "fd00::/64"))
		time.Sleep(time.Second)
		requested := func(name string, a ...string) Ask {
			want := ask(name, "lan")
			for _, a := range a {
				want.Requested = append(want.Requested, netip.MustParseAddr(a))
			}
			return want
		}
		for _, tt := range []struct {
			ask  Ask
			want string // what one of two addresses begins with
			why  Reason
		}{
			{requested("a", "10.0.0.20"), "10.0.0.20/24 fd00::", NoProblem},
			{requested("b", "fd00::9", "10.0.0.30"), "10.0.0.30/24 fd00::9/64", NoProblem},
			{requested("c", "10.0.0.20"), "", Taken},
			{requested("d", "10.0.0.21", "10.0.0.22"), "", Unassignable},
			{requested("e", "10.0.1.1"), "", Unassignable},
			{requested("f"), "10.0.0.", NoProblem},
		} {
			got := r.settle(tt.ask)
			if len(got.Granted) != 2 && tt.why == NoProblem || !strings.HasPrefix(addrs(got), tt.want) || got.Problem.Reason != tt.why {
				t.Errorf("%v: got %q, problem %v (%s); want %q…, problem %v", tt.ask.Requested, addrs(got), got.Problem.Reason, got.Problem.Message, tt.want, tt.why)
			}
		}
		r.free(t, r.Held("u-a"))
		if got := addrs(r.settle(requested("c", "10.0.0.20"))); !strings.HasPrefix(got, "10.0.0.20/24 ") {
			t.Errorf("when it is free: %q", got)
		}
	})
}

// TestNarrow: what a bridge takes for itself is granted to nobody of its network, also before the
// pool's status keeps it; and a family that a pool lacks is passed over for who says so.
func TestNarrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calm()
		r := newRig(t, s)
		s.setPool(lan(t, "lan", "10.0.0.0/30"))
		time.Sleep(time.Second)
		bridged := func(name string) Ask {
			want := ask(name, "lan")
			src := poolspec.Source{Pool: "lan", TakesFirst: true}
			want.From[0].Narrow = src.ViewOf
			want.From[0].Families, want.From[0].AsFar = allocator.Families(), true
			return want
		}
		if got := addrs(r.settle(bridged("a"))); got != "10.0.0.2/30" {
			t.Errorf("granted %q; want the address that the bridge does not take", got)
		}
		if got := r.settle(bridged("b")); len(got.Granted) != 0 || got.Problem.Reason == NoProblem {
			t.Errorf("granted %q, problem %v; want none", addrs(got), got.Problem.Reason)
		}
	})
}

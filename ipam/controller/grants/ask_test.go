package grants

import (
	"net/netip"
	"testing"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
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

package allocator

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"testing"
)

func TestSpread(t *testing.T) {
	tests := []struct {
		name   string
		f      Family
		ranges []Range
		blocks int // in which 256 nodes should begin, at least
		bits   int
	}{
		{"one address", IPv4, []Range{{Prefix: prefix("10.0.0.0/32")}}, 1, 32},
		{"two addresses", IPv4, []Range{{Prefix: prefix("10.0.0.0/31")}}, 2, 32},
		{"/24", IPv4, []Range{{Prefix: prefix("10.0.0.0/24")}}, 140, 32},
		{"/16", IPv4, []Range{{Prefix: prefix("10.0.0.0/16")}}, 200, 26},
		{"/0", IPv4, []Range{{Prefix: prefix("0.0.0.0/0")}}, 250, 26},
		{"start and end", IPv4, []Range{{Prefix: prefix("10.0.0.0/8"), Start: addr("10.1.2.3"), End: addr("10.1.2.12")}}, 10, 32},
		{"equal ranges", IPv4, []Range{{Prefix: prefix("10.0.0.0/28")}, {Prefix: prefix("10.0.1.0/28")}, {Prefix: prefix("10.0.2.0/28")}}, 45, 32},
		{"/64", IPv6, []Range{{Prefix: prefix("2001:db8::/64")}}, 256, 122},
		{"/32", IPv6, []Range{{Prefix: prefix("2001:db8::/32")}}, 255, 64},
		{"/0 of IPv6", IPv6, []Range{{Prefix: prefix("::/0")}}, 255, 64},
		{"the last of IPv6", IPv6, []Range{{Prefix: prefix("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00/120")}}, 140, 128},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := mustShape(t, tt.ranges...)
			began := map[netip.Prefix]bool{}
			for i := range 256 {
				h := fnv.New64a()
				fmt.Fprintf(h, "node-%d", i)
				a := s.Spread(tt.f, h.Sum64())
				if _, ok := s.Locate(a); !ok {
					t.Fatalf("Spread = %v; want an address of the pool", a)
				}
				began[s.Block(a, tt.bits)] = true
			}
			if len(began) < tt.blocks {
				t.Errorf("256 nodes begin in %d blocks; want %d or more", len(began), tt.blocks)
			}
		})
	}
	for f, want := range map[Family]netip.Addr{IPv4: addr("0.0.0.0"), IPv6: addr("::"), 0: {}} {
		if got := (*Shape)(nil).Spread(f, 1); got != want {
			t.Errorf("Spread of %v without a range = %v; want %v", f, got, want)
		}
	}
	s := mustShape(t, Range{Prefix: prefix("10.0.0.0/24")})
	if a, b := s.Spread(IPv4, 7), s.Spread(IPv4, 7); a != b {
		t.Errorf("one hash begins at %v and %v; want one place", a, b)
	}
}

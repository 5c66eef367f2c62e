package allocator

import (
	"bytes"
	"net/netip"
	"testing"

	"go4.org/netipx"
)

// TestShapeAgainstModel compares random shapes with linear scans.
func TestShapeAgainstModel(t *testing.T) {
	for seed := range uint64(120) {
		c := seeded(seed)
		u := universes()[seed%6]
		compareShape(t, u, c)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// FuzzShape does the same with pools that the fuzzer makes.
func FuzzShape(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte("\x01one pool"))
	f.Add(bytes.Repeat([]byte{3, 200, 77, 1, 9}, 100))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := chooserOf(data)
		compareShape(t, universes()[c(6)], c)
	})
}

func compareShape(t *testing.T, u universe, c chooser) {
	pool := c.pool(u)
	s, err := NewShape(pool)
	if err != nil {
		t.Fatalf("NewShape(%+v) = %v; want none", pool, err)
	}
	capacity := int64(0)
	assignable, ordinary := naiveSet(u, pool)
	for i := range universeSize {
		a := u.at(i)
		if got, want := s.Ordinary(a), ordinary[i]; got != want {
			t.Errorf("Ordinary(%v) = %v; want %v, pool %+v", a, got, want, pool)
		}
		if got, want := s.Assignable(a), assignable[i]; (got == nil) != want {
			t.Errorf("Assignable(%v) = %v; want nil: %v, pool %+v", a, got, want, pool)
		}
		if assignable[i] {
			capacity++
		}
	}
	if got := s.Capacity(u.family); got != capacity {
		t.Errorf("Capacity = %d; want %d", got, capacity)
	}
	for range 20 {
		v, rr := c.view(u)
		bits := u.family.BitLen() - c(maxLog+2)
		compareNextBlock(t, u, s, ordinary, v, rr, bits, u.at(c(universeSize)))
	}
}

// compareNextBlock compares one NextBlock with a scan of all addresses.
func compareNextBlock(t *testing.T, u universe, s *Shape, ordinary [universeSize]bool, v View, rr []netipx.IPRange, bits int, from netip.Addr) {
	t.Helper()
	var want netip.Prefix
	start := netip.PrefixFrom(from, bits).Masked()
	for i := range universeSize {
		a := u.at(i)
		b := netip.PrefixFrom(a, bits).Masked()
		if b.Addr().Compare(start.Addr()) >= 0 && ordinary[i] && within(rr, a) {
			want = b
			break
		}
	}
	got, ok := s.NextBlock(u.family, bits, v, from)
	if got != want || ok != want.IsValid() {
		t.Errorf("NextBlock(%d, %v, %v) = %v, %v; want %v, pool %+v", bits, v, from, got, ok, want, s.Ranges())
	}
}

// TestNextBlockWalk: from each block to the next, every block with an ordinary
// address comes once, in order.
func TestNextBlockWalk(t *testing.T) {
	for seed := range uint64(60) {
		c := seeded(seed)
		u := universes()[seed%6]
		pool := c.pool(u)
		s := mustShape(t, pool...)
		bits := u.family.BitLen() - c(maxLog+1)
		_, ordinary := naiveSet(u, pool)
		var want []netip.Prefix
		for i := range universeSize {
			b := netip.PrefixFrom(u.at(i), bits).Masked()
			if ordinary[i] && (len(want) == 0 || want[len(want)-1] != b) {
				want = append(want, b)
			}
		}
		from := netip.Addr{}
		for _, w := range want {
			got, ok := s.NextBlock(u.family, bits, View{}, from)
			if !ok || got != w {
				t.Fatalf("seed %d: NextBlock(%d, from %v) = %v, %v; want %v", seed, bits, from, got, ok, w)
			}
			from = netipx.PrefixLastIP(got).Next()
		}
		if from.IsValid() { // the zero Addr would begin again
			if got, ok := s.NextBlock(u.family, bits, View{}, from); ok {
				t.Fatalf("seed %d: NextBlock(%d, from %v) = %v; want none", seed, bits, from, got)
			}
		}
	}
}

func TestNextBlockEdges(t *testing.T) {
	s := mustShape(t, Range{Prefix: prefix("10.0.0.0/30")}, Range{Prefix: prefix("2001:db8::/32")})
	tests := []struct {
		name string
		f    Family
		bits int
		v    View
		from string
		want string
	}{
		{"a block wider than its range", IPv4, 24, View{}, "", "10.0.0.0/24"},
		{"from inside that block", IPv4, 24, View{}, "10.0.0.200", "10.0.0.0/24"},
		{"from after it", IPv4, 24, View{}, "10.0.1.0", ""},
		{"the network address is no block", IPv4, 32, View{}, "10.0.0.0", "10.0.0.1/32"},
		{"the broadcast address is no block", IPv4, 32, View{}, "10.0.0.3", ""},
		{"from another family", IPv4, 32, View{}, "2001:db8::", "10.0.0.1/32"},
		{"the last of an IPv6 pool", IPv6, 122, View{}, "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffc0/122"},
		{"within a view", IPv6, 122, view("2001:db8:1::5"), "", "2001:db8:1::/122"},
		{"the view before from", IPv6, 122, view("2001:db8:1::5"), "2001:db8:2::", ""},
		{"the view beside the pool", IPv6, 122, view("2001:db9::/64"), "", ""},
		{"nothing", IPv6, 122, view("none"), "", ""},
		{"no such length", IPv4, 33, View{}, "", ""},
		{"no such length", IPv4, -1, View{}, "", ""},
		{"no family", 0, 0, View{}, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := s.NextBlock(tt.f, tt.bits, tt.v, addr(tt.from))
			var want netip.Prefix
			if tt.want != "" {
				want = prefix(tt.want)
			}
			if got != want || ok != want.IsValid() {
				t.Errorf("NextBlock = %v, %v; want %v", got, ok, want)
			}
		})
	}
}

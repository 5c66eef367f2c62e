package allocator

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"go4.org/netipx"
)

// Short names for tables.
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// addr returns the zero Addr for "".
func addr(s string) netip.Addr {
	if s == "" {
		return netip.Addr{}
	}
	return netip.MustParseAddr(s)
}

// spans parses "a-b", "a" and "a/n", separated by spaces.
func spans(s string) []netipx.IPRange {
	var rr []netipx.IPRange
	for x := range strings.FieldsSeq(s) {
		switch {
		case strings.Contains(x, "/"):
			rr = append(rr, netipx.RangeOfPrefix(prefix(x)))
		case strings.Contains(x, "-"):
			rr = append(rr, netipx.MustParseIPRange(x))
		default:
			rr = append(rr, netipx.IPRangeFrom(addr(x), addr(x)))
		}
	}
	return rr
}

// view parses what spans does; "" is everything and "none" is nothing.
func view(s string) View {
	if s == "" {
		return View{}
	}
	var b netipx.IPSetBuilder
	if s != "none" {
		for _, r := range spans(s) {
			b.AddRange(r)
		}
	}
	set, err := b.IPSet()
	if err != nil {
		panic(err)
	}
	return NewView(set)
}

func mustShape(t testing.TB, rr ...Range) *Shape {
	t.Helper()
	s, err := NewShape(rr)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFamilyOf(t *testing.T) {
	tests := []struct {
		addr string
		want Family
	}{
		{"10.0.0.1", IPv4},
		{"2001:db8::1", IPv6},
		{"", 0},
		{"::ffff:10.0.0.1", 0},
		{"fe80::1%eth0", 0},
	}
	for _, tt := range tests {
		if got := FamilyOf(addr(tt.addr)); got != tt.want {
			t.Errorf("FamilyOf(%q) = %v; want %v", tt.addr, got, tt.want)
		}
	}
	if got, want := fmt.Sprint(Families(), Family(0)), "[IPv4 IPv6] Family(0)"; got != want {
		t.Errorf("families print as %q; want %q", got, want)
	}
}

func TestShapeCapacity(t *testing.T) {
	tests := []struct {
		name   string
		ranges []Range
		v4, v6 int64
	}{
		{"none", nil, 0, 0},
		{"/24", []Range{{Prefix: prefix("10.0.0.0/24")}}, 254, 0},
		{"/30", []Range{{Prefix: prefix("10.0.0.0/30")}}, 2, 0},
		{"/31", []Range{{Prefix: prefix("10.0.0.0/31")}}, 2, 0},
		{"/32", []Range{{Prefix: prefix("10.0.0.0/32")}}, 1, 0},
		{"/0", []Range{{Prefix: prefix("0.0.0.0/0")}}, 1<<32 - 2, 0},
		{"/126", []Range{{Prefix: prefix("2001:db8::/126")}}, 0, 3},
		{"/127", []Range{{Prefix: prefix("2001:db8::/127")}}, 0, 2},
		{"/128", []Range{{Prefix: prefix("2001:db8::/128")}}, 0, 1},
		{"/66 is the longest that fits", []Range{{Prefix: prefix("2001:db8::/66")}}, 0, 1<<62 - 1},
		{"/65 less the anycast address just fits", []Range{{Prefix: prefix("2001:db8::/65")}}, 0, math.MaxInt64},
		{"one more does not", []Range{{Prefix: prefix("2001:db8::/64"), Start: addr("2001:db8::1"), End: addr("2001:db8::8000:0:0:0")}}, 0, math.MaxInt64},
		{"/64 does not fit", []Range{{Prefix: prefix("2001:db8::/64")}}, 0, math.MaxInt64},
		{"/32 of IPv6 does not fit", []Range{{Prefix: prefix("2001:db8::/32")}}, 0, math.MaxInt64},
		{"IPv4-mapped", []Range{{Prefix: prefix("::fffe:0:0/95")}}, 0, 1<<32 - 1},
		{"/0 of IPv6 does not fit", []Range{{Prefix: prefix("::/0")}}, 0, math.MaxInt64},
		{"a sum does not fit", []Range{{Prefix: prefix("2001:db8::/65")}, {Prefix: prefix("2001:db9::/65")}}, 0, math.MaxInt64},
		{"both families", []Range{{Prefix: prefix("2001:db8::/120")}, {Prefix: prefix("10.0.0.0/28")}}, 14, 255},
		{"start and end", []Range{{Prefix: prefix("10.0.0.0/24"), Start: addr("10.0.0.10"), End: addr("10.0.0.19")}}, 10, 0},
		{"gateway", []Range{{Prefix: prefix("10.0.0.0/24"), Gateway: addr("10.0.0.1")}}, 253, 0},
		{"gateway outside the start", []Range{{Prefix: prefix("10.0.0.0/24"), Start: addr("10.0.0.10"), Gateway: addr("10.0.0.1")}}, 245, 0},
		{"excludes", []Range{{Prefix: prefix("10.0.0.0/24"), Exclude: spans("10.0.0.0/25 10.0.0.100-10.0.0.130")}}, 124, 0},
		{"excludes beyond the CIDR", []Range{{Prefix: prefix("10.0.1.0/24"), Exclude: spans("10.0.0.0-10.0.1.9 11.0.0.1 2001:db8::/64")}}, 245, 0},
		{"everything excluded", []Range{{Prefix: prefix("10.0.0.0/24"), Exclude: spans("10.0.0.0/8")}}, 0, 0},
		{"static-only counts", []Range{{Prefix: prefix("10.0.0.0/24"), StaticOnly: spans("10.0.0.0/25")}}, 254, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := mustShape(t, tt.ranges...)
			if v4, v6 := s.Capacity(IPv4), s.Capacity(IPv6); v4 != tt.v4 || v6 != tt.v6 {
				t.Errorf("Capacity = %d IPv4, %d IPv6; want %d, %d", v4, v6, tt.v4, tt.v6)
			}
		})
	}
}

// TestShapeAddresses proves, address by address, what is ordinary, what may be
// asked for, and what is said of the rest.
func TestShapeAddresses(t *testing.T) {
	const ordinary, static = "ordinary", "static"
	pool := []Range{
		{
			Prefix: prefix("10.0.0.0/24"), Start: addr("10.0.0.0"), End: addr("10.0.0.99"), Gateway: addr("10.0.0.1"),
			Exclude: spans("10.0.0.5-10.0.0.7 10.0.0.150"), StaticOnly: spans("10.0.0.7-10.0.0.9"),
		},
		{Prefix: prefix("10.0.0.0/24"), Start: addr("10.0.0.120"), Gateway: addr("10.0.0.254")},
		{Prefix: prefix("10.0.1.0/30")},
		{Prefix: prefix("10.0.1.4/31")},
		{Prefix: prefix("10.0.1.6/32")},
		{Prefix: prefix("2001:db8::/64"), Gateway: addr("2001:db8::1")},
		{Prefix: prefix("2001:db8:1::/126")},
		{Prefix: prefix("2001:db8:1::4/127")},
		{Prefix: prefix("2001:db8:1::6/128")},
	}
	tests := []struct{ addr, want string }{
		{"10.0.0.0", "10.0.0.0 is the network address (10.0.0.0/24)"},
		{"10.0.0.1", "10.0.0.1 is a gateway (10.0.0.0/24)"},
		{"10.0.0.2", ordinary},
		{"10.0.0.5", "10.0.0.5 is excluded (10.0.0.0/24)"},
		{"10.0.0.7", "10.0.0.7 is excluded (10.0.0.0/24)"},
		{"10.0.0.8", static},
		{"10.0.0.9", static},
		{"10.0.0.10", ordinary},
		{"10.0.0.99", ordinary},
		{"10.0.0.100", "10.0.0.100 lies outside the start and end of the pool's ranges (10.0.0.0/24)"},
		{"10.0.0.119", "10.0.0.119 lies outside the start and end of the pool's ranges (10.0.0.0/24)"},
		{"10.0.0.120", ordinary},
		{"10.0.0.150", "10.0.0.150 is excluded (10.0.0.0/24)"},
		{"10.0.0.254", "10.0.0.254 is a gateway (10.0.0.0/24)"},
		{"10.0.0.255", "10.0.0.255 is the broadcast address (10.0.0.0/24)"},
		{"10.0.1.0", "10.0.1.0 is the network address (10.0.1.0/30)"},
		{"10.0.1.1", ordinary},
		{"10.0.1.2", ordinary},
		{"10.0.1.3", "10.0.1.3 is the broadcast address (10.0.1.0/30)"},
		{"10.0.1.4", ordinary},
		{"10.0.1.5", ordinary},
		{"10.0.1.6", ordinary},
		{"10.0.1.7", "10.0.1.7 lies in none of the pool's ranges"},
		{"9.255.255.255", "9.255.255.255 lies in none of the pool's ranges"},
		{"2001:db8::", "2001:db8:: is the subnet-router anycast address (2001:db8::/64)"},
		{"2001:db8::1", "2001:db8::1 is a gateway (2001:db8::/64)"},
		{"2001:db8::2", ordinary},
		{"2001:db8::ffff:ffff:ffff:ffff", ordinary},
		{"2001:db8:0:1::", "2001:db8:0:1:: lies in none of the pool's ranges"},
		{"2001:db8:1::", "2001:db8:1:: is the subnet-router anycast address (2001:db8:1::/126)"},
		{"2001:db8:1::3", ordinary},
		{"2001:db8:1::4", ordinary},
		{"2001:db8:1::5", ordinary},
		{"2001:db8:1::6", ordinary},
		{"::ffff:10.0.0.2", "::ffff:10.0.0.2 lies in none of the pool's ranges"},
		{"2001:db8::2%eth0", "2001:db8::2%eth0 lies in none of the pool's ranges"},
		{"", "invalid IP lies in none of the pool's ranges"},
	}
	s := mustShape(t, pool...)
	for _, tt := range tests {
		t.Run(tt.addr, func(t *testing.T) {
			a := addr(tt.addr)
			got := static
			if err := s.Assignable(a); err != nil {
				got = err.Error()
				if refused := new(RefusedError); !errors.As(err, &refused) || refused.Addr != a {
					t.Errorf("Assignable(%v) = %#v; want a RefusedError of it", a, err)
				}
			} else if s.Ordinary(a) {
				got = ordinary
			}
			if got != tt.want {
				t.Errorf("%v: got %q; want %q", a, got, tt.want)
			}
			if tt.want != ordinary && s.Ordinary(a) {
				t.Errorf("Ordinary(%v) = true; want false", a)
			}
		})
	}
}

func TestShapeWithoutAddresses(t *testing.T) {
	for name, s := range map[string]*Shape{"nil": nil, "zero": {}} {
		t.Run(name, func(t *testing.T) {
			a := addr("10.0.0.1")
			_, located := s.Locate(a)
			_, next := s.NextBlock(IPv4, 26, View{}, a)
			if s.Ordinary(a) || s.Assignable(a) == nil || located || next ||
				s.Capacity(IPv6) != 0 || len(s.Ranges()) != 0 || len(s.Families()) != 0 {
				t.Errorf("the %s Shape has addresses", name)
			}
		})
	}
}

func TestNewShapeFaults(t *testing.T) {
	tests := []struct {
		name   string
		ranges []Range
		want   []string
	}{
		{"no prefix", []Range{{}}, []string{"ranges[0].prefix: invalid Prefix is not an IPv4 or IPv6 CIDR"}},
		{"mapped", []Range{{Prefix: prefix("::ffff:10.0.0.0/120")}}, []string{"ranges[0].prefix: ::ffff:10.0.0.0/120 is not an IPv4 or IPv6 CIDR"}},
		{"host bits", []Range{{Prefix: prefix("10.0.0.1/24")}}, []string{"ranges[0].prefix: 10.0.0.1/24 has host bits set, want 10.0.0.0/24"}},
		{"start after end", []Range{{Prefix: prefix("10.0.0.0/24"), Start: addr("10.0.0.9"), End: addr("10.0.0.8")}},
			[]string{"ranges[0].start: 10.0.0.9 comes after the end 10.0.0.8"}},
		{"outside", []Range{{Prefix: prefix("10.0.0.0/24"), Start: addr("10.0.1.9"), End: addr("2001:db8::1"), Gateway: addr("fe80::1")}},
			[]string{
				"ranges[0].start: 10.0.1.9 lies outside 10.0.0.0/24",
				"ranges[0].end: 2001:db8::1 lies outside 10.0.0.0/24",
				"ranges[0].gateway: fe80::1 is of another family than 10.0.0.0/24",
			}},
		{"zone", []Range{{Prefix: prefix("fe80::/64"), Gateway: addr("fe80::1%eth0")}},
			[]string{"ranges[0].gateway: fe80::1%eth0 is of another family than fe80::/64"}},
		{"excludes", []Range{{Prefix: prefix("10.0.0.0/24"),
			Exclude:    []netipx.IPRange{spans("10.0.0.1")[0], netipx.IPRangeFrom(addr("10.0.0.9"), addr("10.0.0.8"))},
			StaticOnly: []netipx.IPRange{{}}}},
			[]string{
				"ranges[0].exclude[1]: 10.0.0.9-10.0.0.8 is not a range of IPv4 or IPv6 addresses",
				"ranges[0].staticOnly[0]: invalid IP-invalid IP is not a range of IPv4 or IPv6 addresses",
			}},
		{"same CIDR twice", []Range{{Prefix: prefix("10.0.0.0/24")}, {Prefix: prefix("10.0.0.0/24")}},
			[]string{"ranges[1].start: 10.0.0.0-10.0.0.255 overlaps 10.0.0.0-10.0.0.255 of ranges[0]"}},
		{"one address in common", []Range{
			{Prefix: prefix("10.0.0.0/24"), Start: addr("10.0.0.50")},
			{Prefix: prefix("10.0.0.0/24"), End: addr("10.0.0.50")},
		}, []string{"ranges[0].start: 10.0.0.50-10.0.0.255 overlaps 10.0.0.0-10.0.0.50 of ranges[1]"}},
		{"two inside one", []Range{
			{Prefix: prefix("10.0.0.0/24"), Start: addr("10.0.0.20"), End: addr("10.0.0.29")},
			{Prefix: prefix("10.0.0.0/24"), Start: addr("10.0.0.10"), End: addr("10.0.0.90")},
			{Prefix: prefix("10.0.0.0/24"), Start: addr("10.0.0.80"), End: addr("10.0.0.99")},
		}, []string{
			"ranges[0].start: 10.0.0.20-10.0.0.29 overlaps 10.0.0.10-10.0.0.90 of ranges[1]",
			"ranges[2].start: 10.0.0.80-10.0.0.99 overlaps 10.0.0.10-10.0.0.90 of ranges[1]",
		}},
		{"CIDR inside CIDR", []Range{{Prefix: prefix("10.0.0.0/24"), Start: addr("10.0.0.1"), End: addr("10.0.0.2")}, {Prefix: prefix("10.0.0.0/16"), Start: addr("10.0.9.0")}},
			[]string{"ranges[0].prefix: 10.0.0.0/24 overlaps 10.0.0.0/16 of ranges[1]"}},
		{"every fault", []Range{{Prefix: prefix("10.0.0.1/24")}, {}, {Prefix: prefix("10.0.2.0/24"), Start: addr("10.0.3.0")}},
			[]string{
				"ranges[0].prefix: 10.0.0.1/24 has host bits set, want 10.0.0.0/24",
				"ranges[1].prefix: invalid Prefix is not an IPv4 or IPv6 CIDR",
				"ranges[2].start: 10.0.3.0 lies outside 10.0.2.0/24",
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := NewShape(tt.ranges)
			if err == nil || s != nil {
				t.Fatalf("NewShape = %v, %v; want nil and faults", s, err)
			}
			got := strings.Split(err.Error(), "\n")
			slices.Sort(got)
			slices.Sort(tt.want)
			if !slices.Equal(got, tt.want) {
				t.Errorf("faults:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
			if fault := new(RangeError); !errors.As(err, &fault) || fault.Field == "" {
				t.Errorf("NewShape = %#v; want RangeErrors", err)
			}
		})
	}
}

func TestShapeLocate(t *testing.T) {
	s := mustShape(t,
		Range{Prefix: prefix("10.0.1.0/24"), Start: addr("10.0.1.100")},
		Range{Prefix: prefix("10.0.1.0/24"), End: addr("10.0.1.49")},
		Range{Prefix: prefix("2001:db8::/32")},
		Range{Prefix: prefix("10.0.0.0/31")},
	)
	tests := []struct {
		addr string
		want int // index, -1 for none
	}{
		{"10.0.0.0", 3}, {"10.0.0.1", 3}, {"10.0.0.2", -1},
		{"10.0.1.0", 1}, {"10.0.1.49", 1}, {"10.0.1.50", -1}, {"10.0.1.99", -1}, {"10.0.1.100", 0}, {"10.0.1.255", 0},
		{"10.0.2.0", -1}, {"9.0.0.0", -1}, {"2001:db8::", 2}, {"2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", 2}, {"2001:db9::", -1},
		{"2001:db8::1%eth0", -1}, {"::ffff:10.0.0.0", -1}, {"", -1},
	}
	for _, tt := range tests {
		r, ok := s.Locate(addr(tt.addr))
		if ok != (tt.want >= 0) || ok && (r.Prefix != s.Ranges()[tt.want].Prefix || r.Start != s.Ranges()[tt.want].Start) {
			t.Errorf("Locate(%q) = %v %v-%v, %v; want range %d", tt.addr, r.Prefix, r.Start, r.End, ok, tt.want)
		}
	}
	if got, want := fmt.Sprint(s.Families()), "[IPv4 IPv6]"; got != want {
		t.Errorf("Families = %s; want %s", got, want)
	}
	if r := s.Ranges()[0]; r.End != addr("10.0.1.255") {
		t.Errorf("Ranges()[0].End = %v; want it filled in", r.End)
	}
}

func TestShapeBlock(t *testing.T) {
	var s *Shape
	tests := []struct {
		addr string
		bits int
		want netip.Prefix
	}{
		{"10.0.0.77", 26, prefix("10.0.0.64/26")},
		{"10.0.0.77", 32, prefix("10.0.0.77/32")},
		{"2001:db8::ffff", 120, prefix("2001:db8::ff00/120")},
		{"2001:db8::ffff%eth0", 120, prefix("2001:db8::ff00/120")},
		{"10.0.0.77", 33, netip.Prefix{}},
		{"10.0.0.77", -1, netip.Prefix{}},
		{"", 24, netip.Prefix{}},
	}
	for _, tt := range tests {
		if got := s.Block(addr(tt.addr), tt.bits); got != tt.want {
			t.Errorf("Block(%s, %d) = %v; want %v", tt.addr, tt.bits, got, tt.want)
		}
	}
}

func TestBlockBits(t *testing.T) {
	tests := []struct {
		name     string
		prefixes []string
		f        Family
		override int
		want     int
	}{
		{"/30", []string{"10.0.0.0/30"}, IPv4, 0, 32},
		{"/24", []string{"10.0.0.0/24"}, IPv4, 0, 32},
		{"/23", []string{"10.0.0.0/23"}, IPv4, 0, 31},
		{"/20", []string{"10.0.0.0/20"}, IPv4, 0, 28},
		{"/18", []string{"10.0.0.0/18"}, IPv4, 0, 26},
		{"/16", []string{"10.0.0.0/16"}, IPv4, 0, 26},
		{"/8", []string{"10.0.0.0/8"}, IPv4, 0, 26},
		{"/0", []string{"0.0.0.0/0"}, IPv4, 0, 26},
		{"the widest counts", []string{"10.0.0.0/24", "11.0.0.0/20", "12.0.0.0/28"}, IPv4, 0, 28},
		{"each family by itself", []string{"10.0.0.0/24", "2001:db8::/64"}, IPv4, 0, 32},
		{"/64", []string{"10.0.0.0/24", "2001:db8::/64"}, IPv6, 0, 122},
		{"/120", []string{"2001:db8::/120"}, IPv6, 0, 128},
		{"/32 of IPv6", []string{"2001:db8::/32"}, IPv6, 0, 122},
		{"a family that is not there", []string{"10.0.0.0/8"}, IPv6, 0, 128},
		{"override 1", []string{"10.0.0.0/8"}, IPv4, 1, 32},
		{"override 256", []string{"10.0.0.0/24"}, IPv4, 256, 24},
		{"override 256 of IPv6", []string{"2001:db8::/64"}, IPv6, 256, 120},
		{"override above the most", []string{"10.0.0.0/24"}, IPv4, 1 << 40, 24},
		{"override not a power of two", []string{"10.0.0.0/24"}, IPv4, 100, 26},
		{"override below zero is none", []string{"10.0.0.0/24"}, IPv4, -4, 32},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var rr []Range
			for _, p := range tt.prefixes {
				rr = append(rr, Range{Prefix: prefix(p)})
			}
			if got := BlockBits(mustShape(t, rr...), tt.f, tt.override); got != tt.want {
				t.Errorf("BlockBits = %d; want %d", got, tt.want)
			}
		})
	}
}

// A pool whose ranges leave little of their CIDR has the blocks of a small one.
func TestBlockBitsOfPartsOfCIDR(t *testing.T) {
	part := func(cidr, start, end string) Range {
		return Range{Prefix: prefix(cidr), Start: addr(start), End: addr(end)}
	}
	tests := []struct {
		name  string
		shape *Shape
		f     Family
		want  int
	}{
		{"1000 addresses of a /22", mustShape(t, part("10.0.0.0/22", "10.0.0.1", "10.0.3.232")), IPv4, 30},
		{"400 of a /16", mustShape(t, part("10.0.0.0/16", "10.0.0.1", "10.0.1.144")), IPv4, 32},
		{"1200 of a /16", mustShape(t, part("10.0.0.0/16", "10.0.0.1", "10.0.4.176")), IPv4, 30},
		{"a /20 but for its gateway and 16 more", mustShape(t, Range{
			Prefix: prefix("10.0.0.0/20"), Gateway: addr("10.0.0.1"), Exclude: []netipx.IPRange{netipx.IPRangeFrom(addr("10.0.0.2"), addr("10.0.0.17"))},
		}), IPv4, 28},
		{"one of a /8", mustShape(t, part("10.0.0.0/8", "10.0.0.1", "10.0.0.1")), IPv4, 32},
		{"a /24 of a /64", mustShape(t, part("2001:db8::/64", "2001:db8::", "2001:db8::ff")), IPv6, 128},
		{"what is excluded", mustShape(t, Range{Prefix: prefix("10.0.0.0/16"), Exclude: []netipx.IPRange{netipx.IPRangeFrom(addr("10.0.0.0"), addr("10.0.239.255"))}}), IPv4, 28},
		{"what can be had by name alone", mustShape(t, Range{Prefix: prefix("10.0.0.0/16"), StaticOnly: []netipx.IPRange{netipx.RangeOfPrefix(prefix("10.0.0.0/16"))}}), IPv4, 32},
		{"most of a /16", mustShape(t, part("10.0.0.0/16", "10.0.64.0", "10.0.255.255")), IPv4, 26},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := BlockBits(tt.shape, tt.f, 0); got != tt.want {
				t.Errorf("BlockBits = %d; want %d", got, tt.want)
			}
		})
	}
}

package allocator_test

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
)

func TestOrdinaryCounts(t *testing.T) {
	static := netipx.IPRangeFrom(netip.MustParseAddr("10.0.0.16"), netip.MustParseAddr("10.0.0.31"))
	s, err := allocator.NewShape([]allocator.Range{
		{Prefix: netip.MustParsePrefix("10.0.0.0/24"), Gateway: netip.MustParseAddr("10.0.0.1"), StaticOnly: []netipx.IPRange{static}},
		{Prefix: netip.MustParsePrefix("fd00::/64")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.OrdinaryCapacity(allocator.IPv4), int64(256-3-16); got != want {
		t.Errorf("IPv4: %d ordinary addresses; want %d", got, want)
	}
	if got := s.OrdinaryCapacity(allocator.IPv6); got != math.MaxInt64 {
		t.Errorf("IPv6: %d ordinary addresses; want %d", got, int64(math.MaxInt64))
	}
	for block, want := range map[string]int{
		"10.0.0.0/28": 14, "10.0.0.16/28": 0, "10.0.0.16/29": 0, "10.0.0.32/28": 16, "10.0.0.0/24": 237,
		"10.0.1.0/28": 0, "10.0.0.0/16": 0, "fd00::/120": 254,
	} {
		if got := s.OrdinaryIn(netip.MustParsePrefix(block)); got != want {
			t.Errorf("%s: %d ordinary addresses; want %d", block, got, want)
		}
	}
	var none *allocator.Shape
	if none.OrdinaryCapacity(allocator.IPv4) != 0 || none.OrdinaryIn(netip.MustParsePrefix("10.0.0.0/28")) != 0 {
		t.Error("a nil shape has ordinary addresses; want none")
	}
}

// TestOrdinaryWithin: the ordinary addresses of a view, and with them what only the pool
// keeps out between them.
func TestOrdinaryWithin(t *testing.T) {
	rangeOf := netipx.MustParseIPRange
	s, err := allocator.NewShape([]allocator.Range{
		{
			Prefix: netip.MustParsePrefix("10.0.0.0/24"), Gateway: netip.MustParseAddr("10.0.0.1"),
			Exclude: []netipx.IPRange{rangeOf("10.0.0.8-10.0.0.9")}, StaticOnly: []netipx.IPRange{rangeOf("10.0.0.16-10.0.0.31")},
		},
		{Prefix: netip.MustParsePrefix("fd00::/126")},
	})
	if err != nil {
		t.Fatal(err)
	}
	view := func(ranges ...string) allocator.View {
		var b netipx.IPSetBuilder
		for _, r := range ranges {
			b.AddRange(rangeOf(r))
		}
		set, err := b.IPSet()
		if err != nil {
			t.Fatal(err)
		}
		return allocator.NewView(set)
	}
	for _, tt := range []struct {
		family allocator.Family
		view   allocator.View
		want   string
		spans  string
	}{
		{allocator.IPv4, allocator.View{}, "[10.0.0.2-10.0.0.7 10.0.0.10-10.0.0.15 10.0.0.32-10.0.0.254]", "[10.0.0.2-10.0.0.254]"},
		{allocator.IPv6, allocator.View{}, "[fd00::1-fd00::3]", "[fd00::1-fd00::3]"},
		{
			allocator.IPv4, view("10.0.0.5-10.0.0.20", "10.0.0.200-10.0.1.9"),
			"[10.0.0.5-10.0.0.7 10.0.0.10-10.0.0.15 10.0.0.200-10.0.0.254]", "[10.0.0.5-10.0.0.15 10.0.0.200-10.0.0.254]",
		},
		{allocator.IPv4, view("10.0.0.5-10.0.0.6", "10.0.0.8-10.0.0.10"), "[10.0.0.5-10.0.0.6 10.0.0.10-10.0.0.10]", "[10.0.0.5-10.0.0.6 10.0.0.10-10.0.0.10]"},
		{allocator.IPv4, view("10.0.0.16-10.0.0.31"), "[]", "[]"},
		{allocator.IPv6, view("10.0.0.16-10.0.0.31"), "[]", "[]"},
	} {
		if got := fmt.Sprint(s.OrdinaryWithin(tt.family, tt.view)); got != tt.want {
			t.Errorf("%v within %v: %s; want %s", tt.family, tt.view, got, tt.want)
		}
		if got := fmt.Sprint(s.SpansWithin(tt.family, tt.view)); got != tt.spans {
			t.Errorf("%v within %v: spans %s; want %s", tt.family, tt.view, got, tt.spans)
		}
	}
	var none *allocator.Shape
	if got := slices.Concat(none.OrdinaryWithin(allocator.IPv4, allocator.View{}), none.SpansWithin(allocator.IPv4, allocator.View{})); got != nil {
		t.Errorf("of a nil shape: %v; want nothing", got)
	}
}

// TestRoutersByHabit: what is handed out of an IPv6 network without a gateway begins above the
// address that routers have by habit, which is still to be had by name.
func TestRoutersByHabit(t *testing.T) {
	first := netip.MustParseAddr("fd00::1")
	for _, tt := range []struct {
		name string
		r    allocator.Range
		want bool // it is handed out
	}{
		{"no gateway", allocator.Range{}, false},
		{"a gateway elsewhere", allocator.Range{Gateway: netip.MustParseAddr("fe80::1")}, true},
		{"the range begins with it", allocator.Range{Start: first}, true},
		{"the range begins later", allocator.Range{Start: netip.MustParseAddr("fd00::5")}, false},
		{"few addresses", allocator.Range{End: netip.MustParseAddr("fd00::ffff")}, true},
		{"more addresses", allocator.Range{End: netip.MustParseAddr("fd00::1:0")}, false},
	} {
		tt.r.Prefix = netip.MustParsePrefix("fd00::/64")
		s, err := allocator.NewShape([]allocator.Range{tt.r})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Ordinary(first); got != tt.want {
			t.Errorf("%s: handed out: %v; want %v", tt.name, got, tt.want)
		}
		if err := s.Assignable(first); (err == nil) != (tt.r.Start != netip.MustParseAddr("fd00::5")) {
			t.Errorf("%s: by name: %v", tt.name, err)
		}
	}
	for _, prefix := range []string{"fd00::/126", "fd00::/120", "10.0.0.0/8"} {
		p := netip.MustParsePrefix(prefix)
		s, err := allocator.NewShape([]allocator.Range{{Prefix: p}})
		if err != nil || !s.Ordinary(p.Addr().Next()) {
			t.Errorf("%s: %v is not handed out (%v)", prefix, p.Addr().Next(), err)
		}
	}
}

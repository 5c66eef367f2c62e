package allocator_test

import (
	"math"
	"net/netip"
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
		"10.0.1.0/28": 0, "10.0.0.0/16": 0, "fd00::/120": 255,
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

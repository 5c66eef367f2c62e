package allocator_test

import (
	"net/netip"
	"testing"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
)

// TestPart: a part gives nothing that the whole does not give, and nothing of the other ranges.
func TestPart(t *testing.T) {
	ranges := []allocator.Range{
		{Prefix: netip.MustParsePrefix("10.0.0.0/24"), End: netip.MustParseAddr("10.0.0.127"), Gateway: netip.MustParseAddr("10.0.0.200")},
		{Prefix: netip.MustParsePrefix("10.0.0.0/24"), Start: netip.MustParseAddr("10.0.0.128"), Exclude: []netipx.IPRange{netipx.MustParseIPRange("10.0.0.5-10.0.0.5")}},
		{Prefix: netip.MustParsePrefix("fd00::/64")},
	}
	whole, err := allocator.NewShape(ranges)
	if err != nil {
		t.Fatal(err)
	}
	if whole.Part(func(int) bool { return true }) != whole {
		t.Error("all ranges are not the whole")
	}
	for i := range ranges {
		part := whole.Part(func(j int) bool { return i == j })
		if len(part.Ranges()) != 1 || len(part.Families()) != 1 {
			t.Errorf("range %d: ranges %v, families %v", i, part.Ranges(), part.Families())
		}
		for _, text := range []string{"10.0.0.0", "10.0.0.5", "10.0.0.6", "10.0.0.127", "10.0.0.128", "10.0.0.200", "10.0.0.201", "fd00::", "fd00::1", "fd00::2"} {
			a := netip.MustParseAddr(text)
			in := netipx.IPRangeFrom(whole.Ranges()[i].Start, whole.Ranges()[i].End).Contains(a)
			if got, want := part.Assignable(a) == nil, in && whole.Assignable(a) == nil; got != want {
				t.Errorf("range %d gives %v: %v; want %v", i, a, got, want)
			}
			if got, want := part.Ordinary(a), in && whole.Ordinary(a); got != want {
				t.Errorf("range %d gives %v unasked: %v; want %v", i, a, got, want)
			}
		}
	}
	none := whole.Part(func(int) bool { return false })
	if len(none.Ranges()) != 0 || len(none.Families()) != 0 || none.Meets(netip.MustParsePrefix("10.0.0.0/32")) {
		t.Errorf("a part without ranges has %v", none.Ranges())
	}
	if !whole.Part(func(i int) bool { return i == 1 }).Meets(netip.MustParsePrefix("10.0.0.128/28")) {
		t.Error("a block of the range does not meet it")
	}
}

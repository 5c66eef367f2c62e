package poolspec

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
)

func TestParsePool(t *testing.T) {
	shape, err := ParsePool(PoolText{
		Ranges: []RangeText{
			{CIDR: "10.0.0.0/24", Start: "10.0.0.10", End: "10.0.0.99", Exclude: []string{"10.0.0.20", "10.0.0.32/29", "10.0.0.90-10.0.0.200"}, StaticOnly: []string{"10.0.0.10-10.0.0.19"}, Gateway: "10.0.0.1"},
			{CIDR: "10.0.0.0/24", Start: "10.0.0.100"},
			{CIDR: "fd00::/64"},
		},
		BlockSize: 16,
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := shape.Families(); !slices.Equal(got, allocator.Families()) {
		t.Errorf("families %v", got)
	}
	tests := []struct {
		addr                 string
		assignable, ordinary bool
	}{
		{"10.0.0.1", false, false}, {"10.0.0.9", false, false}, {"10.0.0.10", true, false}, {"10.0.0.20", false, false}, {"10.0.0.21", true, true},
		{"10.0.0.39", false, false}, {"10.0.0.40", true, true}, {"10.0.0.90", false, false}, {"10.0.0.201", true, true}, {"10.0.0.255", false, false},
		{"fd00::", false, false}, {"fd00::1", true, false}, {"fd00::2", true, true},
	}
	for _, tt := range tests {
		a := netip.MustParseAddr(tt.addr)
		if got := shape.Assignable(a) == nil; got != tt.assignable {
			t.Errorf("%v assignable: got %v; want %v", a, got, tt.assignable)
		}
		if got := shape.Ordinary(a); got != tt.ordinary {
			t.Errorf("%v ordinary: got %v; want %v", a, got, tt.ordinary)
		}
	}
}

func TestFaultsOfPool(t *testing.T) {
	one := func(r RangeText) PoolText { return PoolText{Ranges: []RangeText{r}} }
	tests := []struct {
		name string
		text PoolText
		want []string
	}{
		{"nothing", PoolText{}, []string{"spec.ranges: is empty"}},
		{"block sizes", PoolText{BlockSize: 12, Ranges: []RangeText{{CIDR: "10.0.0.0/24"}}}, []string{"spec.blockSize: 12 is not the size of a block"}},
		{"block size too large", PoolText{BlockSize: 512, Ranges: []RangeText{{CIDR: "10.0.0.0/24"}}}, []string{"spec.blockSize: 512 is not the size of a block"}},
		{"block size negative", PoolText{BlockSize: -1, Ranges: []RangeText{{CIDR: "10.0.0.0/24"}}}, []string{"spec.blockSize: -1 is not the size of a block"}},
		{"no cidr", one(RangeText{Start: "10.0.0.1"}), []string{"spec.ranges[0].cidr: is missing"}},
		{"every field of every range", PoolText{Ranges: []RangeText{
			{CIDR: "10.0.0.5/24"},
			{CIDR: "x", Start: "a", End: "b", Exclude: []string{"c", "10.0.0.1-x", "10.0.0.1/30", "fe80::1%e"}, StaticOnly: []string{"10.0.0.0/99", "fe80::1-fe80::2%e"}, Gateway: "d"},
		}}, []string{
			`spec.ranges[0].cidr: "10.0.0.5/24" has host bits set`,
			`spec.ranges[1].start: "a" is not an IP address`, `spec.ranges[1].end: "b" is not an IP address`, `spec.ranges[1].gateway: "d" is not an IP address`,
			`spec.ranges[1].cidr: "x" is not a CIDR`,
			`spec.ranges[1].exclude[0]: "c" is not an address`, `spec.ranges[1].exclude[1]: "10.0.0.1-x" is not a range of addresses`,
			`spec.ranges[1].exclude[2]: "10.0.0.1/30" has host bits set`, `spec.ranges[1].exclude[3]: "fe80::1%e" is not an address`,
			`spec.ranges[1].staticOnly[0]: "10.0.0.0/99" is not a CIDR`, `spec.ranges[1].staticOnly[1]: "fe80::1-fe80::2%e" is not a range of addresses`,
		}},
		{"outside", one(RangeText{CIDR: "10.0.0.0/24", Start: "10.0.1.1", End: "fd00::1", Exclude: []string{"10.0.2.0/24"}, StaticOnly: []string{"10.0.0.1", "fd00::2"}, Gateway: "fe80::1"}), []string{
			"spec.ranges[0].exclude[0]: 10.0.2.0/24 lies outside 10.0.0.0/24", "spec.ranges[0].staticOnly[1]: fd00::2 lies outside 10.0.0.0/24",
		}},
		{"outside, of one range", one(RangeText{CIDR: "10.0.0.0/24", Start: "10.0.1.1", End: "fd00::1", Gateway: "fe80::1"}), []string{
			"spec.ranges[0].start: 10.0.1.1 lies outside 10.0.0.0/24", "spec.ranges[0].end: fd00::1 lies outside 10.0.0.0/24", "spec.ranges[0].gateway: fe80::1 is of another family than 10.0.0.0/24",
		}},
		{"start after end", one(RangeText{CIDR: "10.0.0.0/24", Start: "10.0.0.9", End: "10.0.0.8"}), []string{"spec.ranges[0].start: 10.0.0.9 comes after the end 10.0.0.8"}},
		{"overlaps, with the index in the text", PoolText{Ranges: []RangeText{{CIDR: "x"}, {CIDR: "10.0.0.0/16"}, {CIDR: "10.0.1.0/24"}, {CIDR: "fd00::/64", Start: "fd00::5"}, {CIDR: "fd00::/64", End: "fd00::5"}}}, []string{
			`spec.ranges[0].cidr: "x" is not a CIDR`,
			"spec.ranges[2].cidr: 10.0.1.0/24 overlaps 10.0.0.0/16 of ranges[1]",
			"spec.ranges[3].start: fd00::5-fd00::ffff:ffff:ffff:ffff overlaps fd00::-fd00::5 of ranges[4]",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParsePool(tt.text)
			wantFaults(t, err, tt.want...)
			if !errors.Is(err, ErrPool) {
				t.Errorf("errors.Is(%v, ErrPool) is false", err)
			}
		})
	}
}

func TestSpanText(t *testing.T) {
	tests := []struct{ from, to, want string }{
		{"10.0.0.5", "10.0.0.5", "10.0.0.5"},
		{"10.0.0.8", "10.0.0.15", "10.0.0.8/29"},
		{"10.0.0.8", "10.0.0.14", "10.0.0.8-10.0.0.14"},
		{"fd00::", "fd00::ffff", "fd00::/112"},
	}
	for _, tt := range tests {
		r := netipx.IPRangeFrom(netip.MustParseAddr(tt.from), netip.MustParseAddr(tt.to))
		got := spanText(r)
		if got != tt.want {
			t.Errorf("spanText(%v) = %q; want %q", r, got, tt.want)
		}
		var fs faults
		if back, ok := parseSpan(&fs, "", got, false); !ok || back != r {
			t.Errorf("parseSpan(%q) = %v, %v; want %v", got, back, ok, r)
		}
	}
}

// TestRangesOfNobody: a pool of addresses that no pod can have as its own is refused, and one
// beside them is not.
func TestRangesOfNobody(t *testing.T) {
	for cidr, what := range map[string]string{
		"0.0.0.0/0": "this network", "127.0.0.0/8": "loopback", "127.1.2.0/24": "loopback", "224.0.0.0/4": "multicast", "255.255.255.254/31": "broadcast",
		"::/64": "unspecified", "::/0": "unspecified", "fe80::/10": "link-local", "fe80:1::/64": "link-local", "ff05::/64": "multicast",
		"1.0.0.0/8": "", "126.0.0.0/8": "", "169.254.0.0/16": "", "223.255.255.0/24": "", "fd00::/8": "", "2001:db8::/32": "",
	} {
		_, err := ParsePool(PoolText{Ranges: []RangeText{{CIDR: cidr}}})
		switch {
		case what == "" && err != nil:
			t.Errorf("%s: %v; want it accepted", cidr, err)
		case what != "" && (err == nil || !strings.Contains(err.Error(), what)):
			t.Errorf("%s: %v; want a fault that says %s", cidr, err, what)
		}
	}
	if _, err := ParsePool(PoolText{Ranges: []RangeText{{CIDR: "::/32", Start: "0:0:1::"}}}); err != nil {
		t.Errorf("a range that begins behind them: %v", err)
	}
}

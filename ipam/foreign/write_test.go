package foreign

import (
	"net/netip"
	"testing"
)

// TestOffsetsThatWhereaboutsDoesNotRead: whereabouts reads an int64, and would drop the record.
func TestOffsetsThatWhereaboutsDoesNotRead(t *testing.T) {
	for cidr, addr := range map[string]string{"fd00::/64": "fd00::8000:0:0:0", "fd00::/48": "fd00::1:0:0:0:1"} {
		if offset, ok := Offset(netip.MustParsePrefix(cidr), netip.MustParseAddr(addr)); ok {
			t.Errorf("offset of %s in %s: %s, which whereabouts does not read", addr, cidr, offset)
		}
	}
}

// What is written for whereabouts is read as it was meant.
func TestWrittenIsRead(t *testing.T) {
	for _, tt := range []struct{ cidr, addr, offset, reservation string }{
		{"10.0.0.0/24", "10.0.0.7", "7", "10.0.0.7"},
		{"10.0.0.4/24", "10.0.0.7", "3", "10.0.0.7"},
		{"fd00::/64", "fd00::1:0", "65536", "fd00--1-0"},
		{"fd00::/64", "fd00::", "0", "fd00--0"},
		{"10.0.0.0/24", "10.0.1.7", "", "10.0.1.7"},
		{"10.0.0.4/24", "10.0.0.3", "", "10.0.0.3"},
		{"10.0.0.0/24", "fd00::1", "", "fd00--1"},
		{"fd00::/64", "fd00::7fff:ffff:ffff:ffff", "9223372036854775807", "fd00--7fff-ffff-ffff-ffff"},
	} {
		cidr, addr := netip.MustParsePrefix(tt.cidr), netip.MustParseAddr(tt.addr)
		offset, ok := Offset(cidr, addr)
		if offset != tt.offset || ok != (tt.offset != "") {
			t.Errorf("offset of %v in %v: got %q, %t, want %q", addr, cidr, offset, ok, tt.offset)
		}
		if ok {
			spec := map[string]any{"range": tt.cidr, "allocations": map[string]any{offset: map[string]any{"id": "", "podref": "ns/p", "ifname": "net1"}}}
			if got, faults := WhereaboutsPool("kube-system", "x", spec); len(got) != 1 || got[0].Addr != addr || len(faults) > 0 {
				t.Errorf("offset %s in %v is read as %v with faults %v, want %v", offset, cidr, got, faults, addr)
			}
		}
		for _, network := range []string{"", "blue"} {
			name := ReservationName(network, addr)
			if network == "" && name != tt.reservation {
				t.Errorf("reservation of %v: got %s, want %s", addr, name, tt.reservation)
			}
			if got, fault := WhereaboutsReservation("kube-system", name, map[string]any{"podref": "ns/p"}); got.Addr != addr {
				t.Errorf("reservation %s is read as %v (%s), want %v", name, got.Addr, fault, addr)
			}
		}
	}
}

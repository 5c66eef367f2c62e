package poolspec

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
)

// TestOldVersionsHaveOneAddressOfEachFamily (C5).
func TestOldVersionsHaveOneAddressOfEachFamily(t *testing.T) {
	const (
		twoV4   = `"ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "10.0.1.0/24"}]]`
		oneEach = `"ipRanges": [{"range": "10.0.0.0/24"}, {"range": "fd00::/64"}]`
	)
	tests := []struct {
		version, ipam, top string
		fault              string
	}{
		{"", twoV4, "", "cniVersion: 0.1.0, for want of another, cannot express 2 IPv4 addresses of one interface"},
		{"0.1.0", twoV4, "", "cniVersion: 0.1.0 cannot express 2 IPv4 addresses of one interface"},
		{"0.2.0", twoV4, "", "cniVersion: 0.2.0 cannot express 2 IPv4 addresses of one interface"},
		{"0.3.0", twoV4, "", ""},
		{"1.1.0", twoV4, "", ""},
		{"0.2.0", oneEach, "", ""},
		{"0.2.0", `"pools": ["a", "b"]`, "", ""}, // the pools' families are not known here
		{"0.2.0", `"pool": "a"`, `, "args": {"cni": {"ips": ["fd00::1", "fd00::2"]}}`, "cniVersion: 0.2.0 cannot express 2 IPv6 addresses of one interface"},
		{"0.2.0", twoV4, `, "args": {"cni": {"ips": ["10.0.0.5"]}}`, ""}, // exactly this one is assigned
	}
	for _, tt := range tests {
		config := fmt.Sprintf(`{"cniVersion": %q, "name": "n", "ipam": {"type": "tenure", %s}%s}`, tt.version, tt.ipam, tt.top)
		t.Run(tt.version+" "+tt.ipam+tt.top, func(t *testing.T) {
			_, err := ParseConfig([]byte(config), "")
			if tt.fault == "" {
				wantFaults(t, err)
				return
			}
			wantFaults(t, err, tt.fault)
			if !errors.Is(err, ErrVersion) {
				t.Errorf("errors.Is(%v, ErrVersion) is false", err)
			}
		})
	}
}

// TestCheckVersion (C5).
func TestCheckVersion(t *testing.T) {
	addrs := func(texts ...string) (out []netip.Addr) {
		for _, s := range texts {
			out = append(out, netip.MustParseAddr(s))
		}
		return out
	}
	tests := []struct {
		version string
		addrs   []netip.Addr
		ok      bool
	}{
		{"0.2.0", addrs("10.0.0.1", "fd00::1"), true},
		{"0.2.0", addrs("10.0.0.1", "10.0.1.1"), false},
		{"", addrs("fd00::1", "fd00::2"), false},
		{"0.3.1", addrs("10.0.0.1", "10.0.1.1"), true},
	}
	for _, tt := range tests {
		c := Config{CNIVersion: tt.version}
		if err := c.CheckVersion(tt.addrs); (err == nil) != tt.ok {
			t.Errorf("%q with %v: got %v; want ok %v", tt.version, tt.addrs, err, tt.ok)
		}
	}
}

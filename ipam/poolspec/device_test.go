package poolspec

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParseDevice(t *testing.T) {
	const list = `{"cniVersion":"0.1.0","plugins":[{"type":"tuning"},{"type":"x","ipam":{"type":"tenure","pools":["a","b"]}}]}`
	for _, tt := range []struct {
		name, config string
		ips          []string
		network      string // empty: a network of somebody else
		asked        string
		fault        string
	}{
		{"a pool", string(PoolConfig("lan")), nil, "lan", "", ""},
		{"addresses by name", string(PoolConfig("lan")), []string{"10.0.0.7/24", "fd00::7"}, "lan", "10.0.0.7/24 fd00::7/0", ""},
		{"a list without a name, of an old version", list, nil, "def", "", ""},
		{"two addresses of a family, of an old version", list, []string{"10.0.0.7", "10.0.0.8"}, "def", "10.0.0.7/0 10.0.0.8/0", ""},
		{"runtimeConfig of the text does not count", `{"name":"n","type":"x","runtimeConfig":{"ips":["10.0.0.9"]},"ipam":{"type":"tenure","pool":"lan"}}`, []string{"10.0.0.7"}, "n", "10.0.0.7/0", ""},
		{"another's", `{"name":"n","type":"x","ipam":{"type":"host-local"}}`, nil, "", "", ""},
		{"no JSON", `{`, nil, "", "", "JSON"},
		{"no address", string(PoolConfig("lan")), []string{"here"}, "", "", "runtimeConfig.ips[0]"},
		{"an address outside of inline ranges", `{"name":"n","type":"x","ipam":{"type":"tenure","range":"10.0.0.0/24"}}`, []string{"10.1.0.1"}, "", "", "10.1.0.1"},
		{"two networks", `{"name":"n","plugins":[{"type":"x","ipam":{"type":"tenure","pool":"a"}},{"type":"y","ipam":{"type":"tenure","pool":"b"}}]}`, nil, "", "", "several plugins"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := ParseDevice([]byte(tt.config), "def", tt.ips)
			if tt.fault != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fault) {
					t.Errorf("got %v; want a fault with %q", err, tt.fault)
				}
				return
			}
			if err != nil || (c == nil) != (tt.network == "") {
				t.Fatalf("got %+v, %v; want network %q", c, err, tt.network)
			}
			if c == nil {
				return
			}
			var asked []string
			for _, r := range c.Requested {
				asked = append(asked, netip.PrefixFrom(r.Addr, r.Bits).String())
			}
			if c.Name != tt.network || strings.Join(asked, " ") != tt.asked {
				t.Errorf("network %q asks for %v; want %q and %q", c.Name, asked, tt.network, tt.asked)
			}
		})
	}
}

package poolspec

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/tenure-ipam/tenure/allocator"
)

// TestBridgeTakesFirst: a bridge that is a gateway and is answered none takes the first address
// of the CIDR that the pod's address is answered with, wherever the range begins. It is answered
// as the gateway, and given to nobody.
func TestBridgeTakesFirst(t *testing.T) {
	const inline, local = `"range": "10.0.0.0/24"`, `"mode": "local", `
	for _, tt := range []struct {
		name, keys, ipam string
		addr             string   // one that a pod may get
		gateway          string   // that it is answered with
		never            []string // what nobody gets
	}{
		{"isGateway", `"type":"bridge","isGateway":true`, inline, "10.0.0.2", "10.0.0.1", []string{"10.0.0.1"}},
		{"isDefaultGateway", `"type":"bridge","isDefaultGateway":true`, inline, "10.0.0.2", "10.0.0.1", []string{"10.0.0.1"}},
		{"as encoding/json reads the key", `"type":"bridge","ISGATEWAY":true`, inline, "10.0.0.2", "10.0.0.1", []string{"10.0.0.1"}},
		{"a range that begins later", `"type":"bridge","isGateway":true`, `"range": "10.0.0.0/24", "range_start": "10.0.0.100"`, "10.0.0.100", "10.0.0.1", []string{"10.0.0.1"}},
		{"whereabouts' form with host bits", `"type":"bridge","isGateway":true`, `"range": "10.0.0.64/24"`, "10.0.0.2", "10.0.0.1", []string{"10.0.0.1"}},
		{"a gateway is named", `"type":"bridge","isGateway":true`, inline + `, "gateway": "10.0.0.254"`, "10.0.0.1", "10.0.0.254", []string{"10.0.0.254"}},
		{"IPv6", `"type":"bridge","isGateway":true`, `"range": "fd00::/64"`, "fd00::2", "fd00::1", []string{"fd00::1"}},
		{"of two addresses", `"type":"bridge","isGateway":true`, `"range": "10.0.0.4/31"`, "10.0.0.4", "10.0.0.5", []string{"10.0.0.5"}},
		{"outside a CIDR of one, and inside another", `"type":"bridge","isGateway":true`, `"ipRanges": [{"range": "10.0.0.4/32"}, {"range": "10.0.0.5/31"}, {"range": "10.0.0.8/29"}]`,
			"10.0.0.10", "10.0.0.9", []string{"10.0.0.5", "10.0.0.9"}},
		{"no gateway", `"type":"bridge"`, inline, "10.0.0.1", "", nil},
		{"another plugin", `"type":"macvlan","isGateway":true`, inline, "10.0.0.1", "", nil},
	} {
		for _, mode := range []string{"", local} {
			t.Run(tt.name+mode, func(t *testing.T) {
				c := mustParse(t, fmt.Sprintf(`{"cniVersion":"1.1.0","name":"net",%s,"ipam":{"type":"tenure",%s%s}}`, tt.keys, mode, tt.ipam), "")
				a := netip.MustParseAddr(tt.addr)
				src, _, err := c.SourceOf(a, func(string) (*allocator.Shape, error) { return ParsePool(*c.Sources[0].Implicit) })
				if err != nil || !src.View.Contains(a) {
					t.Fatalf("%v is not given: %v", a, err)
				}
				if _, gw := src.Answer(a, allocator.Range{}); text(gw) != tt.gateway {
					t.Errorf("%v is answered the gateway %v; want %q", a, gw, tt.gateway)
				}
				shape, err := ParsePool(*c.Sources[0].Implicit)
				if err != nil {
					t.Fatal(err)
				}
				for _, never := range tt.never {
					x := netip.MustParseAddr(never)
					if shape.Assignable(x) == nil {
						t.Errorf("the pool gives %v, which a router has", x)
					}
					for _, s := range c.Sources {
						if s.View.Contains(x) {
							t.Errorf("%v is given, which a router has", x)
						}
					}
				}
			})
		}
	}
}

// TestBridgeTakesFirstOfNamedPool: before the controller has kept the address, too.
func TestBridgeTakesFirstOfNamedPool(t *testing.T) {
	c := mustParse(t, `{"cniVersion":"1.1.0","name":"net","type":"bridge","isDefaultGateway":true,"ipam":{"type":"tenure","pool":"lan"}}`, "")
	src := c.Sources[0]
	text4 := PoolText{Ranges: []RangeText{
		{CIDR: "10.0.0.0/24", Start: "10.0.0.0", End: "10.0.0.99"}, {CIDR: "10.0.0.0/24", Start: "10.0.0.100", Gateway: "10.0.0.254"}, {CIDR: "fd00::/64"},
	}}
	shape, err := ParsePool(text4)
	if err != nil {
		t.Fatal(err)
	}
	routers := src.RoutersIn(shape.Ranges())
	if got, want := fmt.Sprint(routers), "[10.0.0.1 10.0.0.254 fd00::1]"; got != want {
		t.Errorf("routers have %v; want %v", got, want)
	}
	for _, a := range routers {
		if src.ViewOf(shape).Contains(a) && shape.Assignable(a) == nil {
			t.Errorf("%v is given, which a router has", a)
		}
	}
	for addr, want := range map[string]string{"10.0.0.9": "10.0.0.1", "10.0.0.109": "10.0.0.254", "fd00::9": "fd00::1"} {
		a := netip.MustParseAddr(addr)
		in, _ := shape.Locate(a)
		if _, gw := src.Answer(a, in); text(gw) != want {
			t.Errorf("%v is answered the gateway %v; want %v", a, gw, want)
		}
	}

	text4.Gateways = []string{"10.0.0.1", "fd00::1"} // as the controller writes it
	if shape, err = ParsePool(text4); err != nil {
		t.Fatal(err)
	}
	for _, a := range routers {
		if shape.Assignable(a) == nil {
			t.Errorf("the pool gives %v, which a router has", a)
		}
	}
	if !src.ViewOf(shape).IsAll() {
		t.Errorf("the network may take %v; want everything that the pool gives", src.ViewOf(shape))
	}
	if slices.Contains(routers, netip.MustParseAddr("10.0.0.0")) {
		t.Error("the network address is a router's")
	}
}

// text returns a as text, empty for none.
func text(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

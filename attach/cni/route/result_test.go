package route

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"
)

// dual is a result with default routes of both families, a route that only looks
// like one, and one of another table.
const dual = `{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.5/24","gateway":"10.0.0.1"},{"address":"2001:db8::5/64","gateway":"2001:db8::1"}],
"routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.2","priority":7},{"dst":"0.0.0.0/1","gw":"10.0.0.1"},{"dst":"0.0.0.0/0","gw":"10.0.0.3","table":100},{"dst":"::/0"}]}`

func result(t *testing.T, text string) *types100.Result {
	t.Helper()
	var r types100.Result
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

// routes are the routes and gateways of a result, as text.
func routes(t *testing.T, r *types100.Result) string {
	t.Helper()
	text, err := json.Marshal(struct{ IPs, Routes any }{r.IPs, r.Routes})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func gateways(texts ...string) (list []netip.Addr) {
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

// TestDefaultsOfAResult (N38).
func TestDefaultsOfAResult(t *testing.T) {
	want := []Default{{netip.MustParseAddr("10.0.0.2"), 7}, {netip.MustParseAddr("2001:db8::1"), 0}}
	if got := Defaults(result(t, dual)); !slices.Equal(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
}

// TestGatewayOfAResult: a gateway outside of the subnet is that to which a route of scope link
// leads.
func TestGatewayOfAResult(t *testing.T) {
	r := result(t, `{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.5/32"},{"address":"fd00::5/64","gateway":"fe80::1"}],
		"routes":[{"dst":"10.9.0.1/32","gw":"169.254.1.1"},{"dst":"169.254.1.1/32","scope":253},{"dst":"0.0.0.0/0","gw":"169.254.1.1"}]}`)
	for f, want := range map[Family]string{IPv4: "169.254.1.1", IPv6: "fe80::1"} {
		if gw, ok := GatewayOf(r, f); !ok || gw.String() != want {
			t.Errorf("IPv%d: %v, %v; want %s", f, gw, ok, want)
		}
	}
	if gw, ok := GatewayOf(result(t, `{"ips":[{"address":"10.0.0.5/32"}],"routes":[{"dst":"10.9.0.1/32"}]}`), IPv4); ok {
		t.Errorf("a route without a scope names the gateway %v; want none", gw)
	}
}

// TestResultsOfAChange (N38, N39): who loses the default routes of a family has neither
// them nor gateways in its result, and who keeps them has the list's, in order.
func TestResultsOfAChange(t *testing.T) {
	const lost4 = `{"IPs":[{"address":"10.0.0.5/24"},{"address":"2001:db8::5/64","gateway":"2001:db8::1"}],` +
		`"Routes":[{"dst":"0.0.0.0/1","gw":"10.0.0.1"},{"dst":"0.0.0.0/0","gw":"10.0.0.3","table":100},{"dst":"::/0"}]}`
	const lostBoth = `{"IPs":[{"address":"10.0.0.5/24"},{"address":"2001:db8::5/64"}],` +
		`"Routes":[{"dst":"0.0.0.0/1","gw":"10.0.0.1"},{"dst":"0.0.0.0/0","gw":"10.0.0.3","table":100}]}`
	for name, tt := range map[string]struct {
		change Change
		lose   string
		keep   []Default
	}{
		"IPv4 alone": {Change{Gateways: gateways("10.0.0.9")}, lost4, []Default{{netip.MustParseAddr("10.0.0.9"), 0}, {netip.MustParseAddr("2001:db8::1"), 0}}},
		"several": {
			Change{Gateways: gateways("10.0.0.9", "2001:db8::9", "::ffff:10.0.0.8")}, lostBoth,
			[]Default{{netip.MustParseAddr("10.0.0.9"), 1}, {netip.MustParseAddr("10.0.0.8"), 2}, {netip.MustParseAddr("2001:db8::9"), 0}},
		},
		"its own": {Change{}, lostBoth, []Default{{netip.MustParseAddr("10.0.0.2"), 7}, {netip.MustParseAddr("2001:db8::1"), 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			loser, keeper := result(t, dual), result(t, dual)
			tt.change.Lose(loser)
			if d := cmp.Diff(tt.lose, routes(t, loser)); d != "" {
				t.Errorf("who loses (-want +got):\n%s", d)
			}
			tt.change.Keep(keeper)
			if got := Defaults(keeper); !slices.Equal(got, tt.keep) {
				t.Errorf("who keeps: %v; want %v", got, tt.keep)
			}
		})
	}
}

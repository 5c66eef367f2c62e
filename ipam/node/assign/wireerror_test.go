package assign

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestWireError (C16) lists every error that a caller may tell apart.
func TestWireError(t *testing.T) {
	if got := WireError(nil); got != nil {
		t.Errorf("WireError(nil) = %+v; want nil", got)
	}
	for _, tt := range []struct {
		err  error
		want agentapi.Code
	}{
		{&NoRoomError{}, agentapi.CodeTryAgainLater},
		{&TakenError{}, agentapi.CodeTryAgainLater},
		{&ConflictError{}, agentapi.CodeTryAgainLater},
		{&UnassignableError{Reason: errTwice}, agentapi.CodeInvalidConfig},
		{&CheckError{}, CodeCheckFailed},
		{poolspec.ErrDecode, agentapi.CodeDecoding},
		{poolspec.ErrArgs, agentapi.CodeInvalidEnvironment},
		{poolspec.ErrConfig, agentapi.CodeInvalidConfig},
		{poolspec.ErrUnsupported, agentapi.CodeUnsupportedField},
		{errors.Join(poolspec.ErrConfig, poolspec.ErrUnsupported), agentapi.CodeUnsupportedField},
		{poolspec.ErrPool, agentapi.CodeInvalidConfig},
		{poolspec.ErrVersion, agentapi.CodeIncompatibleVersion},
		{store.ErrFull, agentapi.CodeTryAgainLater},
		{store.ErrLocked, agentapi.CodeTryAgainLater},
		{store.ErrClosed, agentapi.CodeTryAgainLater},
		{context.DeadlineExceeded, agentapi.CodeTryAgainLater},
		{context.Canceled, agentapi.CodeTryAgainLater},
		{store.ErrCorrupt, agentapi.CodeIO},
		{store.ErrNewerSchema, agentapi.CodeIO},
		{store.ErrReadOnly, agentapi.CodeIO},
		{store.ErrOlder, agentapi.CodeIO},
		{allocator.ErrCorrupt, agentapi.CodeIO},
		{&agentapi.Error{Code: 42}, 42},
		{errors.New("anything else"), agentapi.CodeInternal},
	} {
		for _, err := range []error{tt.err, fmt.Errorf("wrapped: %w", tt.err)} {
			if got := WireError(err); got == nil || got.Code != tt.want {
				t.Errorf("WireError(%T %v) = %+v; want code %d", tt.err, err, got, tt.want)
			}
		}
	}
}

func config(t *testing.T, ipam string) *poolspec.Config {
	t.Helper()
	c, err := poolspec.ParseConfig([]byte(`{"cniVersion":"1.0.0","name":"net","ipam":{"type":"tenure",`+ipam+`}}`), "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func slotsText(slots []Slot) string {
	var s []string
	for _, x := range slots {
		what := x.Family.String()
		if x.Exact.IsValid() {
			what = x.Exact.String()
		}
		s = append(s, fmt.Sprintf("%s:%s/%d", x.Pool, what, x.BlockBits))
	}
	return strings.Join(s, " ")
}

func TestSlots(t *testing.T) {
	rest, err := allocator.NewShape([]allocator.Range{{
		Prefix: netip.MustParsePrefix("10.0.0.0/24"), Exclude: []netipx.IPRange{netipx.MustParseIPRange("10.0.0.0-10.0.0.99")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	named, err := allocator.NewShape([]allocator.Range{
		{Prefix: netip.MustParsePrefix("10.2.0.0/24")},
		{Prefix: netip.MustParsePrefix("fd02::/64"), StaticOnly: []netipx.IPRange{netipx.MustParseIPRange("fd02::-fd02::ffff:ffff:ffff:ffff")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	pools := map[string]Pool{
		"four":  {Shape: shapeOf(t, "10.0.0.0/24"), BlockBits4: 28},
		"rest":  {Shape: rest, BlockBits4: 28},
		"both":  {Shape: shapeOf(t, "10.1.0.0/24", "fd00::/64"), BlockBits4: 30, BlockBits6: 122},
		"named": {Shape: named, BlockBits4: 28, BlockBits6: 122},
		"none":  {},
	}
	request := func(c *poolspec.Config, bits int, addrs ...string) *poolspec.Config {
		for _, a := range addrs {
			c.Requested = append(c.Requested, poolspec.Requested{Addr: netip.MustParseAddr(a), Bits: bits, Path: "runtimeConfig.ips[0]"})
		}
		return c
	}
	for _, tt := range []struct {
		name string
		conf *poolspec.Config
		want string
	}{
		{"one address of each family", config(t, `"pools":["four","both"]`), "four:IPv4/28 both:IPv4/30 both:IPv6/122"},
		{"C9 exactly what is asked for", request(config(t, `"pools":["four","both"]`), 0, "fd00::9", "10.0.0.9"), "both:fd00::9/122 four:10.0.0.9/28"},
		{"C9 with the range's length", request(config(t, `"pools":["four","both"]`), 24, "10.1.0.9"), "both:10.1.0.9/30 both:IPv6/122"},
		{"C9 the first pool excludes it", request(config(t, `"pools":["rest","four"]`), 0, "10.0.0.9", "10.0.0.100"), "four:10.0.0.9/28 rest:10.0.0.100/28"},
		{"C9 all exclude it", request(config(t, `"pools":["both","rest"]`), 0, "10.0.0.9"), "rest:10.0.0.9/28 both:IPv6/122"},
		{"C9 nobody has it", request(config(t, `"pools":["four","both"]`), 0, "192.0.2.1"), "four:192.0.2.1/28 both:IPv6/122"},
		{"C9 a family that was not asked for", request(config(t, `"pool":"both"`), 0, "fd00::9"), "both:IPv4/30 both:fd00::9/122"},
		{"C9 a family of which none is given unasked", request(config(t, `"pool":"named"`), 0, "10.2.0.9"), "named:10.2.0.9/28"},
		{"C9 one family alone", request(config(t, `"pool":"both","families":["IPv4"]`), 0, "10.1.0.9"), "both:10.1.0.9/30"},
		{"one family alone", config(t, `"pools":["four","both"],"families":["ipv6"]`), "both:IPv6/122"},
		{"both families", config(t, `"pools":["four","both"],"families":["IPv6","IPv4"]`), "four:IPv4/28 both:IPv4/30 both:IPv6/122"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			slots, err := Slots(tt.conf, pools)
			if got := slotsText(slots); err != nil || got != tt.want {
				t.Errorf("got %s, %v; want %s", got, err, tt.want)
			}
		})
	}
	if _, err := Slots(config(t, `"pool":"four","families":["IPv6"]`), pools); !errors.Is(err, poolspec.ErrConfig) || !strings.Contains(err.Error(), "no pool of network net has addresses of IPv6") {
		t.Errorf("a family that no pool has: %v; want an error that says so", err)
	}
	old := config(t, `"pools":["four","both"]`)
	old.CNIVersion = "0.2.0"
	if _, err := Slots(old, pools); !errors.Is(err, poolspec.ErrVersion) {
		t.Errorf("C5, two IPv4 addresses in 0.2.0: %v; want ErrVersion", err)
	}
	if _, err := Slots(config(t, `"pool":"none"`), pools); !is[*NoRoomError](err) || !strings.Contains(err.Error(), "no ranges") {
		t.Errorf("a pool without ranges: %v; want a NoRoomError that says so", err)
	}
	_, err = Slots(request(config(t, `"pool":"four"`), 16, "10.0.0.9"), pools)
	if !is[*UnassignableError](err) || !strings.Contains(err.Error(), "prefix length 16") {
		t.Errorf("C9 with another length: %v; want an UnassignableError that names it", err)
	}
}

func TestResult(t *testing.T) {
	c := config(t, `"pool":"p","routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.1","mtu":1400}],"dns":{"domain":"d"}`)
	x := store.Attachment{Addresses: []store.Address{
		{Addr: netip.MustParseAddr("10.0.0.5"), Bits: 24, Gateway: netip.MustParseAddr("10.0.0.1"), Pool: "p"},
		{Addr: netip.MustParseAddr("10.0.0.6"), Bits: 24, Pool: "p"},
	}}
	want := &agentapi.Result{
		IPs: []agentapi.IP{
			{Address: netip.MustParsePrefix("10.0.0.5/24"), Gateway: netip.MustParseAddr("10.0.0.1")},
			{Address: netip.MustParsePrefix("10.0.0.6/24")},
		},
		Routes: []agentapi.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), GW: netip.MustParseAddr("10.0.0.1"), MTU: 1400}},
		DNS:    agentapi.DNS{Domain: "d"},
	}
	got, err := Result(c, x)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, cmpAddrs); d != "" {
		t.Errorf("Result (-want +got):\n%s", d)
	}
	c.CNIVersion = "0.2.0"
	if _, err := Result(c, x); !errors.Is(err, poolspec.ErrVersion) {
		t.Errorf("C5, two IPv4 addresses in 0.2.0: %v; want ErrVersion", err)
	}
}

func TestErrorsNameTheHolder(t *testing.T) {
	pod := store.Attachment{Key: key("c1", "net1"), Pod: protocol.PodRef{Namespace: "ns", Name: "web-0"}}
	container := store.Attachment{Key: key("c1", "net1")}
	old := store.Attachment{Key: key("c1", "net1"), Pod: protocol.PodRef{Namespace: "ns", Name: "web-6f9c5-abcde"}}
	replaces := protocol.PodRef{Namespace: "ns", Name: "web-7d4b8-abcde", Owner: protocol.OwnerRef{Kind: "ReplicaSet", Name: "web-7d4b8"}}
	for _, tt := range []struct {
		by   store.Attachment
		want string
	}{
		{pod, "held by pod ns/web-0, interface net1, network net (container c1)"},
		{container, "held by container c1, interface net1, network net"},
		{store.Attachment{}, "held by an attachment that is not recorded"},
		{old, "(container c1): both are pods of Deployment web. "},
	} {
		err := &TakenError{Addr: netip.MustParseAddr("10.0.0.5"), Pool: "p", By: tt.by, For: replaces}
		if !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %q; want it to say %q", err, tt.want)
		}
	}
}

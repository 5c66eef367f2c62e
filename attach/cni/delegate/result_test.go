package delegate

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/attach/cni/route"
	"github.com/tenure-ipam/tenure/attach/plan"
)

// results are results of all versions of CNI, and some that are none.
var results = []string{
	`{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.5/24","gateway":"10.0.0.1","routes":[{"dst":"0.0.0.0/0"}]}}`,
	`{"cniVersion":"0.4.0","interfaces":[{"name":"eth0","sandbox":"x"}],"ips":[{"version":"4","address":"10.0.0.5/24","interface":0}]}`,
	`{"cniVersion":"1.1.0","interfaces":[{"name":"veth"},{"name":"eth0","mac":"02:00:00:00:00:01","sandbox":"x"}],"ips":[{"address":"10.0.0.5/24","interface":1},{"address":"10.0.0.6/24","interface":0}],"routes":[{"dst":"::/0","gw":"2001:db8::1"}],"dns":{"domain":"d"}}`,
	`{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.5/24","interface":7}]}`,
	`{"cniVersion":"1.0.0","ips":[null]}`, `{"cniVersion":"1.0.0","interfaces":[null]}`, `{"cniVersion":"1.0.0","routes":[null]}`,
	`{"cniVersion":"0.4.0","ips":[null]}`, `{"cniVersion":"0.3.1","interfaces":[null]}`, `{"cniVersion":"0.4.0","routes":[null]}`,
	`{"cniVersion":"0.2.0","ip4":{"routes":[{"dst":null}]}}`, `{"cniVersion":"1.0.0"}`, `{}`, `null`,
}

// FuzzResult: whatever a delegate answers, nothing panics, and what is accepted
// can be shown, changed and written again.
func FuzzResult(f *testing.F) {
	for _, text := range results {
		f.Add([]byte(text))
	}
	gateways := []netip.Addr{netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("2001:db8::9")}
	step := plan.Step{IfName: "eth0", DefaultRoute: &gateways, Requested: plan.Requested{IPs: []netip.Addr{netip.MustParseAddr("10.0.0.5")}}}
	f.Fuzz(func(t *testing.T, text []byte) {
		result, err := create.CreateFromBytes(text)
		if err != nil {
			return
		}
		full, err := fullOf(result)
		if err != nil {
			return
		}
		if text, err := json.Marshal(result); err != nil {
			t.Fatalf("text: %v", err)
		} else if _, err := inVersion(text, "1.1.0"); err != nil {
			t.Fatalf("%s was accepted, and does not read again: %v", text, err)
		}
		_ = verify(step, full, "") // either is right
		if both, err := After(full, result); err != nil {
			t.Fatalf("after itself: %v", err)
		} else if _, err := json.Marshal(both); err != nil {
			t.Fatalf("text of it after itself: %v", err)
		}
		if _, err := json.Marshal(npwg.StatusOf(npwg.Attachment{Name: "n", DefaultRoute: &gateways}, plain(full))); err != nil {
			t.Fatalf("status: %v", err)
		}
		change, err := move{}.change(step, full)
		if err != nil {
			t.Fatal(err)
		}
		change.Keep(full)
		if got := len(route.Defaults(full)); got < len(gateways) {
			t.Fatalf("%d default routes; want the two that were asked for", got)
		}
		change.Lose(full)
		if got := route.Defaults(full); len(got) > 0 {
			t.Fatalf("default routes %v after their loss", got)
		}
		if _, err := json.Marshal(full); err != nil {
			t.Fatalf("result: %v", err)
		}
	})
}

// TestGatewayOfAPodNetwork (W1): a flag on a network without a gateway is an error, the default
// network keeps its own routes, and a family's flag concerns that family.
func TestGatewayOfAPodNetwork(t *testing.T) {
	result, err := create.CreateFromBytes([]byte(`{"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.5/24", "gateway": "10.0.0.1"}, {"address": "fd00::5/64"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	full, err := fullOf(result)
	if err != nil {
		t.Fatal(err)
	}
	p := plan.Plan{Steps: []plan.Step{{Default: true, IfName: "eth0", Gateway6: true}, {IfName: "net1", Gateway4: true}}}
	moves := movesOf(p)
	if len(moves) != 2 || moves[0] != (move{0, route.IPv6}) || moves[1] != (move{1, route.IPv4}) {
		t.Fatalf("moves %v; want that of IPv6 to step 0 and that of IPv4 to step 1", moves)
	}
	c, err := moves[1].change(p.Steps[1], full)
	if err != nil || len(c.Gateways) != 1 || c.Gateways[0] != netip.MustParseAddr("10.0.0.1") || !slices.Equal(c.Families(), []route.Family{route.IPv4}) {
		t.Errorf("change %+v, %v; want the gateway of IPv4", c, err)
	}
	if c, err = moves[0].change(p.Steps[0], full); err != nil || len(c.Gateways) > 0 || !slices.Equal(c.Families(), []route.Family{route.IPv6}) {
		t.Errorf("change %+v, %v; want the default network to keep its own of IPv6", c, err)
	}
	if _, err := (move{1, route.IPv6}).change(p.Steps[1], full); err == nil || !strings.Contains(err.Error(), "isDefaultGW6 is set, and the network has no gateway of IPv6") {
		t.Errorf("a network without a gateway of IPv6: %v; want an error", err)
	}
}

// TestOneAddressOfAFamily (P13, W6).
func TestOneAddressOfAFamily(t *testing.T) {
	for text, want := range map[string]string{
		`{"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.5/24"}, {"address": "fd00::5/64"}]}`:  "",
		`{"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.5/24"}, {"address": "10.0.1.5/24"}]}`: "it gave the addresses 10.0.0.5 and 10.0.1.5",
	} {
		result, err := create.CreateFromBytes([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		full, err := fullOf(result)
		if err != nil {
			t.Fatal(err)
		}
		err = verify(plan.Step{PodNetwork: "lan", IfName: "net1"}, full, "")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
		if err := verify(plan.Step{IfName: "net1"}, full, ""); err != nil {
			t.Errorf("%s of no PodNetwork: %v", text, err)
		}
	}
}

// TestVerifyLooksAtTheAttachmentsInterface (N24, N27): an address of the host's end, or of another
// interface of the pod, is not what was asked for.
func TestVerifyLooksAtTheAttachmentsInterface(t *testing.T) {
	const two = `{"cniVersion":"1.1.0","interfaces":[{"name":"dum0","mac":"02:00:00:00:00:0d","sandbox":"x"},{"name":"eth0","mac":"02:00:00:00:00:01","sandbox":"x"}],` +
		`"ips":[{"address":"10.0.0.5/24","interface":0},{"address":"10.0.0.6/24","interface":1},{"address":"10.0.0.7/24"},{"address":"10.0.0.8/24","interface":-1},{"address":"10.0.0.9/24","interface":2}]}`
	const unsaid = `{"cniVersion":"1.1.0","interfaces":[{"name":"dum0","sandbox":"x"},{"name":"eth0","sandbox":"x"}],"ips":[{"address":"10.0.0.7/24"},{"address":"10.0.0.8/24","interface":-1}]}`
	addr := func(text string) plan.Requested { return plan.Requested{IPs: []netip.Addr{netip.MustParseAddr(text)}} }
	for _, tt := range []struct {
		result string
		want   plan.Requested
		fault  string
	}{
		{results[0], plan.Requested{IPs: []netip.Addr{netip.MustParseAddr("10.0.0.5")}}, ""},
		{results[2], plan.Requested{IPs: []netip.Addr{netip.MustParseAddr("10.0.0.5")}}, ""},
		{results[2], plan.Requested{IPs: []netip.Addr{netip.MustParseAddr("10.0.0.6")}}, "10.0.0.6 was asked for"},
		{results[2], plan.Requested{MAC: "02:00:00:00:00:01"}, ""},
		{results[2], plan.Requested{MAC: "02:00:00:00:00:02"}, "02:00:00:00:00:02 was asked for"},
		{results[3], plan.Requested{MAC: "02:00:00:00:00:02"}, "the result has none"},
		{two, addr("10.0.0.5"), "10.0.0.5 was asked for"},
		{two, addr("10.0.0.6"), ""},
		{two, addr("10.0.0.7"), "10.0.0.7 was asked for"}, // of others it is said
		{two, addr("10.0.0.8"), "10.0.0.8 was asked for"},
		{unsaid, addr("10.0.0.7"), ""},
		{unsaid, addr("10.0.0.8"), ""},
		{two, addr("10.0.0.9"), "10.0.0.9 was asked for"},
		{two, plan.Requested{MAC: "02:00:00:00:00:0d"}, "02:00:00:00:00:0d was asked for"},
		// None has the name: the pod's first.
		{strings.ReplaceAll(two, "eth0", "veth7"), addr("10.0.0.5"), ""},
		{strings.ReplaceAll(two, "eth0", "veth7"), addr("10.0.0.6"), "10.0.0.6 was asked for"},
		// Both are the host's.
		{strings.ReplaceAll(two, `,"sandbox":"x"`, ""), addr("10.0.0.6"), "10.0.0.6 was asked for"},
		{strings.ReplaceAll(two, `,"sandbox":"x"`, ""), addr("10.0.0.7"), ""},
	} {
		result, err := create.CreateFromBytes([]byte(tt.result))
		if err != nil {
			t.Fatal(err)
		}
		full, err := fullOf(result)
		if err != nil {
			t.Fatal(err)
		}
		err = verify(plan.Step{IfName: "eth0", Requested: tt.want}, full, "/run/netns/none")
		if (err == nil) != (tt.fault == "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
			t.Errorf("%+v of %s: %v; want %q", tt.want, tt.result, err, tt.fault)
		}
	}
}

// TestResultThatLacksWhatItIsAbout: the CNI library panics when it converts one.
func TestResultThatLacksWhatItIsAbout(t *testing.T) {
	for _, text := range []string{
		`{"cniVersion":"1.0.0","ips":[{}]}`, `{"cniVersion":"0.4.0","ips":[{"version":"4"}]}`, `{"cniVersion":"0.2.0","ip4":{}}`, `{"cniVersion":"1.1.0","routes":[{"gw":"10.0.0.1"}]}`,
	} {
		result, err := create.CreateFromBytes([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fullOf(result); err == nil || !strings.Contains(err.Error(), "without") {
			t.Errorf("%s: %v; want it refused", text, err)
		}
	}
}

func TestResultWithNullElements(t *testing.T) {
	for _, text := range results {
		if !strings.Contains(text, "[null]") {
			continue
		}
		result, err := create.CreateFromBytes([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fullOf(result); err == nil || !strings.Contains(err.Error(), "null") {
			t.Errorf("%s: %v; want it refused", text, err)
		}
	}
}

// TestReportBoundsWarnings: of many devices that cannot be shown, a few are named.
func TestReportBoundsWarnings(t *testing.T) {
	a := attaching{Runner: &Runner{}}
	for i := range 100 {
		a.Plan.Steps = append(a.Plan.Steps, plan.Step{Name: "a", Default: i == 0})
		a.done = append(a.done, step{full: &types100.Result{}, device: json.RawMessage(`{"version":"1","type":"` + strings.Repeat("x", 100_000) + `"}`)})
	}
	report, err := a.report()
	if err != nil {
		t.Fatal(err)
	}
	if text := report.AppendTo(nil); len(text) > 64<<10 || !bytes.Contains(text, []byte("and 84 more")) {
		t.Errorf("%d bytes; want 64 KB at most, and that there are more", len(text))
	}
}

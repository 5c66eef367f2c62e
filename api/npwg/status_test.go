package npwg

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func ip(address string, index ...int) IP {
	i := IP{Address: netip.MustParsePrefix(address)}
	if len(index) > 0 {
		i.Interface = &index[0]
	}
	return i
}

func route(dst, gateway string) Route {
	r := Route{Dst: netip.MustParsePrefix(dst)}
	if gateway != "" {
		r.Gateway = netip.MustParseAddr(gateway)
	}
	return r
}

var (
	hostVeth = Interface{Name: "veth0", MAC: "02:00:00:00:00:10"}
	eth0     = Interface{Name: "eth0", MAC: "02:00:00:00:00:11", Sandbox: "/ns"}
	eth1     = Interface{Name: "eth1", MAC: "02:00:00:00:00:12", Sandbox: "/ns"}
)

// TestStatus (N49, N50, N51, N54, N55, N56, N58, N59).
func TestStatus(t *testing.T) {
	for _, tt := range []struct {
		name   string
		result *Result
		want   string // ips, interface and mac
	}{
		{"N49 first interface of the pod", &Result{Interfaces: []Interface{hostVeth, eth0, eth1}, IPs: []IP{ip("10.0.0.1/24", 1), ip("10.0.0.2/24", 2)}}, "eth0 02:00:00:00:00:11 10.0.0.1"},
		{"N50 no result", nil, " "},
		{"N51 N58 before 0.3.0", &Result{IPs: []IP{ip("10.0.0.1/24"), ip("fd00::1/64")}}, "net1  10.0.0.1 fd00::1"},
		{"N55 nothing of the pod's", &Result{Interfaces: []Interface{hostVeth}}, "net1 "},
		{"N56 of the host's interface", &Result{Interfaces: []Interface{hostVeth, eth0}, IPs: []IP{ip("10.0.0.1/24", 0)}}, "eth0 02:00:00:00:00:11"},
		{"N56 of the second interface", &Result{Interfaces: []Interface{eth0, eth1}, IPs: []IP{ip("10.0.0.1/24", 1)}}, "eth0 02:00:00:00:00:11"},
		{"N56 rule 1, both families", &Result{Interfaces: []Interface{eth0}, IPs: []IP{ip("10.0.0.1/24", 0), ip("fd00::1/64", 0)}}, "eth0 02:00:00:00:00:11 10.0.0.1 fd00::1"},
		{"N56 rule 1, some without index", &Result{Interfaces: []Interface{eth0}, IPs: []IP{ip("10.0.0.9/24"), ip("10.0.0.1/24", 0)}}, "eth0 02:00:00:00:00:11 10.0.0.1"},
		{"N56 no index at all", &Result{Interfaces: []Interface{hostVeth, eth0}, IPs: []IP{ip("10.0.0.1/24"), ip("10.0.0.2/24", -1)}}, "eth0 02:00:00:00:00:11 10.0.0.1 10.0.0.2"},
		{"N56 rule 2, first of a family", &Result{IPs: []IP{ip("10.0.0.1/24"), ip("10.0.0.2/24", -1), ip("fd00::1/64")}}, "net1  10.0.0.1 fd00::1"},
		{"N56 rule 2, index of nothing of the pod's", &Result{Interfaces: []Interface{hostVeth}, IPs: []IP{ip("10.0.0.1/24", 0), ip("10.0.0.2/24")}}, "net1  10.0.0.2"},
		{"index beyond the interfaces", &Result{Interfaces: []Interface{eth0}, IPs: []IP{ip("10.0.0.1/24", 7)}}, "eth0 02:00:00:00:00:11"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := StatusOf(Attachment{Name: "ns/a", IfName: "net1"}, tt.result)
			got := strings.TrimSuffix(strings.Join(append([]string{s.Interface, s.MAC}, s.IPs...), " "), " ")
			if got != strings.TrimSuffix(tt.want, " ") || s.Name != "ns/a" {
				t.Errorf("status %+v: %q; want %q", s, got, tt.want)
			}
		})
	}
}

// TestStatusText (N47, N48, N53, N57, N60, N61, N62, N65).
func TestStatusText(t *testing.T) {
	result := &Result{
		Interfaces: []Interface{eth0}, IPs: []IP{ip("10.0.0.1/24", 0)}, DNS: DNS{Nameservers: []string{"10.0.0.53"}, Search: []string{"example.com"}},
		Routes: []Route{route("10.1.0.0/16", "10.0.0.7"), route("0.0.0.0/1", "10.0.0.8"), route("0.0.0.0/0", "10.0.0.254")},
	}
	empty, gateways := []netip.Addr{}, []netip.Addr{netip.MustParseAddr("10.0.0.3"), netip.MustParseAddr("fd00::3")}
	const head = `{"name":"ns/a","interface":"eth0","ips":["10.0.0.1"],"mac":"02:00:00:00:00:11","default":false,"dns":{"nameservers":["10.0.0.53"],"search":["example.com"]}`
	for _, tt := range []struct {
		name       string
		attachment Attachment
		result     *Result
		want       string
	}{
		{"N60 default is always there", Attachment{Name: "ns/a"}, nil, `{"name":"ns/a","default":false}`},
		{"N52 N60 the default network's", Attachment{Name: "cluster", Default: true}, nil, `{"name":"cluster","default":true}`},
		{"N61 N62 dns, gateway", Attachment{Name: "ns/a"}, result, head + `,"gateway":["10.0.0.254"]}`},
		{"N62 default-route asked for", Attachment{Name: "ns/a", DefaultRoute: &gateways}, result, head + `,"default-route":["10.0.0.3","fd00::3"],"gateway":["10.0.0.3","fd00::3"]}`},
		{"N62 empty default-route", Attachment{Name: "ns/a", DefaultRoute: &empty}, result, head + `,"default-route":["10.0.0.254"],"gateway":["10.0.0.254"]}`},
		{"N57 with prefix lengths", Attachment{Name: "ns/a", CIDRs: true}, &Result{IPs: []IP{ip("10.0.0.1/24")}}, `{"name":"ns/a","ips":["10.0.0.1/24"],"default":false}`},
		{"N61 no dns", Attachment{Name: "ns/a"}, &Result{}, `{"name":"ns/a","default":false}`},
		{"N63 N65 device and GUID", Attachment{Name: "ns/a", DeviceInfo: json.RawMessage(`{"type":"pci"}`), GUID: "24:8a"}, &Result{}, `{"name":"ns/a","default":false,"device-info":{"type":"pci"},"infiniband-guid":"24:8a"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := json.Marshal(StatusOf(tt.attachment, tt.result))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	t.Run("N62 gateways of the addresses", func(t *testing.T) {
		withGateway := ip("fd00::1/64")
		withGateway.Gateway = netip.MustParseAddr("fd00::fe")
		got := StatusOf(Attachment{}, &Result{IPs: []IP{ip("10.0.0.1/24"), withGateway}, Routes: []Route{route("0.0.0.0/0", ""), route("::/0", ""), route("::/0", "fd00::fe")}})
		if diff := cmp.Diff([]string{"fd00::fe"}, got.Gateway); diff != "" {
			t.Errorf("gateway (-want +got):\n%s", diff)
		}
	})
	t.Run("N53 keys of our own have a period", func(t *testing.T) {
		got, err := json.Marshal(Status{Warnings: []string{"w"}})
		if err != nil || !strings.Contains(string(got), `"dev.tenure.warnings":["w"]`) {
			t.Errorf("%s, %v; want the warnings under a key of reverse domain name notation", got, err)
		}
	})
}

// TestCheckDeviceInfo (N63).
func TestCheckDeviceInfo(t *testing.T) {
	for _, good := range []string{
		`{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:18:02.5","pf-pci-address":"x"}}`,
		`{"type":"vdpa","version":"1.0.0","vdpa":{"parent-device":"p","driver":"vhost","path":"/dev/vhost-vdpa0"}}`,
		`{"type":"vhost-user","version":"1.0.0","vhost-user":{"mode":"client","path":"/s"}}`,
		`{"type":"memif","version":"1.0.0","memif":{"role":"master","path":"/m","mode":"ip"}}`,
	} {
		if err := CheckDeviceInfo(json.RawMessage(good)); err != nil {
			t.Errorf("CheckDeviceInfo(%s): %v", good, err)
		}
	}
	for bad, want := range map[string]string{
		`[]`:                                    "not an object",
		`{}`:                                    "type and version",
		`{"type":"pci"}`:                        "type and version",
		`{"type":"usb","version":"1"}`:          `"usb" is none of`,
		`{"type":"pci","version":"1"}`:          "pci: an object",
		`{"type":"pci","version":"1","pci":{}}`: "pci.pci-address",
		`{"type":"memif","version":"1","memif":{"role":"a","path":"b","mode":1}}`: "memif.mode",
	} {
		if err := CheckDeviceInfo(json.RawMessage(bad)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("CheckDeviceInfo(%s): %v; want an error with %q", bad, err, want)
		}
	}
}

// FuzzStatusOf builds the status of any result, and reads it back.
func FuzzStatusOf(f *testing.F) {
	f.Add("veth0", "", "eth0", "/ns", []byte{10, 0, 0, 1}, 24, 1, "0.0.0.0/0", true)
	f.Add("a", "/ns", "b", "", []byte{0xfd, 15: 1}, 64, -1, "::/0", false)
	f.Fuzz(func(t *testing.T, name1, sandbox1, name2, sandbox2 string, address []byte, bits, index int, dst string, asked bool) {
		r := &Result{Interfaces: []Interface{{Name: name1, Sandbox: sandbox1}, {Name: name2, Sandbox: sandbox2}}}
		if addr, ok := netip.AddrFromSlice(address); ok && netip.PrefixFrom(addr, bits).IsValid() {
			r.IPs = []IP{{Address: netip.PrefixFrom(addr, bits), Gateway: addr, Interface: &index}, {Address: netip.PrefixFrom(addr, bits)}}
		}
		if p, err := netip.ParsePrefix(dst); err == nil {
			r.Routes = []Route{{Dst: p}}
		}
		a := Attachment{Name: "ns/a", IfName: "net1"}
		if asked {
			a.DefaultRoute = &[]netip.Addr{}
		}
		s := StatusOf(a, r)
		if s.MAC != "" && s.Interface == "" {
			t.Errorf("%+v: a MAC without an interface (5.3.4)", s)
		}
		for _, ip := range s.IPs {
			if _, err := netip.ParseAddr(ip); err != nil {
				t.Errorf("%+v: %v", s, err)
			}
		}
		if raw, err := json.Marshal(s); err != nil || !strings.Contains(string(raw), `"default":false`) {
			t.Errorf("%s, %v; want JSON with default", raw, err)
		}
	})
}

// TestStatusIsOf: a pod keeps the annotation of an earlier sandbox.
func TestStatusIsOf(t *testing.T) {
	here := []netip.Addr{netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("2001:db8::2")}
	for text, want := range map[string]bool{
		"":   false,
		"[]": false,
		"{":  false,
		`[{"name":"a","default":true,"ips":["10.1.0.2"]}]`:                                                 true,
		`[{"name":"a","default":true,"ips":["2001:db8::2/64","10.9.0.1"]}]`:                                true,
		`[{"name":"a","default":true,"ips":["10.1.0.3"]}]`:                                                 false,
		`[{"name":"a","default":true,"ips":["10.1.0.3"]},{"name":"b","default":false,"ips":["10.1.0.2"]}]`: false,
		`[{"name":"a","default":true}]`:                                                                    true,
		`[{"name":"a","default":true,"ips":["x"]}]`:                                                        true,
	} {
		if got := StatusIsOf(text, here); got != want {
			t.Errorf("StatusIsOf(%s) = %t; want %t", text, got, want)
		}
	}
	if !StatusIsOf(`[{"name":"a","default":true,"ips":["10.1.0.3"]}]`, nil) {
		t.Error("of a sandbox whose addresses are not known nothing can be told")
	}
}

package npwg

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var addresses = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})}

// TestParse (N14, N15, N16, N19).
func TestParse(t *testing.T) {
	addr := netip.MustParseAddr
	tests := []struct {
		name, annotation string
		want             []Selection
	}{
		{"nothing", " \n", nil},
		{"N15 names", "net-a,net-b, other-ns/net-c\n", []Selection{
			{Namespace: "ns", Name: "net-a", Interface: "net1"}, {Namespace: "ns", Name: "net-b", Interface: "net2"}, {Namespace: "other-ns", Name: "net-c", Interface: "net3"}}},
		{"N6 periods", "a.b-c.d", []Selection{{Namespace: "ns", Name: "a.b-c.d", Interface: "net1"}}},
		{"N16 interface", "a/b@eth7", []Selection{{Namespace: "a", Name: "b", Interface: "eth7", Named: true}}},
		{"N14 JSON", `[{"name":"net-a","namespace":""},{"name":"net-b","namespace":"x","interface":"lan0","ipam-claim-reference":"c"}]`, []Selection{
			{Namespace: "ns", Name: "net-a", Interface: "net1"}, {Namespace: "x", Name: "net-b", Interface: "lan0", Named: true, Claim: "c"}}},
		{"N28 interfaceRequest, as older charts write it", `[{"name":"a","interfaceRequest":"lan0"},{"name":"b","interface":"lan1","interfaceRequest":"lan9"},{"name":"c","interface":"","interfaceRequest":"lan2"}]`, []Selection{
			{Namespace: "ns", Name: "a", Interface: "lan0", Named: true}, {Namespace: "ns", Name: "b", Interface: "lan1", Named: true}, {Namespace: "ns", Name: "c", Interface: "lan2", Named: true}}},
		{"N20 ips", `[{"name":"n","ips":["10.0.0.5/24","2001:db8::5"]}]`, []Selection{
			{Namespace: "ns", Name: "n", Interface: "net1", IPs: []RequestedIP{{addr("10.0.0.5"), 24}, {addr("2001:db8::5"), 0}}}}},
		{"N17 unknown key", `[{"name":"n","org.foo.bar.k":1}]`, []Selection{{Namespace: "ns", Name: "n", Interface: "net1", Other: map[string]json.RawMessage{"org.foo.bar.k": json.RawMessage("1")}}}},
		{"keys are case-sensitive", `[{"name":"n","IPS":1}]`, []Selection{{Namespace: "ns", Name: "n", Interface: "net1", Other: map[string]json.RawMessage{"IPS": json.RawMessage("1")}}}},
		{"null and empty are absent", `[{"name":"n","ips":null,"mac":"","interface":"","infiniband-guid":"","ipam-claim-reference":"","cni-args":null}]`, []Selection{{Namespace: "ns", Name: "n", Interface: "net1"}}},
		{"N25 mac", `[{"name":"n","mac":"02-23-45-67-89-AB"}]`, []Selection{{Namespace: "ns", Name: "n", Interface: "net1", MAC: "02:23:45:67:89:ab"}}},
		{"N31 cni-args", `[{"name":"n","cni-args":{"a":[1]}}]`, []Selection{{Namespace: "ns", Name: "n", Interface: "net1", CNIArgs: map[string]json.RawMessage{"a": json.RawMessage("[1]")}}}},
		{"N33 portMappings", `[{"name":"n","portMappings":[{"hostPort":1,"containerPort":65535},{"hostPort":80,"containerPort":81,"protocol":"TcP","hostIP":"::1"},{"hostPort":4,"containerPort":5,"protocol":null,"hostIP":null},{"hostPort":2,"containerPort":3,"protocol":"SCTP"}]}]`,
			[]Selection{{Namespace: "ns", Name: "n", Interface: "net1", PortMappings: []PortMapping{{1, 65535, "tcp", ""}, {80, 81, "tcp", "::1"}, {4, 5, "tcp", ""}, {2, 3, "sctp", ""}}}}},
		{"N35 bandwidth", `[{"name":"n","bandwidth":{"ingressRate":1,"ingressBurst":2,"egressRate":18446744073709551615}}]`,
			[]Selection{{Namespace: "ns", Name: "n", Interface: "net1", Bandwidth: &Bandwidth{IngressRate: 1, IngressBurst: 2, EgressRate: 18446744073709551615}}}},
		{"N37 default-route", `[{"name":"n","default-route":["10.0.0.1","::1"]},{"name":"n"}]`,
			[]Selection{{Namespace: "ns", Name: "n", Interface: "net1", DefaultRoute: &[]netip.Addr{addr("10.0.0.1"), addr("::1")}}, {Namespace: "ns", Name: "n", Interface: "net2"}}},
		{"N37 empty default-route", `[{"name":"n","default-route":[]}]`, []Selection{{Namespace: "ns", Name: "n", Interface: "net1", DefaultRoute: &[]netip.Addr{}}}},
		{"N41 infiniband-guid", `[{"name":"n","infiniband-guid":"24:8A:07:03:00:8d:ae:2f"}]`, []Selection{{Namespace: "ns", Name: "n", Interface: "net1", GUID: "24:8a:07:03:00:8d:ae:2f"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse(tt.annotation, "ns", nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, addresses); diff != "" {
				t.Errorf("Parse (-want +got):\n%s", diff)
			}
		})
	}
}

// A1, A2: whatever is wrong with an annotation, it is invalid as a whole.
func TestParseFaults(t *testing.T) {
	for _, tt := range []struct{ name, annotation, want string }{
		{"N18 no name", `[{"namespace":"a"}]`, "element 1: name: missing"},
		{"N18 empty name", `[{"name":""}]`, "name: missing"},
		{"N18 number", `[{"name":1}]`, "name: 1 is not a string"},
		{"N6 underscore", `[{"name":"Net_A"}]`, `"Net_A" is no name of a definition`},
		{"N6 underscore in a list", "a,Net_A", `element 2, "Net_A"`},
		{"N6 empty unit", "a..b", "is no name of a definition"},
		{"N6 hyphen", "a-", "is no name of a definition"},
		{"N6 long", strings.Repeat("a", 254), "more than 253"},
		{"N19 namespace", `[{"name":"a","namespace":"a.b"}]`, "is no name of a namespace"},
		{"N19 namespace is a list", `[{"name":"a","namespace":[]}]`, "namespace: [] is not a string"},
		{"N15 nothing between commas", "a,,b", `element 2, "": `},
		{"N20 bad address", `[{"name":"n"},{"name":"n","ips":["10.1.1.300"]}]`, `element 2: ips: "10.1.1.300"`},
		{"N20 not a list", `[{"name":"n","ips":"10.1.1.6/24"}]`, "not a list"},
		{"N20 empty", `[{"name":"n","ips":[]}]`, "ips: [] is not a list of one address or more"},
		{"N20 number", `[{"name":"n","ips":[1]}]`, "ips: [1]"},
		{"N20 zone", `[{"name":"n","ips":["fe80::1%eth0"]}]`, "fe80::1%eth0"},
		{"N20 prefix length", `[{"name":"n","ips":["10.0.0.1/33"]}]`, "10.0.0.1/33"},
		{"N20 prefix length 0", `[{"name":"n","ips":["10.0.0.1/0"]}]`, "10.0.0.1/0"},
		{"N25 no hexadecimal", `[{"name":"n","mac":"zz:00:00:00:00:00"}]`, "6-byte MAC"},
		{"N25 8 bytes", `[{"name":"n","mac":"24:8a:07:03:00:8d:ae:2f"}]`, "6-byte MAC"},
		{"N25 20 bytes", `[{"name":"n","mac":"80:00:11:22:33:44:55:66:77:88:99:aa:bb:cc:dd:ee:ff:00:11:22"}]`, "6-byte MAC"},
		{"N25 number", `[{"name":"n","mac":2}]`, "mac: 2 is not a string"},
		{"N28 16 characters", `[{"name":"n","interface":"a234567890123456"}]`, "is no interface name"},
		{"N28 slash", `[{"name":"n","interface":"a/b"}]`, "is no interface name"},
		{"N28 colon", `[{"name":"n","interface":"a:b"}]`, "is no interface name"},
		{"N28 space", `[{"name":"n","interface":"a b"}]`, "is no interface name"},
		{"N28 dots", `[{"name":"n","interface":".."}]`, "is no interface name"},
		{"N28 in a list", "a@", "is no interface name"},
		{"N28 interfaceRequest", `[{"name":"n","interfaceRequest":"a/b"}]`, "interfaceRequest: \"a/b\" is no interface name"},
		{"N28 number", `[{"name":"n","interface":1}]`, "interface: 1 is not a string"},
		{"N31 list", `[{"name":"n","cni-args":["a"]}]`, "cni-args"},
		{"N33 port 0", `[{"name":"n","portMappings":[{"hostPort":0,"containerPort":1}]}]`, "from 1 to 65535"},
		{"N33 port 65536", `[{"name":"n","portMappings":[{"hostPort":1,"containerPort":65536}]}]`, "from 1 to 65535"},
		{"N33 no containerPort", `[{"name":"n","portMappings":[{"hostPort":1}]}]`, "containerPort 0"},
		{"N33 protocol", `[{"name":"n","portMappings":[{"hostPort":1,"containerPort":1,"protocol":"icmp"}]}]`, `"icmp"`},
		{"N33 empty", `[{"name":"n","portMappings":[]}]`, "portMappings"},
		{"N33 hostPort in another case", `[{"name":"n","portMappings":[{"HostPort":1,"containerPort":1}]}]`, "HostPort"},
		{"N33 containerPort in another case", `[{"name":"n","portMappings":[{"hostPort":1,"containerport":1}]}]`, "containerport"},
		{"N33 protocol in another case, which would be TCP", `[{"name":"n","portMappings":[{"hostPort":1,"containerPort":1,"Protocol":"UDP"}]}]`, "Protocol"},
		{"N33 hostIP in another case, which would be any address", `[{"name":"n","portMappings":[{"hostPort":1,"containerPort":1,"hostip":"192.0.2.1"}]}]`, "hostip"},
		{"N33 the right key and one in another case", `[{"name":"n","portMappings":[{"hostPort":1,"HOSTPORT":2,"containerPort":1}]}]`, "HOSTPORT"},
		{"N33 negative", `[{"name":"n","portMappings":[{"hostPort":-1,"containerPort":1}]}]`, "hostPort: -1 is no port"},
		{"N33 fraction", `[{"name":"n","portMappings":[{"hostPort":1.5,"containerPort":1}]}]`, "hostPort: 1.5 is no port"},
		{"N33 null", `[{"name":"n","portMappings":[{"hostPort":null,"containerPort":1}]}]`, "hostPort 0"},
		{"N33 a mapping that is null", `[{"name":"n","portMappings":[null]}]`, "hostPort 0"},
		{"N33 protocol that is no text", `[{"name":"n","portMappings":[{"hostPort":1,"containerPort":1,"protocol":6}]}]`, "protocol: 6 is not a string"},
		{"N33 text", `[{"name":"n","portMappings":[{"hostPort":"1","containerPort":1}]}]`, "portMappings"},
		{"N33 host address", `[{"name":"n","portMappings":[{"hostPort":1,"containerPort":1,"hostIP":"x"}]}]`, "hostIP"},
		{"N35 empty", `[{"name":"n","bandwidth":{}}]`, "bandwidth"},
		{"N35 zero", `[{"name":"n","bandwidth":{"ingressRate":0}}]`, "above 0"},
		{"N35 negative", `[{"name":"n","bandwidth":{"egressRate":-1}}]`, "above 0"},
		{"N35 fraction", `[{"name":"n","bandwidth":{"egressRate":1.5}}]`, "above 0"},
		{"N35 burst alone", `[{"name":"n","bandwidth":{"ingressBurst":1}}]`, "needs the rate"},
		{"N35 rate of the other direction", `[{"name":"n","bandwidth":{"ingressRate":1,"egressBurst":1}}]`, "needs the rate"},
		{"N35 unknown", `[{"name":"n","bandwidth":{"rate":1}}]`, "rate is none of"},
		{"N37 on two elements", `[{"name":"a","default-route":[]},{"name":"b","default-route":["10.0.0.1"]}]`, "elements 1 (ns/a) and 2 (ns/b)"},
		{"N40 no address", `[{"name":"a","default-route":["10.0.0"]}]`, `"10.0.0" is no IP address`},
		{"N40 not one address", `[{"name":"a","default-route":["0.0.0.0"]}]`, "0.0.0.0 is no gateway's address"},
		{"N40 no list", `[{"name":"a","default-route":"10.0.0.1"}]`, "not a list"},
		{"N41 6 bytes", `[{"name":"a","infiniband-guid":"02:00:00:00:00:01"}]`, "8-byte GUID"},
		{"N42 number", `[{"name":"a","ipam-claim-reference":1}]`, "not a string"},
		{"N16 too many parts", "a/b/c", "[namespace/]name[@interface]"},
		{"N16 two interfaces", "a@b@c", "[namespace/]name[@interface]"},
		{"A1 not JSON", `[{`, "a JSON list"},
		{"A1 an object", `{"name":"a"}`, "a JSON list"},
		{"A1 elements that are none", `["a"]`, `element 1: "a" is not an object`},
		{"A1 null", `[null]`, "element 1: null is not an object"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse(tt.annotation, "ns", nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Parse(%s) = %v; want an error with %q", tt.annotation, err, tt.want)
			}
		})
	}
	t.Run("all faults at once", func(t *testing.T) {
		got, err := Parse(`[{"name":"a","mac":"x","ips":[],"ipam-claim-reference":"c"},{"name":"B"}]`, "ns", nil)
		for _, want := range []string{"element 1: ips", "mac", "element 2: name"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Parse: %v; want %q in it", err, want)
			}
		}
		if len(got) != 2 || got[0].Claim != "c" || got[0].Interface != "net1" {
			t.Errorf("Parse returns %+v; want what could be read", got)
		}
	})
}

// TestParseReadsNoMoreThanAPodMaySelect (A1): of an annotation that fills all its room, no more
// elements are read and looked up than a pod may select, and the error says how many that is.
func TestParseReadsNoMoreThanAPodMaySelect(t *testing.T) {
	list := func(item string, n int) string { return item + strings.Repeat(","+item, n-1) }
	for _, tt := range []struct {
		name, annotation, want string
		read                   int
	}{
		{"as many names as may be", list("x", MaxSelections), "", MaxSelections},
		{"as many elements as may be", "[" + list(`{"name":"x"}`, MaxSelections) + "]", "", MaxSelections},
		{"one name more", list("x", MaxSelections+1), "it selects 1025 networks; a pod may select 1024", MaxSelections},
		{"one element more", "[" + list(`{"name":"x"}`, MaxSelections+1) + "]", "it selects 1025 networks; a pod may select 1024", MaxSelections},
		{"names that fill it", list("x", 131_072), "it selects 131072 networks; a pod may select 1024", MaxSelections},
		{"elements that fill it", "[" + list(`{"name":"x"}`, 20_000) + "]", "it selects 20000 networks; a pod may select 1024", MaxSelections},
		{"longer than any", list("x", 131_073), "it has 262145 bytes; the annotations of an object may have 262144", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lookedUp := 0
			got, err := Parse(tt.annotation, "ns", func(string, string) Version { lookedUp++; return V13 })
			if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("Parse: %v; want %q", err, tt.want)
			}
			if len(got) != tt.read || lookedUp > tt.read {
				t.Errorf("%d elements were read, %d looked up; want %d", len(got), lookedUp, tt.read)
			}
		})
	}
}

// TestParseByVersion (N24, N27).
func TestParseByVersion(t *testing.T) {
	const longMAC = "80:00:11:22:33:44:55:66:77:88:99:aa:bb:cc:dd:ee:ff:00:11:22"
	version := func(v Version) func(string, string) Version { return func(string, string) Version { return v } }
	got, err := Parse(`[{"name":"a","mac":"`+longMAC+`","ips":["10.0.0.1"],"bandwidth":1,"default-route":1}]`, "ns", version(V1))
	if err != nil || got[0].MAC != longMAC || got[0].Bandwidth != nil || len(got[0].Other) != 2 {
		t.Errorf("Parse = %+v, %v; want version 1's keys, and the others kept", got, err)
	}
	if _, err := Parse(`[{"name":"a","ips":["10.0.0.1/24"]}]`, "ns", version(V1)); err == nil || !strings.Contains(err.Error(), "prefix length") {
		t.Errorf("Parse: %v; want an error about the prefix length", err)
	}
	if got, err := Parse(`[{"name":"a","mac":"`+longMAC+`","ips":["10.0.0.1/24"],"ipam-claim-reference":"c"}]`, "ns", version(Any)); err != nil || got[0].Claim != "c" {
		t.Errorf("Parse = %+v, %v; want what either version takes", got, err)
	}
	mixed := func(_, name string) Version {
		if name == "old" {
			return V1
		}
		return V13
	}
	if _, err := Parse(`[{"name":"old","mac":"`+longMAC+`"},{"name":"new","ips":["10.0.0.1/24"]}]`, "ns", mixed); err != nil {
		t.Errorf("Parse: %v; want each element read by its own version", err)
	}
	if _, err := Parse(`[{"name":"new","mac":"`+longMAC+`"},{"name":"old"}]`, "ns", mixed); err == nil {
		t.Error("Parse reads a MAC of 20 bytes by version 1.3")
	}
}

func TestByInterface(t *testing.T) {
	selections, err := Parse("a,b@lan0", "ns", nil)
	if err != nil {
		t.Fatal(err)
	}
	if s, ok := ByInterface(selections, "lan0"); !ok || s.String() != "ns/b" {
		t.Errorf("ByInterface(lan0) = %v, %t; want ns/b", s, ok)
	}
	if s, ok := ByInterface(selections, "net2"); ok {
		t.Errorf("ByInterface(net2) = %v; want none", s)
	}
	// Who asks for a name has it, and not whose place would give it.
	if s, ok := ByInterface(append(selections, Selection{Namespace: "ns", Name: "c", Interface: "net1", Named: true}), "net1"); !ok || s.Name != "c" {
		t.Errorf("ByInterface(net1) = %v, %t; want ns/c", s, ok)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("a,b/c@d")
	f.Add(`[{"name":"n","ips":["10.0.0.5/24"],"interface":"x"}]`)
	f.Add(`[{"name":"n","mac":"02:00:00:00:00:01","portMappings":[{"hostPort":1,"containerPort":2}],"bandwidth":{"ingressRate":1},"default-route":["::1"],"a.b":1}]`)
	f.Fuzz(func(t *testing.T, annotation string) {
		for _, v := range []Version{V13, V1, Any} {
			selections, err := Parse(annotation, "ns", func(string, string) Version { return v })
			if err != nil {
				continue
			}
			for i, s := range selections {
				if CheckName(s.Name) != nil || CheckNamespace(s.Namespace) != nil || CheckInterface(s.Interface) != nil {
					t.Errorf("Parse(%q)[%d] = %+v; want valid names", annotation, i, s)
				}
				for _, ip := range s.IPs {
					if again, err := ParseIP(ip.String()); err != nil || again != ip {
						t.Errorf("Parse(%q)[%d]: address %v reads as %v, %v", annotation, i, ip, again, err)
					}
				}
			}
		}
	})
}

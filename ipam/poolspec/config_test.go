package poolspec

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/allocator"
)

// network returns a configuration with these members of "ipam", and of the top.
func network(ipam string, top ...string) string {
	if ipam != "" {
		ipam = ", " + ipam
	}
	members := append([]string{
		`"cniVersion": "1.0.0", "name": "storage", "type": "macvlan", "master": "eth1", "mode": "bridge"`,
		`"ipam": {"type": "tenure"` + ipam + `}`,
	}, top...)
	return "{" + strings.Join(members, ", ") + "}"
}

// describe says of each source "POOL FAMILIES VIEW".
func describe(c *Config) []string {
	var out []string
	for _, s := range c.Sources {
		families := "all"
		if s.Families != nil {
			families = strings.Trim(fmt.Sprint(s.Families), "[]")
		}
		pool := s.Pool
		if s.Unnamed {
			pool = DefaultDomain
		}
		out = append(out, fmt.Sprintf("%s %s %v", pool, families, s.View))
	}
	return out
}

// describePool says of each range "CIDR [START-END] [without EXCLUDES] [via GATEWAY]".
func describePool(t PoolText) []string {
	var out []string
	for _, r := range t.Ranges {
		s := r.CIDR
		if r.Start != "" || r.End != "" {
			s += " " + r.Start + "-" + r.End
		}
		if len(r.Exclude) > 0 {
			s += " without " + strings.Join(r.Exclude, ",")
		}
		if r.Gateway != "" {
			s += " via " + r.Gateway
		}
		out = append(out, s)
	}
	return out
}

func mustParse(t testing.TB, config, args string) *Config {
	t.Helper()
	c, err := ParseConfig([]byte(config), args)
	if err != nil {
		t.Fatalf("ParseConfig(%s): %v", config, err)
	}
	return c
}

func TestSources(t *testing.T) {
	tests := []struct {
		name    string
		ipam    string
		top     string
		sources []string
		pool    []string // the implicit text of the first source
	}{
		{
			name:    "a named pool",
			ipam:    `"pool": "vlan-100"`,
			sources: []string{"vlan-100 all everything"},
		},
		{
			name:    "several named pools, in order",
			ipam:    `"pool": "b", "pools": ["a", "c"]`,
			sources: []string{"b all everything", "a all everything", "c all everything"},
		},
		{
			name:    "whereabouts: a range",
			ipam:    `"range": "10.10.0.0/16"`,
			sources: []string{"default-domain IPv4 10.10.0.1-10.10.255.254"},
			pool:    []string{"10.10.0.0/16"},
		},
		{
			name:    "whereabouts: host bits of range and exclude mean nothing",
			ipam:    `"range": "192.168.2.225/28", "exclude": ["192.168.2.229/30", "192.168.2.236/32"]`,
			sources: []string{"default-domain IPv4 192.168.2.225-192.168.2.227,192.168.2.232-192.168.2.235,192.168.2.237-192.168.2.238"},
			pool:    []string{"192.168.2.224/28 without 192.168.2.228/30,192.168.2.236"},
		},
		{
			name:    "whereabouts: first-last/length",
			ipam:    `"range": "192.168.2.225-192.168.2.230/28"`,
			sources: []string{"default-domain IPv4 192.168.2.225-192.168.2.230"},
			pool:    []string{"192.168.2.224/28 192.168.2.225-192.168.2.230"},
		},
		{
			name:    "whereabouts: first-last/length with the same said again",
			ipam:    `"range": "192.168.2.225-192.168.2.230/28", "range_start": "192.168.2.225", "range_end": "192.168.2.230"`,
			sources: []string{"default-domain IPv4 192.168.2.225-192.168.2.230"},
		},
		{
			name:    "whereabouts: IPv6 first-last/length",
			ipam:    `"range": "fd00::10-fd00::1f/64", "gateway": "fd00::1"`,
			sources: []string{"default-domain IPv6 fd00::10-fd00::1f"},
			pool:    []string{"fd00::/64 fd00::10-fd00::1f via fd00::1"},
		},
		{
			name:    "whereabouts: start, end, exclude and gateway",
			ipam:    `"range": "10.0.0.0/24", "range_start": "10.0.0.10", "range_end": "10.0.0.20", "exclude": ["10.0.0.12-10.0.0.14", "10.0.0.16"], "gateway": "10.0.0.1"`,
			sources: []string{"default-domain IPv4 10.0.0.10-10.0.0.11,10.0.0.15-10.0.0.15,10.0.0.17-10.0.0.20"},
			pool:    []string{"10.0.0.0/24 10.0.0.10-10.0.0.20 without 10.0.0.12-10.0.0.14,10.0.0.16 via 10.0.0.1"},
		},
		{
			name:    "whereabouts: dual stack from ipRanges",
			ipam:    `"ipRanges": [{"range": "192.168.10.1/24"}, {"range": "abcd::1/64", "range_start": "abcd::5"}]`,
			sources: []string{"default-domain IPv4 192.168.10.1-192.168.10.254", "default-domain IPv6 abcd::5-abcd::ffff:ffff:ffff:ffff"},
			pool:    []string{"192.168.10.0/24", "abcd::/64 abcd::5-"},
		},
		{
			name:    "whereabouts: ipRanges together with the old range, which comes first",
			ipam:    `"ipRanges": [{"range": "192.168.10.1/24"}, {"range": "176.168.10.1/16"}], "range": "abcd::1/64"`,
			sources: []string{"default-domain IPv6 abcd::1-abcd::ffff:ffff:ffff:ffff", "default-domain IPv4 192.168.10.1-192.168.10.254", "default-domain IPv4 176.168.0.1-176.168.255.254"},
			pool:    []string{"176.168.0.0/16", "192.168.10.0/24", "abcd::/64"},
		},
		{
			name:    "whereabouts: two addresses of one range",
			ipam:    `"ipRanges": [{"range": "10.0.0.0/29", "exclude": ["10.0.0.1"]}, {"range": "10.0.0.0/29", "exclude": ["10.0.0.6"]}]`,
			sources: []string{"default-domain IPv4 10.0.0.2-10.0.0.6", "default-domain IPv4 10.0.0.1-10.0.0.5"},
			pool:    []string{"10.0.0.0/29"},
		},
		{
			name:    "whereabouts: /32 and /31 have all their addresses",
			ipam:    `"ipRanges": [{"range": "10.0.0.5/32"}, {"range": "10.0.1.4/31"}]`,
			sources: []string{"default-domain IPv4 10.0.0.5-10.0.0.5", "default-domain IPv4 10.0.1.4-10.0.1.5"},
		},
		{
			name:    "whereabouts: network_name is the domain",
			ipam:    `"range": "10.0.0.0/29", "network_name": "blue"`,
			sources: []string{"blue IPv4 10.0.0.1-10.0.0.6"},
		},
		{
			name:    "whereabouts: a network_name that cannot be a pool's name",
			ipam:    `"range": "10.0.0.0/29", "network_name": "Blue_Net"`,
			sources: []string{"blue-net-374dc56352 IPv4 10.0.0.1-10.0.0.6"},
		},
		{
			name:    "whereabouts: overlapping ranges protected share one domain",
			ipam:    `"range": "10.0.0.0/29", "enable_overlapping_ranges": true`,
			sources: []string{"default-domain IPv4 10.0.0.1-10.0.0.6"},
		},
		{
			name:    "whereabouts: unprotected, each range is a domain",
			ipam:    `"ipRanges": [{"range": "10.0.0.0/29"}, {"range": "fd00::/64"}], "enable_overlapping_ranges": false`,
			sources: []string{"10-0-0-0-29 IPv4 10.0.0.1-10.0.0.6", "fd00---64 IPv6 fd00::1-fd00::ffff:ffff:ffff:ffff"},
			pool:    []string{"10.0.0.0/29"},
		},
		{
			name:    "whereabouts: unprotected within a named network",
			ipam:    `"range": "10.0.0.0/29", "enable_overlapping_ranges": false, "network_name": "blue"`,
			sources: []string{"blue-10-0-0-0-29 IPv4 10.0.0.1-10.0.0.6"},
		},
		{
			name:    "whereabouts: unprotected, and no address in common",
			ipam:    `"range": "10.0.0.0/29", "exclude": ["10.0.0.4/30"], "ipRanges": [{"range": "10.0.0.4/30"}], "enable_overlapping_ranges": false`,
			sources: []string{"10-0-0-0-29 IPv4 10.0.0.1-10.0.0.3", "10-0-0-4-30 IPv4 10.0.0.5-10.0.0.6"},
			pool:    []string{"10.0.0.0/29 -10.0.0.3"},
		},
		{
			name:    "whereabouts in local mode: the network's own, whatever else is said",
			ipam:    `"mode": "local", "ipRanges": [{"range": "10.0.0.0/29"}, {"range": "10.0.0.0/30"}], "enable_overlapping_ranges": false, "network_name": "blue"`,
			sources: []string{"storage IPv4 10.0.0.1-10.0.0.6", "storage IPv4 10.0.0.1-10.0.0.2"},
			pool:    []string{"10.0.0.0/29"},
		},
		{
			name:    "whereabouts: nothing said counts as absent",
			ipam:    `"range": "10.0.0.0/29", "range_start": "", "ipRanges": [], "exclude": null, "gateway": "", "subnet": "", "pool": "", "addresses": [], "enable_l3": false`,
			sources: []string{"default-domain IPv4 10.0.0.1-10.0.0.6"},
		},
		{
			name:    "host-local: a subnet; the first address is the gateway",
			ipam:    `"subnet": "10.10.0.0/24"`,
			sources: []string{"storage IPv4 10.10.0.2-10.10.0.254"},
			pool:    []string{"10.10.0.0/24 via 10.10.0.1"},
		},
		{
			name:    "host-local: IPv6 keeps its last address",
			ipam:    `"subnet": "fd00::/120"`,
			sources: []string{"storage IPv6 fd00::2-fd00::ff"},
			pool:    []string{"fd00::/120 via fd00::1"},
		},
		{
			name:    "host-local: rangeStart, rangeEnd, gateway",
			ipam:    `"subnet": "10.10.0.0/16", "rangeStart": "10.10.1.20", "rangeEnd": "10.10.3.50", "gateway": "10.10.0.254"`,
			sources: []string{"storage IPv4 10.10.1.20-10.10.3.50"},
			pool:    []string{"10.10.0.0/16 10.10.1.20-10.10.3.50 via 10.10.0.254"},
		},
		{
			name: "host-local: each set is one address, of any of its ranges",
			ipam: `"ranges": [
				[{"subnet": "10.10.0.0/16", "rangeStart": "10.10.1.20", "rangeEnd": "10.10.3.50", "gateway": "10.10.0.254"}, {"subnet": "172.16.5.0/24"}],
				[{"subnet": "3ffe:ffff:0:01ff::/64", "rangeStart": "3ffe:ffff:0:01ff::0010", "rangeEnd": "3ffe:ffff:0:01ff::0020"}]]`,
			sources: []string{
				"storage IPv4 10.10.1.20-10.10.3.50,172.16.5.2-172.16.5.254",
				"storage IPv6 3ffe:ffff:0:1ff::10-3ffe:ffff:0:1ff::20",
			},
			pool: []string{
				"10.10.0.0/16 10.10.1.20-10.10.3.50 via 10.10.0.254",
				"172.16.5.0/24 via 172.16.5.1",
				"3ffe:ffff:0:1ff::/64 3ffe:ffff:0:1ff::10-3ffe:ffff:0:1ff::20 via 3ffe:ffff:0:1ff::1",
			},
		},
		{
			name:    "host-local: subnet comes before ranges",
			ipam:    `"ranges": [[{"subnet": "fd00::/120"}]], "subnet": "10.10.0.0/24"`,
			sources: []string{"storage IPv4 10.10.0.2-10.10.0.254", "storage IPv6 fd00::2-fd00::ff"},
		},
		{
			name:    "host-local: one subnet in two parts",
			ipam:    `"ranges": [[{"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.10", "rangeEnd": "10.0.0.19"}, {"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.30", "rangeEnd": "10.0.0.39"}]]`,
			sources: []string{"storage IPv4 10.0.0.10-10.0.0.19,10.0.0.30-10.0.0.39"},
			pool:    []string{"10.0.0.0/24 10.0.0.10-10.0.0.39 without 10.0.0.20-10.0.0.29 via 10.0.0.1"},
		},
		{
			name:    "host-local in local mode: runtimeConfig.ipRanges come first",
			ipam:    `"mode": "local", "subnet": "10.10.0.0/24"`,
			top:     `"runtimeConfig": {"ipRanges": [[{"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.3", "rangeEnd": "10.1.2.99", "gateway": "10.1.2.254"}]]}`,
			sources: []string{"storage IPv4 10.1.2.3-10.1.2.99", "storage IPv4 10.10.0.2-10.10.0.254"},
		},
		{
			name:    "host-local in local mode: runtimeConfig.ipRanges alone",
			ipam:    `"mode": "local"`,
			top:     `"runtimeConfig": {"ipRanges": [[{"subnet": "10.1.2.0/24"}]]}`,
			sources: []string{"storage IPv4 10.1.2.2-10.1.2.254"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var top []string
			if tt.top != "" {
				top = append(top, tt.top)
			}
			c := mustParse(t, network(tt.ipam, top...), "")
			if got := describe(c); !slices.Equal(got, tt.sources) {
				t.Errorf("sources\n got %q\nwant %q", got, tt.sources)
			}
			if tt.pool == nil {
				return
			}
			if got := describePool(*c.Sources[0].Implicit); !slices.Equal(got, tt.pool) {
				t.Errorf("pool\n got %q\nwant %q", got, tt.pool)
			}
		})
	}
}

func TestSourcesOfOnePoolShareItsText(t *testing.T) {
	c := mustParse(t, network(`"ipRanges": [{"range": "10.0.0.0/24"}, {"range": "fd00::/64"}]`), "")
	if c.Sources[0].Implicit != c.Sources[1].Implicit {
		t.Errorf("two texts of one pool: %v and %v", c.Sources[0].Implicit, c.Sources[1].Implicit)
	}
	if named := mustParse(t, network(`"pool": "a"`), "").Sources[0]; named.Implicit != nil || !named.View.IsAll() {
		t.Errorf("named source is %+v; want no text and everything as view", named)
	}
}

func TestDefaults(t *testing.T) {
	got := mustParse(t, network(`"pool": "a"`), "")
	want := &Config{
		CNIVersion: "1.0.0", Name: "storage",
		Socket: DefaultSocket, JournalDir: defaultJournalDir, DataDir: defaultDataDir,
		Sources: []Source{{Pool: "a"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestEverySetting(t *testing.T) {
	table, scope := 1000, 253
	got := mustParse(t, network(`
		"mode": "local", "dataDir": "/run/state", "statusWhenFull": true, "range": "10.0.0.5/32",
		"routes": [{"dst": "0.0.0.0/0"}, {"dst": "192.168.1.5/16", "gw": "10.10.5.1", "mtu": 1400, "advmss": 1360, "priority": 5, "table": 1000, "scope": 253}],
		"dns": {"nameservers": ["10.1.0.1"], "domain": "example.org", "search": ["a", "b"], "options": ["ndots:5"]}`,
		`"allowPersistentIPs": true`,
		`"prevResult": {"ips": []}`,
		`"cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "net1"}]`),
		"IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web-0;K8S_POD_UID=u=1;K8S_POD_INFRA_CONTAINER_ID=c1;MAC=02:00:00:00:00:01;X=1;")
	want := &Config{
		CNIVersion: "1.0.0", Name: "storage", Mode: ModeLocal,
		Socket: DefaultSocket, JournalDir: defaultJournalDir, DataDir: "/run/state",
		Sources: got.Sources,
		Routes: []Route{
			{Dst: netip.MustParsePrefix("0.0.0.0/0")},
			{Dst: netip.MustParsePrefix("192.168.0.0/16"), GW: netip.MustParseAddr("10.10.5.1"), MTU: 1400, AdvMSS: 1360, Priority: 5, Table: &table, Scope: &scope},
		},
		DNS:                 DNS{Nameservers: []string{"10.1.0.1"}, Domain: "example.org", Search: []string{"a", "b"}, Options: []string{"ndots:5"}},
		Pod:                 Pod{Namespace: "ns", Name: "web-0", UID: "u=1"},
		ReportFull:          true,
		ValidAttachments:    []AttachmentRef{{"c1", "net1"}},
		HasValidAttachments: true,
		PrevResult:          json.RawMessage(`{"ips": []}`),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}

	c := mustParse(t, network(`"pool": "a", "socket": "/run/s", "journalDir": "/var/j", "dataDir": "/x", "resolvConf": "/etc/resolv.conf"`), "")
	if c.Socket != "/run/s" || c.JournalDir != "/var/j" || c.ResolvConf != "/etc/resolv.conf" {
		t.Errorf("got %q, %q, %q; want the paths of the text", c.Socket, c.JournalDir, c.ResolvConf)
	}
	if want := []string{"ipam.dataDir: in cluster mode the agent keeps the state"}; !slices.Equal(c.Ignored, want) {
		t.Errorf("ignored %q; want %q", c.Ignored, want)
	}
}

func TestIgnoredIsSaid(t *testing.T) {
	c := mustParse(t, network(`"log_file": "/tmp/wb.log", "range": "10.0.0.0/24", "exclude": ["10.9.0.0/16"], "etcd_host": "e:2379", "log_level": ""`), "")
	want := []string{
		"ipam.log_file: the agent logs, by its own settings",
		"ipam.etcd_host: Tenure keeps its state in the Kubernetes API and on the nodes",
		"ipam.exclude[0]: 10.9.0.0/16 lies outside 10.0.0.0/24 and excludes nothing",
	}
	if !slices.Equal(c.Ignored, want) {
		t.Errorf("got  %q\nwant %q", c.Ignored, want)
	}
}

func TestParseConfigIsDeterministic(t *testing.T) {
	text := network(`"ipRanges": [{"range": "10.0.0.0/24"}, {"range": "fd00::/64"}, {"range": "10.0.1.0/24"}], "enable_overlapping_ranges": false, "log_file": "x"`)
	first := mustParse(t, text, "")
	for range 50 {
		if again := mustParse(t, text, ""); !reflect.DeepEqual(first, again) {
			t.Fatalf("got  %+v\nthen %+v", first, again)
		}
	}
}

func TestConfigSharesNoMemoryWithItsText(t *testing.T) {
	text := []byte(network(`"pool": "vlan"`, `"prevResult": {"ips": [{"address": "10.0.0.1/24"}]}`))
	c, err := ParseConfig(text, "")
	if err != nil {
		t.Fatal(err)
	}
	for i := range text {
		text[i] = 'x'
	}
	if c.Sources[0].Pool != "vlan" || string(c.PrevResult) != `{"ips": [{"address": "10.0.0.1/24"}]}` {
		t.Errorf("got %q and %s after the text was overwritten", c.Sources[0].Pool, c.PrevResult)
	}
}

func TestAnswer(t *testing.T) {
	pool := func(cidr, gateway string) allocator.Range {
		r := allocator.Range{Prefix: netip.MustParsePrefix(cidr)}
		if gateway != "" {
			r.Gateway = netip.MustParseAddr(gateway)
		}
		return r
	}
	tests := []struct {
		name, ipam, addr string
		in               allocator.Range
		bits             int
		gateway          string
	}{
		{"a named pool answers its range", `"pool": "a"`, "10.0.0.5", pool("10.0.0.0/24", "10.0.0.1"), 24, "10.0.0.1"},
		{"an inline range answers its own gateway", `"range": "10.0.0.0/24", "gateway": "10.0.0.1"`, "10.0.0.5", pool("10.0.0.0/24", "10.0.0.1"), 24, "10.0.0.1"},
		{"another gateway of the pool changes nothing", `"range": "10.0.0.0/24", "gateway": "10.0.0.2"`, "10.0.0.5", pool("10.0.0.0/24", "10.0.0.1"), 24, "10.0.0.2"},
		{"who has no gateway gets none", `"range": "10.0.0.0/24"`, "10.0.0.5", pool("10.0.0.0/24", "10.0.0.1"), 24, ""},
		{"within a wider range, length and gateway stay one's own", `"range": "10.0.0.0/24", "gateway": "10.0.0.2"`, "10.0.0.5", pool("10.0.0.0/16", "10.0.0.1"), 24, "10.0.0.2"},
		{"a gateway outside the range is answered all the same", `"range": "192.168.2.225/28", "gateway": "192.168.2.1"`, "192.168.2.230", pool("192.168.2.224/28", ""), 28, "192.168.2.1"},
		{"host-local: each range has its own", `"ranges": [[{"subnet": "10.0.0.0/24"}, {"subnet": "10.0.1.0/24", "gateway": "10.0.1.9"}]]`, "10.0.1.5", pool("10.0.1.0/24", "10.0.1.9"), 24, "10.0.1.9"},
		{"whereabouts: the gateway goes to the range that has it", `"ipRanges": [{"range": "10.0.0.0/24"}, {"range": "10.0.1.0/24"}], "gateway": "10.0.1.1"`, "10.0.0.5", pool("10.0.0.0/24", ""), 24, ""},
		{"whereabouts: a gateway for each range", `"ipRanges": [{"range": "10.0.0.0/24"}, {"range": "fd00::/64", "gateway": "fd00::1"}], "gateway": "10.0.0.1"`, "fd00::5", pool("fd00::/64", "fd00::1"), 64, "fd00::1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := mustParse(t, network(tt.ipam), "")
			a := netip.MustParseAddr(tt.addr)
			var src Source
			for _, s := range c.Sources {
				if s.View.Contains(a) {
					src = s
				}
			}
			bits, gw := src.Answer(a, tt.in)
			got := ""
			if gw.IsValid() {
				got = gw.String()
			}
			if bits != tt.bits || got != tt.gateway {
				t.Errorf("got /%d via %q; want /%d via %q", bits, got, tt.bits, tt.gateway)
			}
		})
	}
}

func TestParseNetwork(t *testing.T) {
	list := `{"cniVersion": "0.4.0", %s "allowPersistentIPs": true, "plugins": [
		{"type": "macvlan", "name": "replaced", "ipam": {"type": "tenure", "pool": "a"}},
		{"type": "tuning"},
		{"type": "bridge", "name": "ignored", "ipam": {"type": "host-local", "subnet": 5}}]}`
	tests := []struct {
		name, config string
		want         []string // NAME VERSION POOL
	}{
		{"single", `{"cniVersion": "1.0.0", "name": "n", "ipam": {"type": "tenure", "pool": "a"}}`, []string{"n 1.0.0 a"}},
		{"N12 single without a name", `{"cniVersion": "1.0.0", "ipam": {"type": "tenure", "pool": "a"}}`, []string{"my-nad 1.0.0 a"}},
		{"list", fmt.Sprintf(list, `"name": "n",`), []string{"n 0.4.0 a"}},
		{"N12 list without a name", fmt.Sprintf(list, ""), []string{"my-nad 0.4.0 a"}},
		{"somebody else's", `{"cniVersion": "1.0.0", "name": "n", "ipam": {"type": "whereabouts", "range": "x"}}`, nil},
		{"no ipam", `{"cniVersion": "1.0.0", "name": "n", "type": "macvlan"}`, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			configs, err := ParseNetwork([]byte(tt.config), "my-nad")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range configs {
				got = append(got, fmt.Sprintf("%s %s %s", c.Name, c.CNIVersion, c.Sources[0].Pool))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q; want %q", got, tt.want)
			}
		})
	}

	_, err := ParseNetwork([]byte(`x`), "")
	wantFaults(t, err, "configuration: invalid character 'x' looking for beginning of value at byte 1")
	_, err = ParseNetwork([]byte(`{"name": "n", "plugins": [{}, {"ipam": {"type": "tenure", "pool": "A"}}, 5]}`), "")
	wantFaults(t, err, "plugins[2]: is a number, not an object")
	_, err = ParseNetwork([]byte(`{"name": "n", "plugins": [{}, {"ipam": {"type": "tenure", "pool": "A"}}]}`), "")
	wantFaults(t, err, `plugins[1].ipam.pool: "A" cannot be a pool's name`)
}

func TestParseResolvConf(t *testing.T) {
	got := ParseResolvConf([]byte("# comment\n; other\n\nnameserver 10.0.0.1\nnameserver fd00::1\n domain example.org\nsearch a b\nsearch c\noptions ndots:5 edns0\nsortlist x\nnameserver\n"))
	want := DNS{Nameservers: []string{"10.0.0.1", "fd00::1"}, Domain: "example.org", Search: []string{"a", "b", "c"}, Options: []string{"ndots:5", "edns0"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v; want %+v", got, want)
	}
}

func TestPoolName(t *testing.T) {
	long := strings.Repeat("a", 63)
	tests := []struct{ in, want string }{
		{"blue", "blue"},
		{"10-0-0-0-24", "10-0-0-0-24"},
		{long, long},
		{"Blue_Net", "blue-net-374dc56352"},
		{"blue.net", "blue-net-612832356d"},
	}
	for _, tt := range tests {
		if got := poolName(tt.in); got != tt.want {
			t.Errorf("poolName(%q) = %q; want %q", tt.in, got, tt.want)
		}
	}
	seen := map[string]string{}
	for _, in := range []string{long + "a", long + "b", "", "-", "--", "_", "ü", "A", "a-", "-a", strings.Repeat("-", 70) + "x", rangeName(netip.MustParsePrefix("::/0"))} {
		got := poolName(in)
		if !isPoolName(got) {
			t.Errorf("poolName(%q) = %q, which is no pool's name", in, got)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q are both %q", in, other, got)
		}
		seen[got] = in
	}
}

func TestModeString(t *testing.T) {
	if got := fmt.Sprint(ModeCluster, ModeLocal, Mode(7)); got != "cluster local Mode(7)" {
		t.Errorf("got %q", got)
	}
}

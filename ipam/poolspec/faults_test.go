package poolspec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// faultsOf returns the faults that err joins, and fails if it is anything else.
func faultsOf(t testing.TB, err error) []*Fault {
	t.Helper()
	var out []*Fault
	for _, e := range unjoin(err) {
		var f *Fault
		if !errors.As(e, &f) {
			t.Fatalf("error %q is no Fault", e)
		}
		if f.Path == "" || f.Problem == "" || f.Remedy == "" {
			t.Errorf("fault %q lacks what, where or the remedy", f)
		}
		out = append(out, f)
	}
	return out
}

// wantFaults checks that err is exactly these faults, each "PATH: PROBLEM", in order.
func wantFaults(t testing.TB, err error, want ...string) {
	t.Helper()
	var got []string
	for _, f := range faultsOf(t, err) {
		got = append(got, f.Path+": "+f.Problem)
	}
	if !slices.Equal(got, want) {
		t.Errorf("faults\n got %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

func TestFaultsOfConfig(t *testing.T) {
	tests := []struct {
		name string
		ipam string
		top  string
		want []string
	}{
		{"no source", ``, "", []string{"ipam: does not say where addresses come from"}},
		{"no source in local mode", `"mode": "local"`, "", []string{"ipam: does not say where addresses come from"}},
		{"two forms", `"pool": "a", "subnet": "10.0.0.0/24"`, "", []string{"ipam: has pool and subnet, which are different ways to say where addresses come from"}},
		{"unknown key", `"pool": "a", "rang": "x"`, "", []string{`ipam.rang: is not a key that Tenure knows: "x"`}},
		{"key twice", `"pool": "a", "pool": "b"`, "", []string{"ipam.pool: appears twice"}},
		{"wrong types", `"pool": 5, "mode": true, "routes": "x", "statusWhenFull": "yes", "socket": {}`, "", []string{
			"ipam.mode: is a boolean, not a string",
			"ipam.socket: is an object, not a string",
			"ipam.statusWhenFull: is a string, not a boolean",
			"ipam.routes: is a string, not a list",
			"ipam.pool: is a number, not a string",
		}},
		{"mode", `"pool": "a", "mode": "auto"`, "", []string{`ipam.mode: "auto" is no mode`}},
		{"relative paths", `"pool": "a", "socket": "agent.sock", "resolvConf": "resolv.conf"`, "", []string{
			`ipam.socket: "agent.sock" is a relative path`, `ipam.resolvConf: "resolv.conf" is a relative path`,
		}},
		{"local mode has no agent", `"subnet": "10.0.0.0/24", "mode": "local", "socket": "/x", "journalDir": "/y"`, "", []string{
			"ipam.socket: has no meaning in local mode, which has no agent",
			"ipam.journalDir: has no meaning in local mode, which has no agent",
		}},
		{"local mode has no pools", `"pool": "a", "mode": "local"`, "", []string{"ipam.pool: names a pool, which only a cluster has"}},
		{"local mode has no pools, list", `"pools": ["a"], "mode": "local"`, "", []string{"ipam.pools[0]: names a pool, which only a cluster has"}},
		{"local mode, pool of a wrong type", `"pool": 5, "mode": "local"`, "", []string{"ipam.pool: is a number, not a string"}},
		{"pool names", `"pools": ["A", "b.c", "d", "d"]`, "", []string{
			`ipam.pools[0]: "A" cannot be a pool's name`, `ipam.pools[1]: "b.c" cannot be a pool's name`, `ipam.pools[3]: "d" is named twice`,
		}},
		{"keys of another form", `"pool": "a", "gateway": "10.0.0.1", "exclude": ["10.0.0.1"]`, "", []string{
			"ipam.gateway: belongs to an inline range, and this configuration uses a named pool",
			"ipam.exclude: belongs to whereabouts' form, and this configuration uses a named pool",
		}},
		{"inline forms mixed", `"subnet": "10.0.0.0/24", "exclude": ["10.0.0.1"]`, "", []string{
			"ipam.exclude: belongs to whereabouts' form, and this configuration uses host-local's form",
		}},
		{"refused", `"range": "10.0.0.0/24", "addresses": [{"address": "10.0.0.5/24"}], "enable_l3": true`, "", []string{
			`ipam.addresses: is not supported: [{"address": "10.0.0.5/24"}]`, "ipam.enable_l3: is not supported: true",
		}},

		{"whereabouts: texts", `"range": "10.0.0.0", "range_start": "x", "exclude": ["10.0.0.0/33", "y", "10.0.0.9-10.0.0.1"], "gateway": "z"`, "", []string{
			`ipam.range_start: "x" is not an IP address`, `ipam.range: "10.0.0.0" is not a CIDR`,
			`ipam.exclude[0]: "10.0.0.0/33" is not a CIDR`, `ipam.exclude[1]: "y" is not an address`, `ipam.exclude[2]: "10.0.0.9-10.0.0.1" ends before it starts`,
			`ipam.gateway: "z" is not an IP address`,
		}},
		{"whereabouts: excludes", `"range": "10.0.0.0/24", "exclude": ["10.0.0.0/33", "y", "10.0.0.9-10.0.0.1", 5]`, "", []string{
			`ipam.exclude[3]: is a number, not a string`,
			`ipam.exclude[0]: "10.0.0.0/33" is not a CIDR`, `ipam.exclude[1]: "y" is not an address`, `ipam.exclude[2]: "10.0.0.9-10.0.0.1" ends before it starts`,
		}},
		{"whereabouts: leading zeros are ambiguous", `"range": "010.0.0.0/24"`, "", []string{`ipam.range: "010.0.0.0/24" is not a CIDR`}},
		{"whereabouts: outside", `"range": "10.0.0.0/24", "range_start": "10.0.1.1", "range_end": "fd00::1"`, "", []string{
			"ipam.range_start: 10.0.1.1 lies outside 10.0.0.0/24", "ipam.range_end: fd00::1 lies outside 10.0.0.0/24",
		}},
		{"whereabouts: start after end", `"range": "10.0.0.0/24", "range_start": "10.0.0.9", "range_end": "10.0.0.8"`, "", []string{
			"ipam.range_start: 10.0.0.9 comes after the end 10.0.0.8",
		}},
		{"whereabouts: first-last contradicted", `"range": "10.0.0.5-10.0.0.9/24", "range_start": "10.0.0.6", "range_end": "10.0.0.8"`, "", []string{
			"ipam.range_start: is 10.0.0.6, and range says 10.0.0.5", "ipam.range_end: is 10.0.0.8, and range says 10.0.0.9",
		}},
		{"whereabouts: first-last of two networks", `"range": "10.0.1.5-10.0.0.9/24"`, "", []string{"ipam.range: starts with 10.0.1.5, which lies outside 10.0.0.0/24"}},
		{"whereabouts: last before first", `"range": "10.0.0.9-10.0.0.5/24"`, "", []string{"ipam.range_start: 10.0.0.9 comes after the end 10.0.0.5"}},
		{"whereabouts: companions without range", `"ipRanges": [{"range": "10.0.0.0/24"}], "range_start": "10.0.0.5", "exclude": ["10.0.0.9"]`, "", []string{
			"ipam.range_start: belongs to range, which is missing", "ipam.exclude: belongs to range, which is missing",
		}},
		{"whereabouts: entries", `"ipRanges": [{"range_start": "10.0.0.5"}, 5, {"range": "10.0.0.0/24", "rangeStart": "10.0.0.5", "enable_l3": true}, {"range": "10.0.0.0/24", "gateway": "fd00::1"}]`, "", []string{
			"ipam.ipRanges[0].range: is missing", "ipam.ipRanges[1]: is a number, not an object",
			`ipam.ipRanges[2].rangeStart: is not a key that Tenure knows: "10.0.0.5"`, "ipam.ipRanges[2].enable_l3: is not supported: true",
			"ipam.ipRanges[3].gateway: fd00::1 is of another family than 10.0.0.0/24",
		}},
		{"whereabouts: gateway of no family", `"range": "10.0.0.0/24", "gateway": "fd00::1"`, "", []string{"ipam.gateway: fd00::1 is of another family than every range"}},
		{"whereabouts: two gateways of one CIDR", `"ipRanges": [{"range": "10.0.0.0/24", "gateway": "10.0.0.1"}, {"range": "10.0.0.0/24", "gateway": "10.0.0.2"}]`, "", []string{
			"ipam.ipRanges[1]: has gateway 10.0.0.2, and ipam.ipRanges[0] of the same 10.0.0.0/24 has 10.0.0.1",
		}},
		{"whereabouts: nothing left", `"ipRanges": [{"range": "10.0.0.0/24"}, {"range": "10.0.1.0/30", "exclude": ["10.0.1.0/30"]}]`, "", []string{
			"ipam.ipRanges[1]: leaves no address to give",
		}},
		{"whereabouts: a zone and mapped addresses", `"ipRanges": [{"range": "fe80::/64", "range_start": "fe80::1%eth0"}, {"range": "::ffff:10.0.0.0/120"}]`, "", []string{
			`ipam.ipRanges[0].range_start: "fe80::1%eth0" has a zone`, `ipam.ipRanges[1].range: "::ffff:10.0.0.0/120" is IPv4 written as IPv6`,
		}},
		{"whereabouts: ranges apart that overlap", `"ipRanges": [{"range": "10.0.0.0/24"}, {"range": "10.0.0.0/25"}, {"range": "10.0.1.0/24"}, {"range": "10.0.0.0/24"}], "enable_overlapping_ranges": false`, "", []string{
			"ipam.ipRanges[1]: overlaps ipam.ipRanges[0], and the two give out their addresses apart: 10.0.0.0-10.0.0.127 and 10.0.0.0-10.0.0.255",
			"ipam.ipRanges[3]: overlaps ipam.ipRanges[1], and the two give out their addresses apart: 10.0.0.0-10.0.0.255 and 10.0.0.0-10.0.0.127",
		}},
		{"whereabouts: nothing but another range's gateway", `"ipRanges": [{"range": "10.0.0.0/25", "gateway": "10.0.0.254"}, {"range": "10.0.0.254/32"}]`, "", []string{
			"ipam.ipRanges[1]: leaves no address to give",
		}},
		{"whereabouts: nothing but a wider range's gateway and network address", `"ipRanges": [{"range": "10.0.0.0/24", "gateway": "10.0.0.1"}, {"range": "10.0.0.0/31"}]`, "", []string{
			"ipam.ipRanges[1]: leaves no address to give",
		}},
		{"ranges that no pod can have", `"ipRanges": [{"range": "127.0.0.0/24"}, {"range": "fe80::/64"}]`, "", []string{
			"ipam.ipRanges[0]: 127.0.0.0-127.0.0.255 has loopback addresses (127.0.0.0/8), which no pod can have", "ipam.ipRanges[1]: fe80::-fe80::ffff:ffff:ffff:ffff has link-local addresses, which each interface makes by itself (fe80::/10), which no pod can have",
		}},

		{"host-local: host bits", `"subnet": "10.0.0.5/24"`, "", []string{`ipam.subnet: "10.0.0.5/24" has host bits set`}},
		{"host-local: too small", `"ranges": [[{"subnet": "10.0.0.0/31"}], [{"subnet": "fd00::/128"}]]`, "", []string{
			"ipam.ranges[0][0].subnet: 10.0.0.0/31 is too small for a network with a gateway", "ipam.ranges[1][0].subnet: fd00::/128 is too small for a network with a gateway",
		}},
		{"host-local: sets", `"ranges": [[], 5, [{"gateway": "10.0.0.1"}], [{"subnet": "10.0.0.0/24"}, {"subnet": "fd00::/64"}], [{"subnet": "10.1.0.0/24", "exclude": ["10.1.0.9"]}]]`, "", []string{
			"ipam.ranges[0]: is empty", "ipam.ranges[1]: is a number, not a list", "ipam.ranges[2][0].subnet: is missing",
			"ipam.ranges[3][1]: mixes families: fd00::/64 beside 10.0.0.0/24", `ipam.ranges[4][0].exclude: is not a key that Tenure knows here: ["10.1.0.9"]`,
		}},
		{"host-local: overlap in a set and between sets", `"ranges": [[{"subnet": "10.0.0.0/24"}, {"subnet": "10.0.0.0/16"}], [{"subnet": "10.0.0.128/25"}]]`, "", []string{
			"ipam.ranges[0][1]: overlaps ipam.ranges[0][0]: 10.0.0.0-10.0.255.255 and 10.0.0.0-10.0.0.255",
			"ipam.ranges[1][0]: overlaps ipam.ranges[0][0]: 10.0.0.128-10.0.0.255 and 10.0.0.0-10.0.0.255",
		}},
		{"host-local: companions without subnet", `"ranges": [[{"subnet": "10.0.0.0/24"}]], "rangeStart": "10.0.0.5", "gateway": "10.0.0.9"`, "", []string{
			"ipam.rangeStart: belongs to subnet, which is missing", "ipam.gateway: belongs to subnet, which is missing",
		}},
		{"host-local: ends", `"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.9", "rangeEnd": "10.0.0.8"`, "", []string{"ipam.rangeStart: 10.0.0.9 comes after the end 10.0.0.8"}},
		{"host-local: gateway", `"subnet": "10.0.0.0/24", "gateway": "fd00::1"`, "", []string{"ipam.gateway: fd00::1 is of another family than 10.0.0.0/24"}},
		{"host-local in cluster mode: ranges of a pod", `"subnet": "10.0.0.0/24"`, `"runtimeConfig": {"ipRanges": [[{"subnet": "10.1.2.0/24"}]]}`, []string{
			"runtimeConfig.ipRanges: describes ranges for one pod, which only local mode can serve",
		}},

		{"routes", `"pool": "a", "routes": [{"gw": "10.0.0.1"}, {"dst": "x"}, {"dst": "10.0.0.0/8", "gw": "fd00::1"}, {"dst": "10.0.0.0/8", "mtu": 1.5, "table": -1, "via": "x"}, 5]`, "", []string{
			"ipam.routes[0].dst: is missing", `ipam.routes[1].dst: "x" is not a CIDR`, "ipam.routes[2].gw: fd00::1 is of another family than 10.0.0.0/8",
			"ipam.routes[3].mtu: 1.5 is not a whole number from zero up", "ipam.routes[3].table: -1 is not a whole number from zero up",
			"ipam.routes[4]: is a number, not an object",
		}},
		{"dns", `"pool": "a", "dns": {"servers": ["x"], "nameservers": "y"}, "resolvConf": "/etc/resolv.conf"`, "", []string{
			"ipam.dns: says what resolvConf says as well", "ipam.dns.nameservers: is a string, not a list",
		}},
		{"around ipam", `"pool": "a"`, `"name": "b", "allowPersistentIPs": 1, "runtimeConfig": [1], "args": {"cni": "x"}, "master": "eth2"`, []string{
			"name: appears twice", "allowPersistentIPs: is a number, not a boolean", "runtimeConfig: is a list, not an object", "args.cni: is a string, not an object",
		}},
		{"C9 requested texts", `"pool": "a"`, `"runtimeConfig": {"ips": ["x", "10.0.0.1/0", "10.0.0.2", "10.0.0.2/24", ""]}`, []string{
			"runtimeConfig.ips[4]: is empty, not a string",
			`runtimeConfig.ips[0]: "x" is not an IP address`, `runtimeConfig.ips[1]: "10.0.0.1/0" has prefix length 0`, "runtimeConfig.ips[3]: 10.0.0.2 is asked for twice",
		}},
		{"C9 requested outside", `"range": "10.0.0.0/24", "range_end": "10.0.0.99", "exclude": ["10.0.0.7"], "gateway": "10.0.0.1"`,
			`"runtimeConfig": {"ips": ["10.0.1.1", "10.0.0.100", "10.0.0.7", "10.0.0.1", "10.0.0.0", "10.0.0.5/16", "10.0.0.6/24"]}`, []string{
				"runtimeConfig.ips[0]: 10.0.1.1 lies in none of the ranges 10.0.0.0/24",
				"runtimeConfig.ips[1]: 10.0.0.100 lies outside the start and end of the pool's ranges (10.0.0.0/24)",
				"runtimeConfig.ips[2]: 10.0.0.7 is excluded (10.0.0.0/24)",
				"runtimeConfig.ips[3]: 10.0.0.1 is a gateway (10.0.0.0/24)",
				"runtimeConfig.ips[4]: 10.0.0.0 is the network address (10.0.0.0/24)",
				"runtimeConfig.ips[5]: 10.0.0.5/16 has another prefix length than its range 10.0.0.0/24",
			}},
		{"C9 requested beside a gateway elsewhere", `"range": "192.168.2.225/28", "gateway": "192.168.2.1"`, `"runtimeConfig": {"ips": ["192.168.2.224", "192.168.2.1"]}`, []string{
			"runtimeConfig.ips[0]: 192.168.2.224 is the network address (192.168.2.224/28)", "runtimeConfig.ips[1]: 192.168.2.1 lies in none of the ranges 192.168.2.224/28",
		}},
		{"host-local: sets of a wrong shape", `"ranges": [{"subnet": "10.0.0.0/24"}, [5]], "dns": 5`, `"args": 5`, []string{
			"args: is a number, not an object", "ipam.dns: is a number, not an object",
			"ipam.ranges[0]: is an object, not a list", "ipam.ranges[1][0]: is a number, not an object",
		}},
		{"all at once", `"range": "x", "exclude": "y", "log_fil": "z", "routes": [{}]`, `"runtimeConfig": {"ips": ["w"]}`, []string{
			"ipam.routes[0].dst: is missing", `ipam.log_fil: is not a key that Tenure knows: "z"`, `runtimeConfig.ips[0]: "w" is not an IP address`, `ipam.range: "x" is not a CIDR`,
			"ipam.exclude: is a string, not a list",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var top []string
			if tt.top != "" {
				top = append(top, tt.top)
			}
			_, err := ParseConfig([]byte(network(tt.ipam, top...)), "")
			wantFaults(t, err, tt.want...)
			if !errors.Is(err, ErrConfig) {
				t.Errorf("errors.Is(%v, ErrConfig) is false", err)
			}
		})
	}
}

func TestFaultsOfTheDocument(t *testing.T) {
	tests := []struct {
		name, config string
		kind         error
		want         []string
	}{
		{"no JSON", `pool: a`, ErrDecode, []string{"configuration: invalid character 'p' looking for beginning of value at byte 1"}},
		{"cut short", `{"name": "a"`, ErrDecode, []string{"configuration: unexpected end of JSON input at byte 12"}},
		{"nothing", ``, ErrDecode, []string{"configuration: unexpected end of JSON input at byte 0"}},
		{"more than one", `{} {}`, ErrDecode, []string{"configuration: invalid character '{' after top-level value at byte 4"}},
		{"a list", `[1]`, ErrDecode, []string{"configuration: is a list, not an object"}},
		{"nothing in it", `{}`, ErrConfig, []string{"name: is missing", "ipam: is missing"}},
		{"bad name, no ipam object", `{"name": "a/b", "ipam": "x"}`, ErrConfig, []string{`name: "a/b" cannot be a network's name`, "ipam: is a string, not an object"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseConfig([]byte(tt.config), "")
			wantFaults(t, err, tt.want...)
			if !errors.Is(err, tt.kind) {
				t.Errorf("errors.Is(%v, %v) is false", err, tt.kind)
			}
		})
	}
}

func TestFaultText(t *testing.T) {
	_, err := ParseConfig([]byte(network(`"range": "10.0.0.0/24", "RangeStart": "10.0.0.5"`)), "")
	want := "ipam.RangeStart: belongs to host-local's form, and this configuration uses whereabouts' form; write range_start"
	if err == nil || err.Error() != want {
		t.Errorf("got %v; want %s", err, want)
	}
}

func TestFaultsAreBounded(t *testing.T) {
	var keys []string
	for i := range 5000 {
		keys = append(keys, fmt.Sprintf(`"k%d": 1`, i), fmt.Sprintf(`"pool%c": 1`, rune('A'+i%26)+rune(i/26%2)*32))
	}
	_, err := ParseConfig([]byte(network(strings.Join(keys, ","))), "")
	if got := len(faultsOf(t, err)); got != maxFaults {
		t.Errorf("got %d faults; want %d", got, maxFaults)
	}
	var ranges, ips []string
	for i := range 300 {
		ranges = append(ranges, fmt.Sprintf(`{"range": "10.%d.%d.0/24"}`, i/256, i%256))
		ips = append(ips, fmt.Sprintf(`"10.0.%d.%d"`, i/256, i%256))
	}
	_, err = ParseConfig([]byte(network(`"ipRanges": [`+strings.Join(ranges, ",")+`]`)), "")
	wantFaults(t, err, "ipam: describes 300 ranges, more than 64")
	_, err = ParseConfig([]byte(network(`"pool": "a"`, `"args": {"cni": {"ips": [`+strings.Join(ips[:65], ",")+`]}}`)), "")
	wantFaults(t, err, "args.cni.ips[64]: asks for more than 64 addresses")
}

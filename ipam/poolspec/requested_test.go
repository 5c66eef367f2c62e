package poolspec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// describeRequested says of each requested address "PATH ADDR/BITS".
func describeRequested(c *Config) []string {
	var out []string
	for _, r := range c.Requested {
		out = append(out, fmt.Sprintf("%s %v/%d", r.Path, r.Addr, r.Bits))
	}
	return out
}

// TestRequestedAddressesHaveAPrecedence (C9).
func TestRequestedAddressesHaveAPrecedence(t *testing.T) {
	const (
		runtime = `"runtimeConfig": {"mac": "x", "ips": ["10.0.0.1/24", "fd00::1"]}`
		args    = `"args": {"labels": 1, "cni": {"ips": ["10.0.0.2", "fd00::2/64"]}}`
		env     = "IgnoreUnknown=true;IP=10.0.0.3/24, fd00::3"
	)
	tests := []struct {
		name          string
		top           []string
		env           string
		want, ignored []string
	}{
		{"runtimeConfig.ips before all", []string{runtime, args}, env,
			[]string{"runtimeConfig.ips[0] 10.0.0.1/24", "runtimeConfig.ips[1] fd00::1/0"}, []string{"CNI_ARGS IP: runtimeConfig.ips counts"}},
		{"args.cni.ips before CNI_ARGS", []string{args}, env,
			[]string{"args.cni.ips[0] 10.0.0.2/0", "args.cni.ips[1] fd00::2/64"}, []string{"CNI_ARGS IP: args.cni.ips counts"}},
		{"CNI_ARGS", nil, env, []string{"CNI_ARGS IP 10.0.0.3/24", "CNI_ARGS IP fd00::3/0"}, nil},
		{"what does not count is not even read", []string{runtime, `"args": {"cni": {"ips": ["x"]}}`}, "IP=y",
			[]string{"runtimeConfig.ips[0] 10.0.0.1/24", "runtimeConfig.ips[1] fd00::1/0"}, []string{"CNI_ARGS IP: runtimeConfig.ips counts"}},
		{"an empty list asks for nothing", []string{`"runtimeConfig": {"ips": []}`, `"args": {"cni": {"ips": null}}`}, "IP=10.0.0.3", []string{"CNI_ARGS IP 10.0.0.3/0"}, nil},
		{"nothing asked for", []string{`"runtimeConfig": {}`, `"args": {}`}, "IP=", nil, nil},
		{"IPv4 as IPv6", []string{`"runtimeConfig": {"ips": ["::ffff:10.0.0.9"]}`}, "", []string{"runtimeConfig.ips[0] 10.0.0.9/0"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, ipam := range []string{`"pool": "a"`, `"ipRanges": [{"range": "10.0.0.0/24"}, {"range": "fd00::/64"}]`} {
				c := mustParse(t, network(ipam, tt.top...), tt.env)
				if got := describeRequested(c); !slices.Equal(got, tt.want) {
					t.Errorf("%s: got %q; want %q", ipam, got, tt.want)
				}
				if !slices.Equal(c.Ignored, tt.ignored) {
					t.Errorf("%s: ignored %q; want %q", ipam, c.Ignored, tt.ignored)
				}
			}
		})
	}
}

func TestCNIArgs(t *testing.T) {
	tests := []struct {
		name, args string
		want       []string
	}{
		{"no pair", "IgnoreUnknown", []string{`CNI_ARGS: "IgnoreUnknown" has no =`}},
		{"unknown keys", "A=1;GATEWAY=10.0.0.1", []string{"CNI_ARGS: has keys that Tenure does not know: A, GATEWAY"}},
		{"unknown keys, said not to ignore", "IgnoreUnknown=0;A=1", []string{"CNI_ARGS: has keys that Tenure does not know: A"}},
		{"IgnoreUnknown", "IgnoreUnknown=maybe", []string{`CNI_ARGS IgnoreUnknown: "maybe" is neither true nor false`}},
		{"C9 IP", "IP=10.0.0.300,,10.0.0.1/33", []string{
			`CNI_ARGS IP: "10.0.0.300" is not an IP address`, `CNI_ARGS IP: "" is not an IP address`, `CNI_ARGS IP: "10.0.0.1/33" is not a CIDR`,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseConfig([]byte(network(`"pool": "a"`)), tt.args)
			wantFaults(t, err, tt.want...)
			if !errors.Is(err, ErrArgs) || errors.Is(err, ErrConfig) {
				t.Errorf("%v is not of ErrArgs alone", err)
			}
		})
	}
	c := mustParse(t, network(`"pool": "a"`), "IgnoreUnknown=TRUE;GATEWAY=10.0.0.1")
	if want := []string{"CNI_ARGS GATEWAY: the gateway is the range's"}; !slices.Equal(c.Ignored, want) {
		t.Errorf("ignored %q; want %q", c.Ignored, want)
	}
}

// TestFamilies: who wants addresses of one family alone says so, for the network or for one
// interface of it.
func TestFamilies(t *testing.T) {
	const inline = `"ipRanges": [{"range": "10.0.0.0/24"}, {"range": "fd00::/64"}]`
	args := func(cni string) string { return `"args": {"cni": ` + cni + `}` }
	for _, tt := range []struct{ name, ipam, top, want string }{
		{"inline, both", inline, `"x": 0`, "[IPv4] [IPv6]"},
		{"inline, one", inline + `, "families": ["IPv6"]`, `"x": 0`, "[IPv6]"},
		{"a named pool", `"pool": "a"`, `"x": 0`, "[]"},
		{"a named pool, one", `"pool": "a", "families": ["IPv4"]`, `"x": 0`, "[IPv4]"},
		{"of one interface", `"pool": "a"`, args(`{"families": ["IPv4"]}`), "[IPv4]"},
		{"of one interface, inline, beside a request", inline, args(`{"families": ["IPv4"], "ips": ["10.0.0.9"]}`), "[IPv4]"},
	} {
		c := mustParse(t, network(tt.ipam, tt.top), "")
		var got []string
		for _, s := range c.Sources {
			got = append(got, fmt.Sprint(s.Families))
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: families %v; want %s", tt.name, got, tt.want)
		}
	}
	for _, tt := range []struct{ name, ipam, top, want string }{
		{"no family", `"pool": "a", "families": ["IPv5"]`, `"x": 0`, `ipam.families[0]: "IPv5" is no IP family`},
		{"not the network's", `"pool": "a", "families": ["IPv4"]`, args(`{"families": ["IPv6"]}`), `args.cni.families: has IPv6, which ipam.families leaves out`},
		{"an address of another", `"pool": "a"`, args(`{"families": ["IPv6"], "ips": ["10.0.0.9"]}`), `args.cni.ips[0]: 10.0.0.9 is of IPv4, which families leaves out`},
		{"no range of it", `"range": "10.0.0.0/24", "families": ["IPv6"]`, `"x": 0`, "ipam: has no range of IPv6"},
	} {
		_, err := ParseConfig([]byte(network(tt.ipam, tt.top)), "")
		wantFaults(t, err, tt.want)
	}
}

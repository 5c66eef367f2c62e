package poolspec

import (
	"errors"
	"fmt"
	"slices"
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

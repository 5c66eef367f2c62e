package poolspec

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
)

// TestValidAttachments (C14).
func TestValidAttachments(t *testing.T) {
	tests := []struct {
		name, top string
		has       bool
		want      []AttachmentRef
		faults    []string
	}{
		{"absent is not known", ``, false, nil, nil},
		{"null is none", `"cni.dev/valid-attachments": null`, true, nil, nil},
		{"an empty list is none", `"cni.dev/valid-attachments": []`, true, nil, nil},
		{"some", `"cni.dev/valid-attachments": [{"containerID": "a", "ifname": "net1"}, {"containerID": "b"}]`, true, []AttachmentRef{{"a", "net1"}, {"b", ""}}, nil},
		{"the older key", `"cni.dev/attachments": [{"containerID": "a", "ifname": "net1"}]`, true, []AttachmentRef{{"a", "net1"}}, nil},
		{"the older key, null", `"cni.dev/attachments": null`, true, nil, nil},
		{"both: the newer", `"cni.dev/attachments": null, "cni.dev/valid-attachments": [{"containerID": "a", "ifname": "net1"}]`, true, []AttachmentRef{{"a", "net1"}}, nil},
		{"not a list", `"cni.dev/valid-attachments": "all"`, false, nil, []string{"cni.dev/valid-attachments: is a string, not a list"}},
		{"not objects", `"cni.dev/valid-attachments": ["a", {"ifname": "net1"}, {"containerID": 5}]`, false, nil, []string{
			"cni.dev/valid-attachments[0]: is a string, not an object",
			"cni.dev/valid-attachments[1].containerID: is missing",
			"cni.dev/valid-attachments[2].containerID: is a number, not a string",
			"cni.dev/valid-attachments[2].containerID: is missing",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var top []string
			if tt.top != "" {
				top = append(top, tt.top)
			}
			config := []byte(network(`"pool": "a"`, top...))
			for _, parse := range []func() (*Config, error){
				func() (*Config, error) { return ParseConfig(config, "") },
				func() (*Config, error) { return ParseRelease(config) },
			} {
				c, err := parse()
				wantFaults(t, err, tt.faults...)
				if err != nil {
					continue
				}
				if c.HasValidAttachments != tt.has || !slices.Equal(c.ValidAttachments, tt.want) {
					t.Errorf("got %v, %v; want %v, %v", c.HasValidAttachments, c.ValidAttachments, tt.has, tt.want)
				}
			}
		})
	}
}

// TestReleaseNeedsNoValidConfiguration (C11).
func TestReleaseNeedsNoValidConfiguration(t *testing.T) {
	got, err := ParseRelease([]byte(`{"cniVersion": "1.0.0", "name": "n", "args": 5, "prevResult": 7, "runtimeConfig": {"ips": 3},
		"ipam": {"type": 4, "pool": "A", "range": "x", "mode": "local", "dataDir": "/run/state", "routes": 6, "surprise": true}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		CNIVersion: "1.0.0", Name: "n", Mode: ModeLocal,
		Socket: DefaultSocket, JournalDir: defaultJournalDir, DataDir: "/run/state",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}

	for _, ipam := range []string{``, `, "ipam": null`, `, "ipam": "x"`, `, "ipam": {"mode": 5, "dataDir": "rel"}`} {
		got, err := ParseRelease([]byte(`{"name": "n"` + ipam + `}`))
		if err != nil {
			t.Fatalf("%s: %v", ipam, err)
		}
		if got.Mode != ModeCluster {
			t.Errorf("%s: mode is %v; want cluster", ipam, got.Mode)
		}
	}

	_, err = ParseRelease([]byte(`{}`))
	wantFaults(t, err, "name: is missing")
	_, err = ParseRelease([]byte(`x`))
	wantFaults(t, err, "configuration: invalid character 'x' looking for beginning of value at byte 1")
}

// TestPrevAddresses (C12).
func TestPrevAddresses(t *testing.T) {
	tests := []struct {
		name, prev string
		want       []string
		ok         bool
		faults     []string
	}{
		{"absent", "", nil, false, nil},
		{"null", "null", nil, false, nil},
		{"1.0.0", `{"cniVersion": "1.0.0", "interfaces": [{"name": "net1"}], "ips": [{"address": "10.0.0.5/24", "interface": 0}, {"address": "fd00::5/64"}]}`, []string{"10.0.0.5/24", "fd00::5/64"}, true, nil},
		{"0.4.0", `{"cniVersion": "0.4.0", "ips": [{"version": "4", "address": "10.0.0.5/24"}]}`, []string{"10.0.0.5/24"}, true, nil},
		{"0.2.0", `{"cniVersion": "0.2.0", "ip4": {"ip": "10.0.0.5/24"}, "ip6": {"ip": "fd00::5/64"}}`, []string{"10.0.0.5/24", "fd00::5/64"}, true, nil},
		{"no addresses", `{}`, nil, true, nil},
		{"broken", `{"ips": [{"address": "10.0.0.5"}]}`, nil, true, []string{`prevResult.ips[0].address: "10.0.0.5" is not a CIDR`}},
		{"no object", `5`, nil, true, []string{"prevResult: json: cannot unmarshal number into Go value of type struct"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var top []string
			if tt.prev != "" {
				top = append(top, `"prevResult": `+tt.prev)
			}
			// Only CHECK looks into prevResult: no other verb fails for it.
			addrs, ok, err := mustParse(t, network(`"pool": "a"`, top...), "").PrevAddresses()
			if tt.name == "no object" {
				if err == nil {
					t.Error("no error")
				}
				return
			}
			wantFaults(t, err, tt.faults...)
			if ok != tt.ok || fmt.Sprint(addrs) != fmt.Sprint(prefixes(tt.want)) {
				t.Errorf("got %v, %v; want %v, %v", addrs, ok, tt.want, tt.ok)
			}
		})
	}
}

func prefixes(texts []string) (out []netip.Prefix) {
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

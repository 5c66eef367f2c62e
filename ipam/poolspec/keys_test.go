package poolspec

import (
	"reflect"
	"strings"
	"testing"
)

// TestKeysOfGoPrograms: an ipam section that a Go program has written of host-local's or
// whereabouts' own struct, or that such a program would read, means what it means to these. The
// keys may be in another case, and values that nobody has set say nothing.
func TestKeysOfGoPrograms(t *testing.T) {
	const hostLocal = `"ranges": [[{"subnet": "10.1.2.0/24", "gateway": "10.1.2.9"}]], "routes": [{"dst": "0.0.0.0/0"}]`
	const whereabouts = `"range": "10.0.0.0/24", "range_start": "10.0.0.10", "gateway": "10.0.0.1", "exclude": ["10.0.0.66/32"]`
	for _, tt := range []struct{ name, plain, written string }{
		{"host-local's struct", hostLocal,
			`"Name": "", "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "", "resolvConf": "", "ranges": [[{"subnet": "10.1.2.0/24", "gateway": "10.1.2.9"}]]`},
		{"host-local's keys in another case", hostLocal, `"Ranges": [[{"Subnet": "10.1.2.0/24", "GATEWAY": "10.1.2.9"}]], "Routes": [{"Dst": "0.0.0.0/0"}]`},
		{"host-local's with empty values of whereabouts'", hostLocal, hostLocal + `, "ipRanges": null, "range": "", "enable_overlapping_ranges": false, "node_slice_size": "", "kubernetes": {"KUBECONFIG": ""}`},
		{"whereabouts' struct", whereabouts,
			`"Name": "", "routes": null, "ipRanges": null, "exclude": ["10.0.0.66/32"], "dns": {}, "range": "10.0.0.0/24", "node_slice_size": "",
			"range_start": "10.0.0.10", "gateway": "10.0.0.1", "log_file": "", "log_level": "", "Gateway": "", "kubernetes": {}, "configuration_path": "",
			"PodName": "", "PodNamespace": "", "sleep_for_race": 0, "addresses": [], "enable_l3": false`},
		{"whereabouts' struct after it was read", whereabouts, whereabouts + `, "Gateway": "10.0.0.1"`},
		{"dns that nobody has set, beside resolvConf", whereabouts + `, "resolvConf": "/etc/resolv.conf"`, whereabouts + `, "resolvConf": "/etc/resolv.conf", "dns": {"nameservers": null, "domain": ""}`},
		{"a named pool", `"pool": "lan"`, `"Pool": "lan", "gateway": "", "subnet": "", "ranges": []`},
	} {
		want, got := mustParse(t, network(tt.plain), ""), mustParse(t, network(tt.written), "")
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", tt.name, got, want)
		}
	}
}

// TestKeysOfOthers: a key that nobody can have meant for one of Tenure's is noted and passed
// over; one that somebody has mistyped, or put in the wrong place, is a fault.
func TestKeysOfOthers(t *testing.T) {
	c := mustParse(t, network(`"range": "10.0.0.0/24", "PodName": "web-0", "vendor": {"x": 1}, "nothing": null, "routes": [{"dst": "10.1.0.0/16", "via": "x"}]`), "")
	if want := []string{"ipam.routes[0].via: is no key of Tenure's", "ipam.PodName: is no key of Tenure's", "ipam.vendor: is no key of Tenure's"}; !reflect.DeepEqual(c.Ignored, want) {
		t.Errorf("ignored %q; want %q", c.Ignored, want)
	}
	for key, want := range map[string]string{
		`"rang_start": "10.0.0.5"`:                                 "write range_start",
		`"exclud": ["10.0.0.5"]`:                                   "write exclude",
		`"ecxlude": ["10.0.0.5"]`:                                  "write exclude",
		`"ludexce": ["10.0.0.5"]`:                                  "write exclude",
		`"gatway": "10.0.0.1"`:                                     "write gateway",
		`"network-name": "a"`:                                      "write network_name",
		`"routes": [{"dst": "10.0.0.0/8", "exclude": "10.0.0.1"}]`: "move it to where exclude belongs",
		`"GATEWAY": "10.0.0.1", "gateway": "10.0.0.2"`:             "keep one of the two",
	} {
		_, err := ParseConfig([]byte(network(`"range": "10.0.0.0/24", `+key)), "")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", key, err, want)
		}
	}
}

// TestReleaseReadsKeysAlike: ADD and DEL find one store.
func TestReleaseReadsKeysAlike(t *testing.T) {
	text := []byte(`{"CNIVersion": "1.0.0", "Name": "net", "IPAM": {"Type": "tenure", "Mode": "local", "DataDir": "/x", "Subnet": "10.0.0.0/24"}}`)
	add, err := ParseConfig(text, "")
	if err != nil {
		t.Fatal(err)
	}
	del, err := ParseRelease(text)
	if err != nil {
		t.Fatal(err)
	}
	of, err := ParseNetwork(text, "def")
	if err != nil || len(of) != 1 {
		t.Fatalf("%d configurations of Tenure's, %v; want one", len(of), err)
	}
	for _, c := range []*Config{add, del, of[0]} {
		if c.Name != "net" || c.DataDir != "/x" || c.Mode != ModeLocal || c.CNIVersion != "1.0.0" {
			t.Errorf("read %+v", c)
		}
	}
}

package poolspec

import (
	"reflect"
	"testing"
)

// TestConfigSharesNothing: callers may use the text's memory again.
func TestConfigSharesNothing(t *testing.T) {
	text := []byte(network(`"ipRanges": [{"range": "10.0.0.0/24", "exclude": ["10.0.0.8/29"]}], "routes": [{"dst": "0.0.0.0/0"}], "dns": {"domain": "x"}`,
		`"prevResult": {"ips": [{"address": "10.0.0.6/24"}]}`, `"cni.dev/valid-attachments": [{"containerID": "c", "ifname": "net1"}]`))
	for name, parse := range map[string]func([]byte) (*Config, error){
		"config":  func(b []byte) (*Config, error) { return ParseConfig(b, "") },
		"release": ParseRelease,
	} {
		reused := append([]byte(nil), text...)
		got, err := parse(reused)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		clear(reused)
		want, err := parse(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v; want %+v, %v", name, got, want, err)
		}
	}
}

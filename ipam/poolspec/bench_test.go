package poolspec

import "testing"

func BenchmarkParseConfig(b *testing.B) {
	const args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=c1;K8S_POD_UID=5a9e2d3c-0000-0000-0000-000000000000"
	for _, bb := range []struct{ name, config string }{
		{"named", network(`"pool": "vlan-100"`)},
		{"whereabouts", network(`"ipRanges": [{"range": "192.168.10.0/24", "exclude": ["192.168.10.0/28"]}, {"range": "fd00::/64"}], "gateway": "192.168.10.1", "log_level": "debug"`)},
		{"host-local", network(`"ranges": [[{"subnet": "10.10.0.0/16", "rangeStart": "10.10.1.20", "rangeEnd": "10.10.3.50"}], [{"subnet": "fd00::/64"}]], "routes": [{"dst": "0.0.0.0/0"}]`)},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseConfig([]byte(bb.config), args); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("release", func(b *testing.B) {
		b.ReportAllocs()
		config := []byte(network(`"pool": "vlan-100"`))
		for b.Loop() {
			if _, err := ParseRelease(config); err != nil {
				b.Fatal(err)
			}
		}
	})
}

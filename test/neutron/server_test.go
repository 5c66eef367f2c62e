package neutron_test

import (
	"testing"

	server "github.com/tenure-ipam/tenure/test/neutron"
)

// TestServer: what a server has been told it knows after its end, however it has ended.
func TestServer(t *testing.T) {
	s := server.New(t, server.Options{})
	n := s.Network(t, server.Network{Subnets: []server.Subnet{{CIDR: "192.0.2.0/24"}, {CIDR: "2001:db8::/64", IPVersion: 6}}})
	port := s.Port(t, server.Port{NetworkID: n.ID, DeviceID: "a"})
	if len(port.FixedIPs) != 2 {
		t.Errorf("port with addresses %v; want one of each subnet", port.FixedIPs)
	}
	for name, end := range map[string]func() error{"Stop": s.Stop, "Kill": s.Kill} {
		if err := end(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s.Start(t)
		if got := s.Ports(t, "a"); len(got) != 1 || got[0].ID != port.ID {
			t.Errorf("after %s: ports %v; want %v", name, got, port)
		}
	}
}

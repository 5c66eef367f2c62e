// Package neutron runs a real server of OpenStack's Neutron for tests, as `make rig-neutron`
// unpacks it, on the loopback of a [sandbox], which is where it ends with the test whatever
// happens. It has SQLite behind it, and neither Keystone nor agents: ports stay DOWN.
//
//	func TestMain(m *testing.M) { os.Exit(sandbox.Main(sandbox.Options{}, m.Run)) }
//
//	func TestSomething(t *testing.T) {
//		server := neutron.New(t, neutron.Options{})
//		network := server.Network(t, neutron.Network{
//			Subnets: []neutron.Subnet{{CIDR: "192.0.2.0/24"}},
//		})
//		…
//	}
//
// It is ready in about 3 seconds on two cores. It can be ended, killed, frozen and started
// again on the same port over the same data. A [Door] is another address of it, at which a
// request may be made by somebody else, or its answer may be lost.
package neutron

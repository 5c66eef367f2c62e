package ports_test

import (
	"testing"

	"github.com/tenure-ipam/tenure/test/neutron"
)

// TestClaim: a claim has what its port has, in both families, and the port goes with the claim.
func TestClaim(t *testing.T) {
	w := begin(t)
	_, ids := w.subnets(t, neutron.Subnet{CIDR: "10.9.0.0/24"}, neutron.Subnet{CIDR: "fd00:9::/64", IPVersion: 6})
	p := pool(t, ids...)
	c := claim(t, p, "")
	w.only(t, c)
	remove(t, c)
	w.portless(t, c)
}

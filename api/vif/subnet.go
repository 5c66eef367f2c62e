package vif

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
)

// AnnotationSubnetOf is on a pool that the controller has made, with its subnet in Neutron, for a
// definition: the definition's namespace/name.
const AnnotationSubnetOf = "tenure.dev/subnet-of"

// FinalizerSubnet keeps such a pool until its subnet has been deleted in Neutron.
const FinalizerSubnet = "tenure.dev/neutron-subnet"

// NewSubnet is a subnet that is to be made in Neutron. It goes with the definition that describes
// it, and is never changed.
type NewSubnet struct {
	// CIDR is the subnet's, without host bits.
	CIDR string `json:"cidr"`
	// Gateway is an address of CIDR; empty: Neutron takes the first.
	Gateway string `json:"gateway,omitempty"`
	// NetworkID is the network of Neutron's that it is of; empty: one is made for it.
	NetworkID string `json:"networkId,omitempty"`
}

// Parse returns what s says in types.
func (s NewSubnet) Parse() (cidr netip.Prefix, gateway netip.Addr, err error) {
	cidr, err = netip.ParsePrefix(s.CIDR)
	if err != nil || cidr != cidr.Masked() {
		return cidr, gateway, fmt.Errorf("subnet.cidr %.80q is no CIDR without host bits: write one such as 10.0.0.0/24", s.CIDR)
	}
	if s.Gateway == "" {
		return cidr, gateway, nil
	}
	gateway, err = netip.ParseAddr(s.Gateway)
	if err != nil || !cidr.Contains(gateway) {
		return cidr, gateway, fmt.Errorf("subnet.gateway %.80q is no address of %v", s.Gateway, cidr)
	}
	return cidr, gateway, nil
}

// PoolName returns the name of the pool that is made for a definition with a [NewSubnet].
func PoolName(namespace, name string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + name))
	return "vif-" + hex.EncodeToString(sum[:8])
}

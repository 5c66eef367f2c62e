package protocol

import "net/netip"

// ResourceClaimRef names a ResourceClaim, by which a pod has devices.
type ResourceClaimRef struct {
	Namespace string
	Name      string
	UID       UID
}

// String returns "namespace/name".
func (r ResourceClaimRef) String() string { return r.Namespace + "/" + r.Name }

// ClaimedDevices are the devices of a ResourceClaim.
type ClaimedDevices struct {
	UID UID // the ResourceClaim's
	// Devices are the names of the devices that are allocated to it. When its last pod has ended
	// there are none.
	Devices []string
	// Profile says that a driver is to ask by a profile what they have.
	Profile bool
	// Addrs are the addresses of devices, as drivers say in the status.
	Addrs map[string][]netip.Prefix
}

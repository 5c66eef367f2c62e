package dranet

// The paths of the contract.
const (
	PathHealth  = "/health"
	PathProfile = "/GetProfileConfig"
	PathRelease = "/ReleaseProfileConfig"
)

// Health is the answer to GET /health.
type Health struct {
	CloudProvider   bool `json:"cloudProvider"`
	ProfileProvider bool `json:"profileProvider"`
}

// A Request asks for a profile's configuration, or that it is freed.
type Request struct {
	Device struct {
		Name string `json:"name"`
	} `json:"device"`
	ClaimUID string         `json:"claim_uid"` // of the ResourceClaim
	Config   *NetworkConfig `json:"config,omitempty"`
}

// NetworkConfig is what of DRANET's type of that name Tenure reads and writes.
type NetworkConfig struct {
	Profile   string    `json:"profile,omitempty"`
	Interface Interface `json:"interface"`
	Routes    []Route   `json:"routes,omitempty"`
}

// Interface is a device as it will be in the pod.
type Interface struct {
	Addresses []string `json:"addresses,omitempty"` // with prefix lengths
	DHCP      *bool    `json:"dhcp,omitempty"`
	MTU       *int32   `json:"mtu,omitempty"`
}

// Route is a route by way of the device.
type Route struct {
	Destination string `json:"destination,omitempty"`
	Gateway     string `json:"gateway,omitempty"`
	Scope       uint8  `json:"scope,omitempty"`
	Table       int    `json:"table,omitempty"`
}

// scopeLink is the scope of a route without a gateway: the kernel's RT_SCOPE_LINK.
const scopeLink = 253

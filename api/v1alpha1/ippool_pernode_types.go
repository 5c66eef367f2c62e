package v1alpha1

// PerNode gives each node a subnet of a pool for itself.
type PerNode struct {
	// prefixLength is the length of each node's subnet, at most 30, or 126 with IPv6. Pods have
	// addresses of this length. Of a subnet with more than 256 addresses the first 256 are given.
	// The ranges have at most 16,384 subnets.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=126
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="must not change: nodes have subnets of this length; make another pool"
	PrefixLength int32 `json:"prefixLength"`

	// gateway says which address of a subnet is its router's: First is the first one.
	// +optional
	// +kubebuilder:default=First
	Gateway PerNodeGateway `json:"gateway,omitempty"`

	// routes says which routes pods are given beside those of the pool: Whole is one to the whole
	// cidr of each range, through the gateway.
	// +optional
	// +kubebuilder:default=Whole
	Routes PerNodeRoutes `json:"routes,omitempty"`

	// pinned are the subnets that certain nodes have, and no others.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=1024
	Pinned []PinnedSubnet `json:"pinned,omitempty"`
}

// PerNodeGateway says which address of a node's subnet is its router's.
//
// +kubebuilder:validation:Enum=First;None
type PerNodeGateway string

// The gateways of subnets.
const (
	PerNodeGatewayFirst PerNodeGateway = "First"
	PerNodeGatewayNone  PerNodeGateway = "None"
)

// PerNodeRoutes says which routes come with a node's subnet.
//
// +kubebuilder:validation:Enum=Whole;None
type PerNodeRoutes string

// The routes that come with subnets.
const (
	PerNodeRoutesWhole PerNodeRoutes = "Whole"
	PerNodeRoutesNone  PerNodeRoutes = "None"
)

// PinnedSubnet is the subnet that a node has.
type PinnedSubnet struct {
	// node is the node's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`

	// cidr is the subnet, of the length that prefixLength says.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="is not a CIDR: write address/length, for example 192.168.7.0/24"
	CIDR string `json:"cidr"`
}

package v1alpha1

// PoolSource is what administers a pool's addresses outside the cluster. Every address of such
// a pool is given by it, to IPAMClaims alone.
type PoolSource struct {
	// neutron is OpenStack's Neutron. Each claim has a port there, which is made before the
	// claim has its addresses.
	// +required
	Neutron *NeutronSource `json:"neutron"`
}

// NeutronSource is the subnets of Neutron that a pool consists of.
type NeutronSource struct {
	// subnetIDs are the IDs of subnets of one network. Where several are of one family, an
	// interface has an address of the first of them that has one to give.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=36
	// +kubebuilder:validation:items:MaxLength=36
	// +kubebuilder:validation:items:Pattern=`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`
	SubnetIDs []string `json:"subnetIDs"`

	// interfaceParameters is the name of InterfaceParameters of namespace tenure-system. They
	// say how an interface is made where the network's definition does not: Kuryr's never do.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	InterfaceParameters string `json:"interfaceParameters,omitempty"`

	// nodePorts says what is done about the ports that the nodes themselves have on the
	// network, where they are virtual machines of the same OpenStack. Port security drops what
	// pods send by them, unless the pods' addresses are allowed there.
	// +optional
	// +kubebuilder:default=Unmanaged
	NodePorts NodePorts `json:"nodePorts,omitempty"`
}

// NodePorts says what is done about the nodes' own ports.
//
// +kubebuilder:validation:Enum=Unmanaged;AllowedAddressPairs
type NodePorts string

// What is done about the nodes' own ports.
const (
	// NodePortsUnmanaged: nothing. The nodes' segments carry the pods' frames by themselves.
	NodePortsUnmanaged NodePorts = "Unmanaged"
	// NodePortsPairs: each node's port has an allowed address pair for each address that a
	// pod of the node has.
	NodePortsPairs NodePorts = "AllowedAddressPairs"
)

// NeutronStatus is what was read of a pool's subnets last.
type NeutronStatus struct {
	// networkID is the ID of the network that all subnets are of.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	NetworkID string `json:"networkID"`

	// subnets are the subnets that Neutron has shown, in the order of the spec. One that it
	// shows no more stays here, with its addresses, as long as the spec names it.
	// +required
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=16
	Subnets []NeutronSubnet `json:"subnets"`

	// nodePorts is AllowedAddressPairs while the nodes' ports may have pairs that were made
	// for the pool: they go when the spec says Unmanaged.
	// +optional
	NodePorts NodePorts `json:"nodePorts,omitempty"`
}

// NeutronSubnet is a subnet of Neutron.
type NeutronSubnet struct {
	// id is its ID.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`

	// cidr is its CIDR: the ranges of the pool with this CIDR are the subnet's.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=43
	CIDR string `json:"cidr"`
}

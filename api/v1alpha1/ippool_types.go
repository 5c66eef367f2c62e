package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// IPPool is the address ranges of one addressing domain: an L2 segment, a VLAN.
// The pool is the domain: in one pool, an address has at most one owner.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=ippools,singular=ippool,shortName=tpool,categories=tenure
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.counts.used`
// +kubebuilder:printcolumn:name="Claimed",type=integer,JSONPath=`.status.counts.claimed`
// +kubebuilder:printcolumn:name="Free",type=integer,JSONPath=`.status.counts.free`
// +kubebuilder:printcolumn:name="Capacity",type=integer,JSONPath=`.status.counts.capacity`
// +kubebuilder:printcolumn:name="Pressure",type=string,JSONPath=`.status.pressure`
// +kubebuilder:printcolumn:name="Unreachable",type=integer,JSONPath=`.status.counts.unreachable`,priority=1
// +kubebuilder:printcolumn:name="Leases",type=integer,JSONPath=`.status.counts.leases`,priority=1
// +kubebuilder:printcolumn:name="Domain",type=string,JSONPath=`.spec.domain`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="metadata.name must be at most 63 lower-case letters, digits and '-', without dots: leases are named after the pool"
type IPPool struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's metadata. A name has at most 63 characters and no
	// dots, because leases are named <pool>.<block>.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the pool's addresses are and how they may be handed out.
	// +required
	Spec IPPoolSpec `json:"spec"`

	// status is what the controller made of the spec, and how full the pool is.
	// +optional
	Status IPPoolStatus `json:"status,omitzero"`
}

// IPPoolList is a list of pools.
//
// +kubebuilder:object:root=true
type IPPoolList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the pools.
	Items []IPPool `json:"items"`
}

// IPPoolSpec is what a user asks of a pool.
type IPPoolSpec struct {
	// ranges are the pool's addresses. Two ranges may lie in one CIDR where their
	// start and end keep them apart. One address of each family that the ranges
	// have is given to an interface.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Ranges []Range `json:"ranges"`

	// blockSize is how many addresses a node leases at once, in each family: a
	// power of two. Left out, it is a 256th of the widest range, and at most 64.
	// A change takes effect when no lease with the earlier size is left.
	// +optional
	// +kubebuilder:validation:Enum=1;2;4;8;16;32;64;128;256
	BlockSize *int32 `json:"blockSize,omitempty"`

	// routes are given to every interface with an address of the pool, before
	// those of the network's own configuration.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Routes []Route `json:"routes,omitempty"`

	// dns is given to every interface with an address of the pool whose network
	// configuration has none.
	// +optional
	DNS *DNS `json:"dns,omitempty"`

	// domain names the L2 segment that the pool's addresses live in. Pools of one
	// domain must not share addresses: one that would is not opened.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Domain string `json:"domain,omitempty"`

	// takeOver says whose word that a node is off is enough to give the node's
	// addresses to others.
	// +optional
	// +kubebuilder:default=Automatic
	TakeOver TakeOver `json:"takeOver,omitempty"`
}

// TakeOver says when the leases of a dead node go to the cluster.
//
// +kubebuilder:validation:Enum=Automatic;Confirmed
type TakeOver string

// The ways of taking over.
const (
	// TakeOverAutomatic: by the out-of-service taint, or when the Node object is
	// gone and its agent has been silent for the fence time.
	TakeOverAutomatic TakeOver = "Automatic"
	// TakeOverConfirmed: by the out-of-service taint alone.
	TakeOverConfirmed TakeOver = "Confirmed"
)

// Range is one CIDR of a pool, or a part of one.
type Range struct {
	// cidr is the subnet, without host bits. Its length is that of the addresses
	// given out of the range. Network address, broadcast address (IPv4, /30 and
	// shorter) and subnet-router anycast address (IPv6) are never given out.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=43
	CIDR string `json:"cidr"`

	// start is the first address of cidr that belongs to the pool. Left out, it
	// is the first of cidr.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=39
	Start string `json:"start,omitempty"`

	// end is the last address of cidr that belongs to the pool. Left out, it is
	// the last of cidr.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=39
	End string `json:"end,omitempty"`

	// exclude are addresses of cidr that are never given out: each an address, a
	// CIDR, or "first-last".
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=79
	Exclude []string `json:"exclude,omitempty"`

	// staticOnly are addresses of cidr that are given only to those who ask for
	// them by name: each an address, a CIDR, or "first-last".
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=79
	StaticOnly []string `json:"staticOnly,omitempty"`

	// gateway is the subnet's router, an address of cidr. It is never given out,
	// and is told to every interface with an address of the range.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=39
	Gateway string `json:"gateway,omitempty"`
}

// Route is a route that comes with an address.
type Route struct {
	// dst is the destination, as a CIDR without host bits.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=43
	Dst string `json:"dst"`

	// gw is the next hop. Left out, it is the gateway of the range that the
	// interface's address comes from.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=39
	GW string `json:"gw,omitempty"`
}

// DNS is the resolver configuration that comes with an address, with the keys
// of a CNI result.
//
// +kubebuilder:validation:MinProperties=1
type DNS struct {
	// nameservers are addresses of DNS servers, in order of preference.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=39
	Nameservers []string `json:"nameservers,omitempty"`

	// domain is the local domain.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Domain string `json:"domain,omitempty"`

	// search are the domains in which short names are looked up, in order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Search []string `json:"search,omitempty"`

	// options are the resolver's options, as in resolv.conf.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Options []string `json:"options,omitempty"`
}

// IPPoolStatus is what the controller made of a pool.
type IPPoolStatus struct {
	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// leasing says whether blocks of the pool may be leased. Absent means Closed.
	// +optional
	Leasing Leasing `json:"leasing,omitempty"`

	// blockPrefixLengths are the prefix lengths of the pool's blocks. They are
	// written before the first lease and change only while the pool is closed.
	// +optional
	BlockPrefixLengths *BlockPrefixLengths `json:"blockPrefixLengths,omitempty"`

	// pressure says how scarce the pool's addresses are. It seldom changes, and
	// tells the agents whether they may lease ahead of need.
	// +optional
	Pressure Pressure `json:"pressure,omitempty"`

	// counts are the pool's addresses in numbers, at most a minute old.
	// +optional
	Counts *PoolCounts `json:"counts,omitempty"`

	// conditions are Ready, Exhausted and Overlapping.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// Leasing says whether blocks of a pool may be leased.
//
// +kubebuilder:validation:Enum=Open;Closed
type Leasing string

// The states of leasing.
const (
	// LeasingOpen: agents and the controller may lease blocks.
	LeasingOpen Leasing = "Open"
	// LeasingClosed: nobody may lease a block; leases that exist go on.
	LeasingClosed Leasing = "Closed"
)

// Pressure says how scarce a pool's addresses are.
//
// +kubebuilder:validation:Enum=Low;High;Exhausted
type Pressure string

// The pressures.
const (
	// PressureLow: agents may lease a small reserve ahead of need.
	PressureLow Pressure = "Low"
	// PressureHigh: no reserves.
	PressureHigh Pressure = "High"
	// PressureExhausted: freed addresses go to the cluster at once.
	PressureExhausted Pressure = "Exhausted"
)

// BlockPrefixLengths are the prefix lengths of a pool's blocks by family; a
// family that the pool lacks is absent.
type BlockPrefixLengths struct {
	// ipv4 is the prefix length of IPv4 blocks: a block has at most 256 addresses.
	// +optional
	// +kubebuilder:validation:Minimum=24
	// +kubebuilder:validation:Maximum=32
	IPv4 *int32 `json:"ipv4,omitempty"`

	// ipv6 is the prefix length of IPv6 blocks: a block has at most 256 addresses.
	// +optional
	// +kubebuilder:validation:Minimum=120
	// +kubebuilder:validation:Maximum=128
	IPv6 *int32 `json:"ipv6,omitempty"`
}

// PoolCounts are a pool's addresses in numbers. A number that does not fit is
// the greatest that does, 9223372036854775807.
type PoolCounts struct {
	// capacity is how many addresses can be given out.
	// +required
	// +kubebuilder:validation:Minimum=0
	Capacity int64 `json:"capacity"`

	// used is how many addresses attachments have, those of claims in use
	// included.
	// +required
	// +kubebuilder:validation:Minimum=0
	Used int64 `json:"used"`

	// claimed is how many addresses belong to claims, in use or not.
	// +required
	// +kubebuilder:validation:Minimum=0
	Claimed int64 `json:"claimed"`

	// free is how many addresses a new attachment could get.
	// +required
	// +kubebuilder:validation:Minimum=0
	Free int64 `json:"free"`

	// unreachable is how many addresses nobody uses and nobody can get now,
	// because their node does not answer or has lost its store.
	// +required
	// +kubebuilder:validation:Minimum=0
	Unreachable int64 `json:"unreachable"`

	// leases is how many blocks are leased.
	// +required
	// +kubebuilder:validation:Minimum=0
	Leases int32 `json:"leases"`
}

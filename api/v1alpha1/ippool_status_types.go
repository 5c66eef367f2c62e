package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// IPPoolStatus is what the controller made of a pool.
//
// +kubebuilder:validation:XValidation:rule="!has(self.leasing) || self.leasing == 'Closed' || has(self.blockPrefixLengths)",message="is Open before blockPrefixLengths are decided: write them first",fieldPath=".leasing"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.blockPrefixLengths) || ((!has(oldSelf.leasing) || oldSelf.leasing == 'Closed') && (!has(self.leasing) || self.leasing == 'Closed')) || (has(self.blockPrefixLengths) && (!has(oldSelf.blockPrefixLengths.ipv4) || (has(self.blockPrefixLengths.ipv4) && self.blockPrefixLengths.ipv4 == oldSelf.blockPrefixLengths.ipv4)) && (!has(oldSelf.blockPrefixLengths.ipv6) || (has(self.blockPrefixLengths.ipv6) && self.blockPrefixLengths.ipv6 == oldSelf.blockPrefixLengths.ipv6)))",message="changes while leasing is Open: close the pool first, and open it when no lease of the earlier size is left",fieldPath=".blockPrefixLengths"
type IPPoolStatus struct {
	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// leasing says whether blocks of the pool may be leased. Absent means Closed.
	// +optional
	Leasing Leasing `json:"leasing,omitempty"`

	// opening is the epoch in which the pool was opened last, another word each time. The
	// pool's epoch is the later of opening and waited. An agent that has seen the API
	// server go back to an earlier state leases nothing of the pool before it is in a
	// later epoch.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Opening string `json:"opening,omitempty"`

	// waited is the pool's epoch while it has waited for the nodes after a restore, and
	// stays closed for another reason. It is later than opening, and goes when the pool
	// is opened.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Waited string `json:"waited,omitempty"`

	// blockPrefixLengths are the prefix lengths of the pool's blocks. They are
	// written before the first lease and change only while the pool is closed.
	// +optional
	BlockPrefixLengths *BlockPrefixLengths `json:"blockPrefixLengths,omitempty"`

	// withheld are addresses of the spec that are not given yet, each "first-last": an
	// edit has added them, and pods of another IPAM may have some of them. Without them
	// the spec counts as accepted.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=79
	Withheld []string `json:"withheld,omitempty"`

	// gateways are addresses of the spec that routers have, beside the gateways of the
	// ranges, by the networks that use the pool: a bridge with isGateway takes the first
	// of a subnet for which no gateway is named, and an inline definition names its own.
	// They are given to nobody.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=39
	Gateways []string `json:"gateways,omitempty"`

	// fenced is what whereabouts gives no more, since this pool has taken it over: names
	// of whereabouts' IPPools, which get no new allocations, and ranges,
	// [network_name-]CIDR, of which no OverlappingRangeIPReservation is made. The policy
	// foreign-fence.tenure.dev holds whereabouts to it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Fenced []string `json:"fenced,omitempty"`

	// fencedSince is when the pool last took addresses over from other IPAMs. Pods that
	// were bound to their nodes before may still get an address of another IPAM.
	// +optional
	FencedSince *metav1.Time `json:"fencedSince,omitempty"`

	// pressure says how scarce the pool's addresses are. It seldom changes, and
	// tells the agents whether they may lease ahead of need.
	// +optional
	Pressure Pressure `json:"pressure,omitempty"`

	// counts are the pool's addresses in numbers. They are counted at most a minute ago, of
	// what nodes had published, which they do twice a minute.
	// +optional
	Counts *PoolCounts `json:"counts,omitempty"`

	// selectors are, where a range has a nodeSelector, the addresses of the ranges with each
	// selector. A selector is written as kubectl's option --selector has it; that of the ranges for
	// all nodes is empty.
	// +optional
	// +listType=map
	// +listMapKey=selector
	// +kubebuilder:validation:MaxItems=64
	Selectors []SelectorStatus `json:"selectors,omitempty"`

	// neutron is what was read of the subnets of a pool with that source.
	// +optional
	Neutron *NeutronStatus `json:"neutron,omitempty"`

	// conditions are Ready, Exhausted, Overlapping; while they are true, ForeignIPAM,
	// ForeignAddresses and TwoOwners; SourceReady of a pool with a source; and Advertised of
	// one with advertise.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// SelectorStatus is how full those ranges of a pool are that have one node selector. A block in
// which two selectors have addresses counts for both.
type SelectorStatus struct {
	// selector is the node selector, in words.
	// +required
	// +kubebuilder:validation:MaxLength=32768
	Selector string `json:"selector"`

	// nodes is how many nodes it selects.
	// +required
	// +kubebuilder:validation:Minimum=0
	Nodes int32 `json:"nodes"`

	// pressure says how scarce the addresses are, for these nodes.
	// +optional
	Pressure Pressure `json:"pressure,omitempty"`

	// capacity is how many addresses can be given out.
	// +required
	// +kubebuilder:validation:Minimum=0
	Capacity int64 `json:"capacity"`

	// used is how many addresses attachments have.
	// +required
	// +kubebuilder:validation:Minimum=0
	Used int64 `json:"used"`

	// free is how many addresses a new attachment could get.
	// +required
	// +kubebuilder:validation:Minimum=0
	Free int64 `json:"free"`

	// exhausted says why no new attachment gets an address; empty if one could get one.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Exhausted string `json:"exhausted,omitempty"`
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

// BlockPrefixLengths are the prefix lengths of a pool's blocks by family. A family is absent that
// the pool lacks, or of which blocks are about to have another size.
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
// the greatest that does, 9223372036854775807. freeText and capacityText are for people.
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

	// freeText is free as kubectl shows it: ">2^63" where the number does not fit.
	// +optional
	// +kubebuilder:validation:MaxLength=20
	FreeText string `json:"freeText,omitempty"`

	// capacityText is capacity as kubectl shows it, likewise.
	// +optional
	// +kubebuilder:validation:MaxLength=20
	CapacityText string `json:"capacityText,omitempty"`

	// unreachable is how many addresses nobody uses and nobody can get now,
	// because their node does not answer or has lost its store.
	// +required
	// +kubebuilder:validation:Minimum=0
	Unreachable int64 `json:"unreachable"`

	// leases is how many blocks are leased.
	// +required
	// +kubebuilder:validation:Minimum=0
	Leases int32 `json:"leases"`

	// foreign is how many addresses belong to pods that another IPAM gave them to.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Foreign int64 `json:"foreign,omitempty"`

	// reserved is how many addresses belong to IPReservations.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Reserved int64 `json:"reserved,omitempty"`
}

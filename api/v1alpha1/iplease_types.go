package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// IPLease is the exclusive right of its holder, a node or the cluster, to hand
// out the addresses of one block. Its name is <pool>.<base address in hex>.
// <prefix length>, so that a second lease of a block cannot exist. Tenure's
// programs write leases; deleting one by hand takes addresses from running pods.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=ipleases,singular=iplease,shortName=tlease,categories=tenure
// +kubebuilder:selectablefield:JSONPath=`.spec.pool`
// +kubebuilder:selectablefield:JSONPath=`.spec.holder.node`
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.pool`
// +kubebuilder:printcolumn:name="Block",type=string,JSONPath=`.spec.block`
// +kubebuilder:printcolumn:name="Holder",type=string,JSONPath=`.spec.holder.kind`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.holder.node`
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.used`
// +kubebuilder:printcolumn:name="Free",type=integer,JSONPath=`.status.free`
// +kubebuilder:printcolumn:name="Term",type=integer,JSONPath=`.spec.term`,priority=1
// +kubebuilder:printcolumn:name="Turn",type=integer,JSONPath=`.spec.turn`,priority=1
// +kubebuilder:printcolumn:name="Store",type=string,JSONPath=`.spec.store`,priority=1
// +kubebuilder:printcolumn:name="Published",type=date,JSONPath=`.status.published`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type IPLease struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's metadata. Leases have neither finalizers nor
	// owners: nothing of Kubernetes' may delete one.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the right: whose it is, and what of it belongs to others.
	// +required
	Spec IPLeaseSpec `json:"spec"`

	// status is for people. No right rests on it.
	// +optional
	Status IPLeaseStatus `json:"status,omitzero"`
}

// IPLeaseList is a list of leases.
//
// +kubebuilder:object:root=true
type IPLeaseList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the leases.
	Items []IPLease `json:"items"`
}

// IPLeaseSpec is the right to a block.
type IPLeaseSpec struct {
	// protocol is the version of the lease protocol that the last writer speaks.
	// A writer that meets a higher number than its own leaves the object alone.
	// +required
	// +kubebuilder:validation:Minimum=1
	Protocol int32 `json:"protocol"`

	// pool is the name of the block's pool.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Pool string `json:"pool"`

	// poolUID is the UID of the pool that the lease was made under.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	PoolUID string `json:"poolUID"`

	// block is the block as a CIDR in canonical form, of at most 256 addresses.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=43
	Block string `json:"block"`

	// holder is who may hand out the block's addresses that are neither ceded nor
	// granted.
	// +required
	Holder Holder `json:"holder"`

	// store is the ID of the node store that answers for the lease; empty where
	// the cluster holds.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Store string `json:"store,omitempty"`

	// term is the term of the holder's seat in which the lease was last
	// confirmed; 0 where the cluster holds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Term int64 `json:"term,omitempty"`

	// turn is changed by every fencing write.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Turn int64 `json:"turn,omitempty"`

	// ceded are the addresses of the block that the holding node has given to the
	// cluster. It takes one back by removing it, unless it has been granted.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=39
	Ceded []string `json:"ceded,omitempty"`

	// grants are the addresses of the block that belong to claims and sub-leases.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Grants []Grant `json:"grants,omitempty"`
}

// Holder is who holds a lease.
//
// +kubebuilder:validation:XValidation:rule="has(self.node) == (self.kind == 'Node')",message="node is set where kind is Node, and only there"
type Holder struct {
	// kind says whether a node or the cluster holds.
	// +required
	Kind HolderKind `json:"kind"`

	// node is the name of the holding node.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`
}

// HolderKind says what kind of holder a lease has.
//
// +kubebuilder:validation:Enum=Node;Cluster
type HolderKind string

// The kinds of holder.
const (
	// HolderNode: the agent of one node hands out the block's addresses.
	HolderNode HolderKind = "Node"
	// HolderCluster: the controller hands out the block's addresses.
	HolderCluster HolderKind = "Cluster"
)

// Grant gives one address to a claim or a sub-lease.
type Grant struct {
	// address is the address, in canonical form.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=39
	Address string `json:"address"`

	// to is whose the address is.
	// +required
	To Grantee `json:"to"`

	// freeing says that the controller wants the address back: a use that reads
	// it must not go on. Only true is written.
	// +optional
	// +kubebuilder:validation:Enum=true
	Freeing bool `json:"freeing,omitempty"`
}

// Grantee is to whom an address is granted. The UID alone decides.
type Grantee struct {
	// kind says what kind of object the grantee is.
	// +required
	Kind GranteeKind `json:"kind"`

	// uid is the grantee's UID.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`

	// namespace is the namespace of a claim.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// name is the grantee's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// GranteeKind says what kind of object an address is granted to.
//
// +kubebuilder:validation:Enum=Claim;SubLease
type GranteeKind string

// The kinds of grantee.
const (
	// GranteeClaim: an IPAMClaim.
	GranteeClaim GranteeKind = "Claim"
	// GranteeSubLease: an IPSubLease with a request.
	GranteeSubLease GranteeKind = "SubLease"
)

// IPLeaseStatus is what the holder last published about a block.
type IPLeaseStatus struct {
	// used is how many of the block's addresses attachments of the holder have.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=256
	Used *int32 `json:"used,omitempty"`

	// free is how many of the block's addresses the holder could give out.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=256
	Free *int32 `json:"free,omitempty"`

	// published is when the holder wrote this.
	// +optional
	Published *metav1.Time `json:"published,omitempty"`

	// allocations say who has which address, as "address namespace/pod interface".
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=400
	Allocations []string `json:"allocations,omitempty"`
}

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
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.spec.block) || (self.metadata.name.startsWith(self.spec.pool + '.') && self.metadata.name.matches('[.]([0-9a-f]{8}[.][0-9]{2}|[0-9a-f]{32}[.][0-9]{3})$') && (cidr(self.spec.block).ip().family() == 4 ? size(self.metadata.name) == size(self.spec.pool) + 12 && int(self.metadata.name.substring(size(self.spec.pool) + 10)) == cidr(self.spec.block).prefixLength() && [self.spec.block.split('/', 2)[0].split('.', 4).map(o, int(o))].all(o, [0, 1, 2, 3].all(i, '0123456789abcdef'.indexOf(self.metadata.name.charAt(size(self.spec.pool) + 1 + 2 * i)) * 16 + '0123456789abcdef'.indexOf(self.metadata.name.charAt(size(self.spec.pool) + 2 + 2 * i)) == o[i])) : size(self.metadata.name) == size(self.spec.pool) + 37 && int(self.metadata.name.substring(size(self.spec.pool) + 34)) == cidr(self.spec.block).prefixLength() && [self.spec.block.split('/', 2)[0].split('::', 2).map(h, size(h) == 0 ? [] : h.split(':', 8).map(g, [3, 2, 1, 0].map(k, size(g) > k ? '0123456789abcdef'.indexOf(g.charAt(size(g) - 1 - k)) : 0)))].all(p, [0, 1, 2, 3, 4, 5, 6, 7].all(i, (i < size(p[0]) ? p[0][i] : i < 8 - size(p[size(p) - 1]) ? [0, 0, 0, 0] : p[size(p) - 1][i - 8 + size(p[size(p) - 1])]) == [0, 1, 2, 3].map(k, '0123456789abcdef'.indexOf(self.metadata.name.charAt(size(self.spec.pool) + 1 + 4 * i + k)))))))",message="metadata.name must be spec.pool, the base address of spec.block in hex, and its prefix length, joined by dots: lan.0a000040.26 for 10.0.0.64/26 of lan"
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
//
// +kubebuilder:validation:XValidation:rule="has(self.store) == (self.holder.kind == 'Node')",message="is set where holder.kind is Node, and only there",fieldPath=".store"
// +kubebuilder:validation:XValidation:rule="self.holder.kind == 'Node' || !has(self.term) || self.term == 0",message="is 0 where holder.kind is Cluster: terms are those of a node's registration",fieldPath=".term"
// +kubebuilder:validation:XValidation:rule="self.holder.kind == 'Cluster' || !has(self.store) || !has(oldSelf.store) || self.store == oldSelf.store",message="must not change while a node holds: a new store leases anew",fieldPath=".store"
// +kubebuilder:validation:XValidation:rule="!has(self.ceded) || !isCIDR(self.block) || self.ceded.all(a, !isIP(a) || cidr(self.block).containsIP(a))",message="has an address outside block",fieldPath=".ceded"
// +kubebuilder:validation:XValidation:rule="!has(self.grants) || !isCIDR(self.block) || self.grants.all(g, !isIP(g.address) || cidr(self.block).containsIP(g.address))",message="has an address outside block",fieldPath=".grants"
// +kubebuilder:validation:XValidation:rule="self.holder.kind == 'Cluster' || !has(self.grants) || (has(self.ceded) && self.grants.all(g, g.address in self.ceded))",message="has a granted address that is not ceded: a node's addresses are granted only once it has ceded them, and not taken back while granted",fieldPath=".grants"
type IPLeaseSpec struct {
	// protocol is the version of the lease protocol that the last writer speaks.
	// A writer that meets a higher number than its own leaves the object alone.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:XValidation:rule="self >= oldSelf",message="must not fall: the object was written by a newer program, which must be the one to change it"
	Protocol int32 `json:"protocol"`

	// pool is the name of the block's pool.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: a lease of another pool is another object"
	Pool string `json:"pool"`

	// poolUID is the UID of the pool that the lease was made under.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: a lease of another pool is another object"
	PoolUID string `json:"poolUID"`

	// block is the block as a CIDR in canonical form, of at most 256 addresses.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self) == cidr(self).masked() && string(cidr(self)) == self",message="is not a CIDR in canonical form: write one such as 10.0.0.64/26 or fd00::40/122"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self).prefixLength() >= (cidr(self).ip().family() == 4 ? 24 : 120)",message="has more than 256 addresses: lease smaller blocks"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: a lease of another block is another object"
	Block string `json:"block"`

	// holder is who may hand out the block's addresses that are neither ceded nor
	// granted.
	// +required
	// +kubebuilder:validation:XValidation:rule="self.kind == 'Cluster' || self == oldSelf",message="must not change but to the cluster: nodes never hand leases to each other"
	Holder Holder `json:"holder"`

	// store is the ID of the node store that answers for the lease; empty where
	// the cluster holds.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Store string `json:"store,omitempty"`

	// term is the term of the holder's registration in which the lease was last
	// confirmed; 0 where the cluster holds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Term int64 `json:"term,omitempty"`

	// turn is the write counter: every fencing write raises it.
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
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) && ip.isCanonical(self)",message="is not an IP address in canonical form: write one such as 10.0.0.5 or fd00::5"
	Ceded []string `json:"ceded,omitempty"`

	// grants are the addresses of the block that belong to claims, sub-leases and
	// reservations, and to pods that another IPAM has given them to.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:XValidation:rule="[self.map(g, g.address)].all(l, l.all(a, l.indexOf(a) == l.lastIndexOf(a)))",message="grant one address twice: an address has one owner"
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

// Grant gives one address to its grantee, or keeps it for it.
type Grant struct {
	// address is the address, in canonical form.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip.isCanonical(self)",message="is not an IP address in canonical form: write one such as 10.0.0.5 or fd00::5"
	Address string `json:"address"`

	// to is whose the address is.
	// +required
	To Grantee `json:"to"`

	// freeing says that the controller wants the address back: a use that reads
	// it must not go on. Only true is written.
	// +optional
	// +kubebuilder:validation:Enum=true
	Freeing bool `json:"freeing,omitempty"`

	// mark tells one freeing from every other of the same address and grantee: it is
	// the lease's resourceVersion before it was written. A grant is removed only by
	// who knew its mark before changing the grantee, or looking for its uses.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Mark string `json:"mark,omitempty"`
}

// Grantee is to whom an address is granted. The UID alone decides.
//
// +kubebuilder:validation:XValidation:rule="!has(self.node) || self.kind == 'Pod'",message="node is set where kind is Pod, and only there",fieldPath=".node"
type Grantee struct {
	// kind says what kind of object the grantee is.
	// +required
	Kind GranteeKind `json:"kind"`

	// uid is the grantee's UID. With "several/" in front of a pod's the address is kept from all,
	// since other pods are said to have it as well.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=72
	UID string `json:"uid"`

	// namespace is the namespace of a claim or a pod.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// name is the grantee's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// node is the node of a pod. Its agent tells when the pod's last sandbox is gone.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`
}

// GranteeKind says what kind of object an address is granted to.
//
// +kubebuilder:validation:Enum=Claim;SubLease;Pod;Reservation
type GranteeKind string

// The kinds of grantee.
const (
	// GranteeClaim: an IPAMClaim.
	GranteeClaim GranteeKind = "Claim"
	// GranteeSubLease: an IPSubLease with a request.
	GranteeSubLease GranteeKind = "SubLease"
	// GranteePod: a pod to which another IPAM has given the address.
	GranteePod GranteeKind = "Pod"
	// GranteeReservation: an IPReservation.
	GranteeReservation GranteeKind = "Reservation"
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

	// allocations say who has which address, as "address namespace/pod interface"; of a device
	// that the pod has by a ResourceClaim with a fourth word, "resourceclaim/name".
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=400
	Allocations []string `json:"allocations,omitempty"`

	// answered is the ID of the last recall, on the holder's registration, that the holder
	// has answered: what of it was free it has ceded.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Answered string `json:"answered,omitempty"`
}

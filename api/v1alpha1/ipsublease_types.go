package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// IPSubLease is a node's request for, and record of, addresses that are granted
// out of blocks, or its use of a claim. Tenure's agents write them.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=ipsubleases,singular=ipsublease,shortName=tsub,categories=tenure
// +kubebuilder:selectablefield:JSONPath=`.spec.node`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.node`
// +kubebuilder:printcolumn:name="Claim",type=string,JSONPath=`.spec.use.claim.name`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec['use','request'].pod.namespace`
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.spec['use','request'].pod.name`
// +kubebuilder:printcolumn:name="Interface",type=string,JSONPath=`.spec['use','request'].interface`
// +kubebuilder:printcolumn:name="Refused",type=string,JSONPath=`.status.refused.reason`
// +kubebuilder:printcolumn:name="Term",type=integer,JSONPath=`.spec.term`,priority=1
// +kubebuilder:printcolumn:name="Turn",type=integer,JSONPath=`.spec.turn`,priority=1
// +kubebuilder:printcolumn:name="Store",type=string,JSONPath=`.spec.store`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="has(self.spec.use) ? self.metadata.name in [self.spec.use.claim.uid + '.0', self.spec.use.claim.uid + '.1'] : !self.metadata.name.contains('.')",message="metadata.name must be the claim's UID with .0 or .1 for a use, and have no dot for a request"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.use) || !has(self.status) || (!has(self.status.granted) && !has(self.status.refused))",message="must be empty: only requests are answered",fieldPath=".status"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || (!has(oldSelf.status.granted) && !has(oldSelf.status.refused)) || (has(self.status) && self.status == oldSelf.status)",message="is written once: what was answered stands",fieldPath=".status"
type IPSubLease struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's metadata. A use is named <claim UID>.0 or .1; the
	// name of a request has no dot.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the node asks for or uses.
	// +required
	Spec IPSubLeaseSpec `json:"spec"`

	// status is the controller's answer to a request, written once.
	// +optional
	Status IPSubLeaseStatus `json:"status,omitzero"`
}

// IPSubLeaseList is a list of sub-leases.
//
// +kubebuilder:object:root=true
type IPSubLeaseList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the sub-leases.
	Items []IPSubLease `json:"items"`
}

// IPSubLeaseSpec is what a node asks for, or uses. Only term, turn, protocol and
// a use's pod and interface may change.
//
// +kubebuilder:validation:XValidation:rule="has(self.use) != has(self.request)",message="must have exactly one of use and request"
// +kubebuilder:validation:XValidation:rule="has(self.use) == has(oldSelf.use)",message="must not turn from a use into a request, or back: write another sub-lease instead"
type IPSubLeaseSpec struct {
	// protocol is the version of the lease protocol that the last writer speaks.
	// A writer that meets a higher number than its own leaves the object alone.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:XValidation:rule="self >= oldSelf",message="must not fall: the object was written by a newer program, which must be the one to change it"
	Protocol int32 `json:"protocol"`

	// node is the name of the node whose agent wrote this.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: write another sub-lease instead"
	Node string `json:"node"`

	// store is the ID of that node's store.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: write another sub-lease instead"
	Store string `json:"store"`

	// term is the term of the node's registration in which this was last confirmed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Term int64 `json:"term,omitempty"`

	// turn is the write counter: every fencing write raises it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Turn int64 `json:"turn,omitempty"`

	// use says that the node lets a pod use a claim's addresses. While it exists
	// they are not freed.
	// +optional
	Use *Use `json:"use,omitempty"`

	// request asks the controller for addresses that the node has no block for.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: write another sub-lease instead"
	Request *Request `json:"request,omitempty"`
}

// Use is a node's use of a claim.
type Use struct {
	// claim is the claim.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: write another sub-lease instead"
	Claim ClaimReference `json:"claim"`

	// pod is the pod that uses it.
	// +required
	Pod PodReference `json:"pod"`

	// interface is the name of the pod's interface.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	Interface string `json:"interface"`
}

// Request is what one ADD lacks: all of it is granted, or nothing.
type Request struct {
	// pod is the pod that the addresses are for.
	// +required
	Pod PodReference `json:"pod"`

	// interface is the name of the pod's interface.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	Interface string `json:"interface"`

	// wants are the addresses asked for, one for each element.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Wants []Want `json:"wants"`
}

// Want asks for one address.
type Want struct {
	// pool is the name of the pool.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Pool string `json:"pool"`

	// ranges are the addresses of which any will do, each "first-last".
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=79
	// +kubebuilder:validation:items:XValidation:rule="self.contains('-') && self.split('-', 2).all(a, isIP(a) && ip(a).family() == (self.contains(':') ? 6 : 4))",message="is not first-last of one family: write for example 10.0.0.10-10.0.0.19"
	Ranges []string `json:"ranges"`
}

// ClaimReference names an IPAMClaim.
type ClaimReference struct {
	// namespace is the claim's namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// name is the claim's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// uid is the claim's UID.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
}

// PodReference names a pod and its controller.
type PodReference struct {
	// namespace is the pod's namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// name is the pod's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// uid is the pod's UID.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`

	// owner is the pod's controller; absent if it has none.
	// +optional
	Owner *OwnerReference `json:"owner,omitempty"`
}

// OwnerReference names the controller of a pod.
type OwnerReference struct {
	// kind is the controller's kind.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// name is the controller's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// uid is the controller's UID.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
}

// IPSubLeaseStatus is the controller's answer to a request: all that was wanted,
// or a refusal.
//
// +kubebuilder:validation:XValidation:rule="!has(self.granted) || !has(self.refused)",message="must not have both granted and refused: all that was wanted is granted, or nothing"
type IPSubLeaseStatus struct {
	// granted are the addresses, in the order of the request's wants.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Granted []Granted `json:"granted,omitempty"`

	// refused says why nothing is granted.
	// +optional
	Refused *Refusal `json:"refused,omitempty"`
}

// Granted is an address and the lease that it was granted out of.
type Granted struct {
	// address is the address.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip.isCanonical(self)",message="is not an IP address in canonical form: write one such as 10.0.0.5 or fd00::5"
	Address string `json:"address"`

	// lease is the name of the block's lease.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Lease string `json:"lease"`
}

// Refusal says why a request is refused.
type Refusal struct {
	// reason is one word for programs; the constants Refused… are those in use.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z]*$`
	Reason string `json:"reason"`

	// message is for people, and says who has what was wanted.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
}

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// IPReservation keeps one address of a pool for something that is no pod: a router, a
// printer, an appliance of the segment. A range is kept by a pool's exclude instead.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=ipreservations,singular=ipreservation,shortName=tres,categories=tenure
// +kubebuilder:selectablefield:JSONPath=`.spec.pool`
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.pool`
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.address`
// +kubebuilder:printcolumn:name="For",type=string,JSONPath=`.spec.for`
// +kubebuilder:printcolumn:name="Reserved",type=string,JSONPath=`.status.conditions[?(@.type=="Reserved")].status`
// +kubebuilder:printcolumn:name="Until",type=date,JSONPath=`.spec.until`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Reserved")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type IPReservation struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is kept, and for whom.
	// +required
	Spec IPReservationSpec `json:"spec"`

	// status says whether it is kept.
	// +optional
	Status IPReservationStatus `json:"status,omitzero"`
}

// IPReservationList is a list of reservations.
//
// +kubebuilder:object:root=true
type IPReservationList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the reservations.
	Items []IPReservation `json:"items"`
}

// IPReservationSpec is one address and for whom it is kept.
type IPReservationSpec struct {
	// pool is the name of the address's pool.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: make another reservation, and delete this one"
	Pool string `json:"pool"`

	// address is the address, in canonical form.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip.isCanonical(self)",message="is not an IP address in canonical form: write one such as 10.0.0.5 or fd00::5"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: make another reservation, and delete this one"
	Address string `json:"address"`

	// for says, for people, what has the address.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	For string `json:"for"`

	// until is when the reservation ends. Left out, it ends when it is deleted.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
}

// IPReservationStatus says whether an address is kept.
type IPReservationStatus struct {
	// conditions are Reserved.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// Reserved is the type of a reservation's condition: whether the address is kept.
const Reserved = "Reserved"

// Reasons of the condition Reserved.
const (
	// ReasonKept (True): nobody else gets the address.
	ReasonKept = "Kept"
	// ReasonInUse (False): somebody has the address; the message says who. The
	// reservation takes it when it comes free.
	ReasonInUse = "InUse"
	// ReasonNotAssignable (False): the pool never gives the address, so that nothing is
	// to be kept.
	ReasonNotAssignable = "NotAssignable"
	// ReasonPoolNotReady (False): the pool is missing, closed or faulty.
	ReasonPoolNotReady = "PoolNotReady"
	// ReasonExpired (False): spec.until has passed.
	ReasonExpired = "Expired"
)

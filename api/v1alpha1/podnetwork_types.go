package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PodNetwork is a network that pods of the cluster can be attached to, as the Kubernetes
// enhancement proposal "PodNetwork object, phase I" has it. Pods list them in the annotation
// tenure.dev/pod-networks.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=podnetworks,shortName=pn,categories=tenure
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="InUse",type=string,JSONPath=`.status.conditions[?(@.type=="InUse")].status`
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.spec.provider`
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PodNetwork struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what the network is. Nothing of it can be changed but enabled, access and
	// namespaceSelector.
	// +optional
	// +kubebuilder:default={}
	Spec PodNetworkSpec `json:"spec,omitzero"`

	// status says whether pods can be attached to it.
	// +optional
	Status PodNetworkStatus `json:"status,omitzero"`
}

// PodNetworkList is a list of PodNetworks.
//
// +kubebuilder:object:root=true
type PodNetworkList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the networks.
	Items []PodNetwork `json:"items"`
}

// PodNetworkSpec says what a network is, who implements it and who may use it.
//
// +kubebuilder:validation:XValidation:rule="has(self.provider)==has(oldSelf.provider)",message="provider is immutable"
type PodNetworkSpec struct {
	// enabled is whether new pods can be attached. Pods that are attached stay so.
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`

	// parametersRefs are the objects that say how pods are attached. With the provider
	// tenure.dev/attach: one NetworkAttachmentDefinition; or one InterfaceParameters and, for
	// a network with addresses, one IPPool.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="are immutable: make another PodNetwork"
	// +kubebuilder:default={}
	ParametersRefs []ParametersRef `json:"parametersRefs,omitempty"`

	// provider is who attaches pods: a name in the form of a URL without its scheme. Tenure's is
	// tenure.dev/attach.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z][a-z0-9+.-]*://)?[A-Za-z0-9][A-Za-z0-9.:/_~%@+-]*$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: make another PodNetwork"
	Provider string `json:"provider,omitempty"`

	// access says whether a namespace must be allowed to use the network. Left out: everyone
	// may.
	// +optional
	Access Access `json:"access,omitempty"`

	// namespaceSelector selects the namespaces whose pods may use the network. Left out: all
	// may.
	// +optional
	NamespaceSelector *LabelSelector `json:"namespaceSelector,omitempty"`
}

// IsEnabled reports whether new pods can be attached.
func (s PodNetworkSpec) IsEnabled() bool { return s.Enabled == nil || *s.Enabled }

// ParametersRef names an object.
type ParametersRef struct {
	// group is the object's API group, such as k8s.cni.cncf.io.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group"`

	// kind is the object's kind, such as NetworkAttachmentDefinition.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// name is the object's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// namespace is the object's namespace, if its kind has any. In a PodNetworkAttachment it is
	// that of the attachment, and may be left out.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// PodNetworkStatus says whether pods can be attached to a network.
type PodNetworkStatus struct {
	// conditions are Ready and ParamsReady, as the proposal has them, InUse and NodesServe.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	// +kubebuilder:validation:MaxItems=5
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// PodNetworkAttachment is a PodNetwork with parameters of a namespace's own. Pods of the
// namespace list it in the place of the network.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=podnetworkattachments,shortName=pna,categories=tenure
// +kubebuilder:printcolumn:name="Network",type=string,JSONPath=`.spec.podNetworkName`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="InUse",type=string,JSONPath=`.status.conditions[?(@.type=="InUse")].status`
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PodNetworkAttachment struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says of which network, and with which parameters. It is immutable.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: make another attachment"
	Spec PodNetworkAttachmentSpec `json:"spec"`

	// status says whether pods can be attached by it.
	// +optional
	Status PodNetworkStatus `json:"status,omitzero"`
}

// PodNetworkAttachmentList is a list of PodNetworkAttachments.
//
// +kubebuilder:object:root=true
type PodNetworkAttachmentList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the attachments.
	Items []PodNetworkAttachment `json:"items"`
}

// PodNetworkAttachmentSpec is a network, and a namespace's own parameters for it.
type PodNetworkAttachmentSpec struct {
	// podNetworkName is the name of the PodNetwork. The one named default is the cluster's own, and
	// has no attachments.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self != 'default'",message="is the cluster's own network, which takes no parameters: have pods list the PodNetwork itself"
	PodNetworkName string `json:"podNetworkName"`

	// parametersRefs are the namespace's own parameters. With the provider tenure.dev/attach: one
	// InterfaceParameters of this namespace, of the network's own type, which says nothing but
	// mtu, hairpin, checkMAC true, and a bandwidth that is not above the network's.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	ParametersRefs []ParametersRef `json:"parametersRefs,omitempty"`
}

// InUseFinalizer keeps a deleted PodNetwork or PodNetworkAttachment as long as something refers
// to it.
const InUseFinalizer = "tenure.dev/in-use"

// Types of the conditions of PodNetworks and PodNetworkAttachments.
const (
	// NetworkReady says whether pods can be attached.
	NetworkReady = "Ready"
	// NetworkParamsReady says whether what parametersRefs names is ready. The provider sets it.
	NetworkParamsReady = "ParamsReady"
	// NetworkInUse says whether pods that run, or attachments, refer to the network.
	NetworkInUse = "InUse"
	// NetworkNodesServe says whether all nodes attach their pods to networks of Tenure's provider.
	// Ready does not depend on it.
	NetworkNodesServe = "NodesServe"
)

// Reasons of these conditions.
const (
	// ReasonNetworkReady (Ready True): pods can be attached.
	ReasonNetworkReady = "NetworkReady"
	// ReasonParamsNotReady (Ready False): there are parametersRefs, and ParamsReady is not True.
	ReasonParamsNotReady = "ParamsNotReady"
	// ReasonAdministrativelyDisabled (Ready False): spec.enabled is false.
	ReasonAdministrativelyDisabled = "AdministrativelyDisabled"
	// ReasonPodNetworkNotReady (Ready False, of an attachment): its PodNetwork is not Ready.
	ReasonPodNetworkNotReady = "PodNetworkNotReady"
	// ReasonParamsAccepted (ParamsReady True): the parameters say how pods are attached.
	ReasonParamsAccepted = "ParamsAccepted"
	// ReasonParamsMissing (ParamsReady False): an object that parametersRefs names is not there.
	ReasonParamsMissing = "ParamsMissing"
	// ReasonParamsInvalid (ParamsReady False): the parameters cannot be used; the message says
	// why.
	ReasonParamsInvalid = "ParamsInvalid"
	// ReasonNodesServe (NodesServe True): no node's agent says that its pods are not attached.
	ReasonNodesServe = "NodesServe"
	// ReasonNodesDoNotServe (NodesServe False): agents say so; the message has the nodes, and why.
	ReasonNodesDoNotServe = "NodesDoNotServe"
	// ReasonReferenced (InUse True): a pod that runs, or an attachment, refers to it.
	ReasonReferenced = "Referenced"
	// ReasonUnreferenced (InUse False): nothing does.
	ReasonUnreferenced = "Unreferenced"
)

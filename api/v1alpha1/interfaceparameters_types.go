package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// InterfaceParameters says how the interfaces of a PodNetwork are made. It is immutable, as the
// networks that refer to it are.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=interfaceparameters,singular=interfaceparameters,shortName=ifp,categories=tenure
// +kubebuilder:printcolumn:name="MTU",type=integer,JSONPath=`.spec.mtu`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type InterfaceParameters struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec are the parameters.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: make other InterfaceParameters"
	Spec InterfaceParametersSpec `json:"spec"`
}

// InterfaceParametersList is a list of InterfaceParameters.
//
// +kubebuilder:object:root=true
type InterfaceParametersList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the parameters.
	Items []InterfaceParameters `json:"items"`
}

// InterfaceParametersSpec says which CNI plugin makes an interface, by the one member that is
// there beside mtu, and its parameters.
//
// +kubebuilder:validation:ExactlyOneOf=macvlan;ipvlan;bridge;vlan;sriov
type InterfaceParametersSpec struct {
	// mtu is the interface's maximum transmission unit, in bytes. Left out: the plugin's own.
	// +optional
	// +kubebuilder:validation:Minimum=68
	// +kubebuilder:validation:Maximum=65535
	MTU int32 `json:"mtu,omitempty"`

	// macvlan are the parameters of the plugin macvlan.
	// +optional
	Macvlan *MacvlanParameters `json:"macvlan,omitempty"`

	// ipvlan are the parameters of the plugin ipvlan.
	// +optional
	IPvlan *IPvlanParameters `json:"ipvlan,omitempty"`

	// bridge are the parameters of the plugin bridge.
	// +optional
	Bridge *BridgeParameters `json:"bridge,omitempty"`

	// vlan are the parameters of the plugin vlan.
	// +optional
	VLAN *VLANParameters `json:"vlan,omitempty"`

	// sriov are the parameters of the plugin sriov.
	// +optional
	SRIOV *SRIOVParameters `json:"sriov,omitempty"`
}

// InterfaceName is the name of an interface of a node.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=15
// +kubebuilder:validation:Pattern=`^[^/:%\s]+$`
type InterfaceName string

// MacvlanParameters are those of the CNI plugin macvlan.
type MacvlanParameters struct {
	// master is the interface of the node that the network lies behind.
	// +optional
	Master InterfaceName `json:"master,omitempty"`

	// mode is how the interfaces of a node reach each other. Left out: bridge.
	// +optional
	// +kubebuilder:validation:Enum=bridge;private;vepa;passthru
	Mode string `json:"mode,omitempty"`
}

// IPvlanParameters are those of the CNI plugin ipvlan.
type IPvlanParameters struct {
	// master is the interface of the node that the network lies behind.
	// +optional
	Master InterfaceName `json:"master,omitempty"`

	// mode is the layer at which packets are switched. Left out: l2.
	// +optional
	// +kubebuilder:validation:Enum=l2;l3;l3s
	Mode string `json:"mode,omitempty"`
}

// BridgeParameters are those of the CNI plugin bridge.
type BridgeParameters struct {
	// bridge is the bridge of the node, which is made where there is none.
	// +optional
	Bridge InterfaceName `json:"bridge,omitempty"`

	// vlan is the VLAN ID of the bridge's port.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4094
	VLAN int32 `json:"vlan,omitempty"`

	// hairpin has a port send packets back that came by it.
	// +optional
	Hairpin bool `json:"hairpin,omitempty"`

	// checkMAC drops packets with another hardware address than the interface's.
	// +optional
	CheckMAC bool `json:"checkMAC,omitempty"`

	// bandwidth limits what an interface receives and sends. The CNI plugin bandwidth does it, and
	// has to be on the nodes. An attachment may lower what its PodNetwork says, and not raise
	// it.
	// +optional
	Bandwidth *Bandwidth `json:"bandwidth,omitempty"`
}

// Bandwidth limits an interface. What is left out is not limited.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="has(self.ingressRate) || !has(self.ingressBurst)",message="ingressBurst needs ingressRate"
// +kubebuilder:validation:XValidation:rule="has(self.egressRate) || !has(self.egressBurst)",message="egressBurst needs egressRate"
type Bandwidth struct {
	// ingressRate is how much the pod may receive, in bits per second.
	// +optional
	// +kubebuilder:validation:Minimum=1000
	// +kubebuilder:validation:Maximum=1000000000000000
	IngressRate int64 `json:"ingressRate,omitempty"`

	// ingressBurst is how much it may receive at once, in bits. Packets that are larger are lost.
	// Left out: 2147483647.
	// +optional
	// +kubebuilder:validation:Minimum=1000
	// +kubebuilder:validation:Maximum=34359738359
	IngressBurst int64 `json:"ingressBurst,omitempty"`

	// egressRate is how much the pod may send, in bits per second.
	// +optional
	// +kubebuilder:validation:Minimum=1000
	// +kubebuilder:validation:Maximum=1000000000000000
	EgressRate int64 `json:"egressRate,omitempty"`

	// egressBurst is how much it may send at once, in bits. Packets that are larger are lost. Left
	// out: 2147483647.
	// +optional
	// +kubebuilder:validation:Minimum=1000
	// +kubebuilder:validation:Maximum=34359738359
	EgressBurst int64 `json:"egressBurst,omitempty"`
}

// VLANParameters are those of the CNI plugin vlan.
type VLANParameters struct {
	// master is the interface of the node that carries the VLAN.
	// +optional
	Master InterfaceName `json:"master,omitempty"`

	// id is the VLAN ID.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4094
	ID int32 `json:"id,omitempty"`
}

// SRIOVParameters are those of the CNI plugin sriov.
type SRIOVParameters struct {
	// resourceName is the device plugin's resource that an attachment takes a device of, such
	// as intel.com/sriov. The pod's containers request it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	ResourceName string `json:"resourceName,omitempty"`

	// vlan is the VLAN ID.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4094
	VLAN int32 `json:"vlan,omitempty"`

	// checkMAC drops packets with another hardware address than the interface's. Left out: as
	// the device has it.
	// +optional
	CheckMAC *bool `json:"checkMAC,omitempty"`

	// trust lets the pod change the hardware address and receive all packets. Left out: as the
	// device has it.
	// +optional
	Trust *bool `json:"trust,omitempty"`
}

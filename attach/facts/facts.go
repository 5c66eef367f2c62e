// Package facts is what tenure-attach and the agent say to each other about a
// pod: what the plugin asks before it attaches, what the agent knows, and what
// the plugin reports afterwards. Both ends link it: plain types, as JSON. A
// reader ignores members that it does not know, so that plugin and agent may be
// of different versions while a node is being upgraded.
package facts

import (
	"encoding/json"
	"strings"
)

// A Question asks for what an ADD, or the change of a running pod, needs to know of its pod.
type Question struct {
	Pod PodRef `json:"pod"`
	// Networks are the definitions that the plugin's own configuration names;
	// those that the pod selects need not be named.
	Networks []Ref `json:"networks,omitempty"`
	// DefaultNamespace is where a default-network annotation without a namespace
	// is looked up.
	DefaultNamespace string `json:"defaultNamespace,omitempty"`
	// Live has the pod read from the API server, whatever the agent's watch shows: that may be
	// older than what was done to the pod.
	Live bool `json:"live,omitempty"`
}

// A PodRef names a pod as a runtime does in CNI_ARGS.
type PodRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// UID is empty where the runtime does not say it. Of a static pod it is the
	// kubelet's, not the mirror's.
	UID string `json:"uid,omitempty"`
}

// A Ref names a NetworkAttachmentDefinition.
type Ref struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String returns namespace/name.
func (r Ref) String() string { return r.Namespace + "/" + r.Name }

// An Answer is what the agent knows. It is complete: what the pod selects, and
// what the question names, is among Networks, found or not.
type Answer struct {
	Pod      Pod          `json:"pod"`
	Networks []Definition `json:"networks,omitempty"`
	// PodNetworks has one element for each of the pod's list of PodNetworks, in its order. It is
	// empty where the list cannot be read, or the cluster has no PodNetworks.
	PodNetworks []PodNetwork `json:"podNetworks,omitempty"`
	// NoPodNetworks says that the agent serves no PodNetworks: the pod's list has no effect.
	NoPodNetworks bool `json:"noPodNetworks,omitempty"`
	// VIFs are the elements of the pod's selections whose interfaces the control plane decides.
	VIFs []VIF `json:"vifs,omitempty"`
	// NoVIFs says that there are such elements, and that the agent serves none: what their
	// definitions say of it has no effect.
	NoVIFs bool `json:"noVIFs,omitempty"`
}

// A VIF is an element of a pod's selections whose interface the control plane decides, as the agent
// has judged it.
type VIF struct {
	// Element is its place in the annotation, counted from 0.
	Element int `json:"element"`
	// Interface is the name of the interface.
	Interface string `json:"interface"`
	// Definition has the configuration, whose annotation tenure.dev/made-for must say MadeFor.
	Definition Ref    `json:"definition"`
	MadeFor    string `json:"madeFor"`
	// Claim is the IPAMClaim, of the pod's namespace, that has the addresses.
	Claim string `json:"claim,omitempty"`
	// MAC is the hardware address that the interface is to have; empty: any.
	MAC string `json:"mac,omitempty"`
	// Refused says why the pod cannot be attached now; empty if it can. Later says that this may
	// pass without the pod being changed.
	Refused string `json:"refused,omitempty"`
	Later   bool   `json:"later,omitempty"`
}

// A PodNetwork is an element of a pod's list of PodNetworks, as the agent has judged it.
type PodNetwork struct {
	// Name is the PodNetwork's, also of an element that names an attachment; empty where the
	// attachment does not exist.
	Name string `json:"name,omitempty"`
	// Definition has the configuration. It is zero for the default network, for a network of
	// another provider, and where Refused is set.
	Definition Ref `json:"definition,omitzero"`
	// MadeFor is what the definition's annotation tenure.dev/made-for must say; empty: anything.
	MadeFor string `json:"madeFor,omitempty"`
	// Provider is who attaches the pod, where Tenure does not.
	Provider string `json:"provider,omitempty"`
	// Refused says why the pod cannot be attached now; empty if it can. Later says that this may
	// pass without the pod being changed.
	Refused string `json:"refused,omitempty"`
	Later   bool   `json:"later,omitempty"`
}

// A Pod is what decides about a pod's networks.
type Pod struct {
	PodRef
	// Annotations are those whose keys say something about networks, not all.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Moving says that a virtual machine moves to the pod: until it has, its addresses are at
	// another pod, and the one where they are to be does not announce them.
	Moving bool `json:"moving,omitempty"`
	// NamespaceLabels are the labels of the pod's namespace.
	NamespaceLabels map[string]string `json:"namespaceLabels,omitempty"`
}

// A Definition is a NetworkAttachmentDefinition as it was when the agent
// answered, or the reason why there is none.
type Definition struct {
	Ref
	// Missing says why the definition cannot be used; empty if it can.
	Missing string `json:"missing,omitempty"`
	// Config is spec.config; nil where the definition has none.
	Config *string `json:"config,omitempty"`
	// Annotations are those of the definition that say something about networks.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Devices are the IDs of the devices of the definition's resource (annotation
	// k8s.v1.cni.cncf.io/resourceName) that the kubelet gave to the pod, in the
	// kubelet's order. Selections take them one after the other.
	Devices []string `json:"devices,omitempty"`
	// DeviceNames are the names of Devices, in their order. Two resources may have a device of one
	// name: it is one device. An agent of an earlier version says none.
	DeviceNames []string `json:"deviceNames,omitempty"`
}

// SetDevices sets the devices by their names, each "kind=ID".
func (d *Definition) SetDevices(names []string) {
	d.Devices, d.DeviceNames = nil, names
	for _, name := range names {
		_, id, _ := strings.Cut(name, "=")
		d.Devices = append(d.Devices, id)
	}
}

// DeviceName returns the name of device i: by it one tells it from all others.
func (d *Definition) DeviceName(i int, resource string) string {
	if i < len(d.DeviceNames) {
		return d.DeviceNames[i]
	}
	return resource + "=" + d.Devices[i]
}

// A Report is what the plugin has to say after an ADD, or after a running pod was changed.
type Report struct {
	Pod         PodRef `json:"pod"`
	ContainerID string `json:"containerID"`
	// Made is when the status was true. A pod may get a new sandbox while the report
	// of the one before is on its way.
	Made Made `json:"made,omitzero"`
	// Status is the list for the status annotation (NPWG v1.3, section 5), empty
	// where the ADD failed.
	Status json.RawMessage `json:"status,omitempty"`
	// PodIPs is the list for the annotation tenure.dev/pod-ips, empty where the pod lists no
	// PodNetworks.
	PodIPs json.RawMessage `json:"podIPs,omitempty"`
	// Warnings are shown to the user as events of the pod.
	Warnings []Warning `json:"warnings,omitempty"`
	// Notes are what went as it was asked for while the pod runs: events that are no warnings.
	Notes []Warning `json:"notes,omitempty"`
}

// A Warning is something that a pod's user should know.
type Warning struct {
	Reason  string `json:"reason"` // a word in CamelCase, of an event
	Message string `json:"message"`
}

// A Since asks for the pods of the node that select other networks than before, as their annotation
// k8s.v1.cni.cncf.io/networks says. The answer comes when there are some, or after a while without
// any.
type Since struct {
	// Of and Revision are those of the last answer. Those of none, or of an earlier run of the
	// agent, ask for all pods.
	Of       string `json:"of,omitempty"`
	Revision int64  `json:"revision,omitempty"`
}

// A Selected answers a [Since].
type Selected struct {
	Of       string   `json:"of"`
	Revision int64    `json:"revision"`
	Pods     []PodRef `json:"pods,omitempty"`
}

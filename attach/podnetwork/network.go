package podnetwork

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/ipam/access"
)

// Namespace is where the definitions stand that the controller makes of PodNetworks.
const Namespace = "tenure-system"

// Kinds and groups of the objects that Tenure's parametersRefs name.
const (
	GroupDefinition = "k8s.cni.cncf.io"
	KindDefinition  = "NetworkAttachmentDefinition"
	KindParameters  = "InterfaceParameters"
	KindPool        = "IPPool"
)

// A Network is what decides of a PodNetwork.
type Network struct {
	Name, Provider    string
	Enabled, Deleting bool
	// Ready is the condition of that name; NotReady is its message while it is not True.
	Ready    bool
	NotReady string
	// Definition is where the network's configuration is; zero where parametersRefs names
	// nothing that could have one.
	Definition facts.Ref
	// Access says who may use the network.
	Access access.Rule
}

// Of reads a PodNetwork. rule is what it says of who may use it.
func Of(o *v1alpha1.PodNetwork, rule access.Rule) Network {
	n := Network{
		Name: o.Name, Provider: o.Spec.Provider, Enabled: o.Spec.IsEnabled(), Deleting: o.DeletionTimestamp != nil,
		Definition: definitionOf(o.Spec.ParametersRefs, "podnetwork."+o.Name), Access: rule,
	}
	n.Ready, n.NotReady = ready(o.Status.Conditions)
	return n
}

// An Attachment is what decides of a PodNetworkAttachment.
type Attachment struct {
	Namespace, Name string
	// Network is the name of its PodNetwork.
	Network  string
	Deleting bool
	Ready    bool
	NotReady string
	// Definition is where its own configuration is; zero where it has that of its network.
	Definition facts.Ref
}

// AttachmentOf reads a PodNetworkAttachment.
func AttachmentOf(o *v1alpha1.PodNetworkAttachment) Attachment {
	a := Attachment{
		Namespace: o.Namespace, Name: o.Name, Network: o.Spec.PodNetworkName, Deleting: o.DeletionTimestamp != nil,
		Definition: definitionOf(o.Spec.ParametersRefs, "attachment."+o.Namespace+"."+o.Name),
	}
	a.Ready, a.NotReady = ready(o.Status.Conditions)
	return a
}

// ready reads the condition Ready, which is not there yet of a new object.
func ready(conditions []metav1.Condition) (bool, string) {
	c := meta.FindStatusCondition(conditions, v1alpha1.NetworkReady)
	switch {
	case c == nil:
		return false, "the controller has not looked at it yet"
	case c.Status == metav1.ConditionTrue:
		return true, ""
	case c.Message == "":
		return false, c.Reason
	}
	return false, c.Reason + ": " + c.Message
}

// definitionOf returns the definition that refs lead to: the one that they name, or that which is
// made of the InterfaceParameters among them, by the name made.
func definitionOf(refs []v1alpha1.ParametersRef, made string) facts.Ref {
	for _, ref := range refs {
		if IsDefinition(ref) {
			return facts.Ref{Namespace: ref.Namespace, Name: ref.Name}
		}
	}
	if slices.ContainsFunc(refs, IsParameters) {
		return facts.Ref{Namespace: Namespace, Name: fit(made)}
	}
	return facts.Ref{}
}

// IsDefinition reports whether ref names a NetworkAttachmentDefinition. The proposal's own
// example gives the resource's name for the kind.
func IsDefinition(ref v1alpha1.ParametersRef) bool {
	return ref.Group == GroupDefinition && (ref.Kind == KindDefinition || ref.Kind == "network-attachment-definitions")
}

// IsParameters reports whether ref names InterfaceParameters.
func IsParameters(ref v1alpha1.ParametersRef) bool {
	return ref.Group == v1alpha1.GroupName && ref.Kind == KindParameters
}

// IsPool reports whether ref names an IPPool.
func IsPool(ref v1alpha1.ParametersRef) bool {
	return ref.Group == v1alpha1.GroupName && ref.Kind == KindPool
}

// maxName is how long the name of an object may be.
const maxName = 253

// fit returns name, or where that is too long its beginning and a hash of it.
func fit(name string) string {
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:maxName-17] + "-" + hex.EncodeToString(sum[:8])
}

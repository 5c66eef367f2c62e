package podnetwork

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/judge"
	"github.com/tenure-ipam/tenure/ipam/access"
)

// IndexNetwork is the index of PodNetworkAttachments in the controller's cache by their network.
const IndexNetwork = "tenure.podnetwork"

// Kinds and groups of the objects that Tenure's parametersRefs name.
const (
	GroupDefinition = "k8s.cni.cncf.io"
	KindDefinition  = "NetworkAttachmentDefinition"
	KindParameters  = "InterfaceParameters"
	KindPool        = "IPPool"
)

// Of reads a PodNetwork. rule is what it says of who may use it.
func Of(o *v1alpha1.PodNetwork, rule access.Rule) judge.Network {
	n := judge.Network{
		UID: string(o.UID), Provider: o.Spec.Provider, Enabled: o.Spec.IsEnabled(), Deleting: o.DeletionTimestamp != nil,
		Access: rule,
	}
	refs := o.Spec.ParametersRefs
	if i := slices.IndexFunc(refs, IsDefinition); i >= 0 {
		n.Definition = facts.Ref{Namespace: refs[i].Namespace, Name: refs[i].Name}
	} else if n.Made = slices.ContainsFunc(refs, IsParameters); n.Made {
		n.Definition = facts.Ref{Namespace: podnetwork.Namespace, Name: fit("podnetwork." + o.Name)}
	}
	n.Ready, n.NotReady = ready(o.Status.Conditions)
	return n
}

// AttachmentOf reads a PodNetworkAttachment.
func AttachmentOf(o *v1alpha1.PodNetworkAttachment) judge.Attachment {
	a := judge.Attachment{
		UID: string(o.UID), Network: o.Spec.PodNetworkName, Deleting: o.DeletionTimestamp != nil,
	}
	if slices.ContainsFunc(o.Spec.ParametersRefs, IsParameters) {
		a.Definition = DefinitionOfAttachment(o.Namespace, o.Name)
	}
	a.Ready, a.NotReady = ready(o.Status.Conditions)
	return a
}

// DefinitionOfAttachment returns the definition that is made of an attachment's parameters.
func DefinitionOfAttachment(namespace, name string) facts.Ref {
	return facts.Ref{Namespace: podnetwork.Namespace, Name: fit("attachment." + namespace + "." + name)}
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
	return strings.TrimRight(name[:maxName-17], ".-") + "-" + hex.EncodeToString(sum[:8])
}

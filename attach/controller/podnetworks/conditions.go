package podnetworks

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/podnetwork"
)

// A look is what was found out about a network or an attachment.
type look struct {
	generation int64
	// provider is the network's.
	provider string
	// deleting says that the object is being deleted.
	deleting bool
	// disabled says that the network's spec.enabled is false.
	disabled bool
	// network says why the network of an attachment is not ready; empty: it is, or the look is at
	// a network.
	network string
	// refers says that there are parametersRefs.
	refers bool
	// judged says that Tenure is the one to say whether they are ready. Then params says why they
	// are not; nil: they are.
	judged bool
	params *podnetwork.ParamsError
	inUse  bool
	// nodes says that Tenure's agents attach the pods. Then unserved names the nodes that do not;
	// empty: none is known.
	nodes    bool
	unserved string
}

// conditions returns before as it is after a look. Conditions of others stay as they are.
func conditions(before []metav1.Condition, l look) []metav1.Condition {
	after := slices.Clone(before)
	set := func(kind string, status bool, reason, message string) {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: l.generation}
		if status {
			c.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&after, c)
	}
	switch why := l.whyNoParams(before); {
	case l.deleting:
		set(v1alpha1.NetworkReady, false, v1alpha1.ReasonDeleting, "it is being deleted: new pods are not attached, and those that are stay so; it goes with the last of what refers to it")
	case l.disabled:
		set(v1alpha1.NetworkReady, false, v1alpha1.ReasonAdministrativelyDisabled, "spec.enabled is false: new pods are not attached, and those that are stay so")
	case l.network != "":
		set(v1alpha1.NetworkReady, false, v1alpha1.ReasonPodNetworkNotReady, l.network)
	case why != "":
		set(v1alpha1.NetworkReady, false, v1alpha1.ReasonParamsNotReady, why)
	default:
		set(v1alpha1.NetworkReady, true, v1alpha1.ReasonNetworkReady, "pods can be attached")
	}
	switch {
	case !l.judged:
	case l.params == nil:
		set(v1alpha1.NetworkParamsReady, true, v1alpha1.ReasonParamsAccepted, "the parameters say how pods are attached")
	default:
		set(v1alpha1.NetworkParamsReady, false, l.params.Reason, l.params.Message)
	}
	switch {
	case !l.nodes:
	case l.unserved == "":
		set(v1alpha1.NetworkNodesServe, true, v1alpha1.ReasonNodesServe, "no node's agent says that its pods are not attached")
	default:
		set(v1alpha1.NetworkNodesServe, false, v1alpha1.ReasonNodesDoNotServe, "on these nodes pods run without it: "+l.unserved)
	}
	if l.inUse {
		set(v1alpha1.NetworkInUse, true, v1alpha1.ReasonReferenced, "pods that have not ended, or attachments, refer to it")
	} else {
		set(v1alpha1.NetworkInUse, false, v1alpha1.ReasonUnreferenced, "nothing refers to it")
	}
	return after
}

// whyNoParams says why the parameters are not ready; empty: they are, or there are none.
func (l look) whyNoParams(before []metav1.Condition) string {
	if l.judged {
		if l.params != nil {
			return l.params.Message
		}
		return ""
	}
	c := meta.FindStatusCondition(before, v1alpha1.NetworkParamsReady)
	switch {
	case c == nil && !l.refers, c != nil && c.Status == metav1.ConditionTrue:
		return ""
	case c != nil:
		return cmp.Or(c.Message, c.Reason)
	case l.provider == "":
		return "spec.provider is empty, so that nobody says whether the parameters are ready: make a PodNetwork that has one, Tenure's is " + api.Provider
	}
	return "the provider " + l.provider + " has not set the condition " + v1alpha1.NetworkParamsReady + " yet"
}

// same reports whether two lists of conditions say the same.
func same(a, b []metav1.Condition) bool { return equality.Semantic.DeepEqual(a, b) }

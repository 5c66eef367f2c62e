package gate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenure-ipam/tenure/api/podnetwork"
)

// ConditionNetworksReady is the pod's condition that says what it waits for. Pods that never
// waited have none.
const ConditionNetworksReady = "tenure.dev/NetworksReady"

// Reasons of the condition; those of False are also reasons of Events.
const (
	// ReasonNetworksReady (True): the pod may be attached to all of its PodNetworks.
	ReasonNetworksReady = "NetworksReady"
	// ReasonNetworksNotReady (False): a PodNetwork or an attachment is missing, or not Ready.
	ReasonNetworksNotReady = "NetworksNotReady"
	// ReasonNetworksRefused (False): the pod may not be attached to one of them.
	ReasonNetworksRefused = "NetworksRefused"
	// ReasonInvalidList (False): the pod's list is wrong.
	ReasonInvalidList = "InvalidList"
)

// isGated reports whether a pod has the gate.
func isGated(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == podnetwork.Gate })
}

// conditionOf returns what the pod's condition says; it is zero where the pod has none.
func conditionOf(pod *corev1.Pod) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == ConditionNetworksReady {
			return c
		}
	}
	return corev1.PodCondition{}
}

// faultsOf says on one line what is wrong with a list.
func faultsOf(err error) string {
	return "annotation " + podnetwork.AnnotationNetworks + ": " + strings.ReplaceAll(err.Error(), "\n", "; ")
}

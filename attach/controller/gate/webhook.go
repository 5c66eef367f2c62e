package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tenure-ipam/tenure/api/podnetwork"
)

// Paths at which the webhooks are served.
const (
	PathValidate = "/validate-pod"
	PathMutate   = "/mutate-pod"
)

// Validate answers whether a new pod's list of PodNetworks may be as it is.
func Validate(_ context.Context, req admission.Request) admission.Response {
	pod, err := podOf(req)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	list, ok := pod.Annotations[podnetwork.AnnotationNetworks]
	if !ok {
		return admission.Allowed("")
	}
	if pod.Spec.HostNetwork {
		return admission.Denied("annotation " + podnetwork.AnnotationNetworks + ": a pod with hostNetwork has no networks of its own; leave out one of the two")
	}
	elements, err := podnetwork.Parse(list)
	if err != nil {
		return admission.Denied(faultsOf(err))
	}
	answer := admission.Allowed("")
	if !slices.ContainsFunc(elements, podnetwork.Element.IsDefault) {
		answer = answer.WithWarnings(fmt.Sprintf("annotation %s leaves out PodNetwork %s: the pod is attached to it all the same, as %s",
			podnetwork.AnnotationNetworks, podnetwork.Default, podnetwork.DefaultInterface))
	}
	return answer
}

// Mutate gives a new pod that lists PodNetworks the gate, where it may have one: the API server
// takes no gate of a pod that has its node already, and one with hostNetwork is refused.
func Mutate(_ context.Context, req admission.Request) admission.Response {
	pod, err := podOf(req)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if _, ok := pod.Annotations[podnetwork.AnnotationNetworks]; !ok || pod.Spec.NodeName != "" || pod.Spec.HostNetwork || isGated(pod) {
		return admission.Allowed("")
	}
	answer := admission.Allowed("")
	answer.PatchType = new(admissionv1.PatchTypeJSONPatch)
	answer.Patch = fmt.Appendf(nil, `[{"op": "add", "path": "/spec/schedulingGates/-", "value": {"name": %q}}]`, podnetwork.Gate)
	if len(pod.Spec.SchedulingGates) == 0 {
		answer.Patch = fmt.Appendf(nil, `[{"op": "add", "path": "/spec/schedulingGates", "value": [{"name": %q}]}]`, podnetwork.Gate)
	}
	return answer
}

func podOf(req admission.Request) (*corev1.Pod, error) {
	var pod corev1.Pod
	if err := json.Unmarshal(req.Object.Raw, &pod); err != nil {
		return nil, fmt.Errorf("read the pod of an admission request: %w", err)
	}
	return &pod, nil
}

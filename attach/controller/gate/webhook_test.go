package gate_test

import (
	"encoding/json"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/attach/controller/gate"
)

// listing returns a pod with a list; without one where it is empty.
func listing(list string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "ns", "p", "uid-1"
	if list != "" {
		pod.Annotations = map[string]string{podnetwork.AnnotationNetworks: list}
	}
	return pod
}

const lan = `[{"podNetworkName": "default"}, {"podNetworkName": "lan"}]`

func request(t *testing.T, pod *corev1.Pod) admission.Request {
	t.Helper()
	raw, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{UID: "1", Object: runtime.RawExtension{Raw: raw}}}
}

func TestValidate(t *testing.T) {
	onHost := listing(lan)
	onHost.Spec.HostNetwork = true
	for name, tt := range map[string]struct {
		pod     *corev1.Pod
		refused []string // none: it is not
		warned  string
	}{
		"no list":                   {pod: listing("")},
		"a right list":              {pod: listing(lan)},
		"W1 the default left out":   {pod: listing(`[{"podNetworkName": "lan"}]`), warned: "leaves out PodNetwork default"},
		"W2 with hostNetwork":       {pod: onHost, refused: []string{"hostNetwork"}},
		"W2 every fault is told of": {pod: listing(`[{"podNetworkName": "a", "podNetworkAttachmentName": "b"}, {"podnetwork": "c"}]`), refused: []string{"annotation tenure.dev/pod-networks: element 1: ", "keep one", "; element 2: ", "podnetwork"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := gate.Validate(t.Context(), request(t, tt.pod))
			if got.Allowed != (len(tt.refused) == 0) {
				t.Errorf("allowed is %t; want %t", got.Allowed, len(tt.refused) == 0)
			}
			for _, words := range tt.refused {
				if !strings.Contains(got.Result.Message, words) {
					t.Errorf("%q does not say %q", got.Result.Message, words)
				}
			}
			if said := strings.Join(got.Warnings, ""); !strings.Contains(said, tt.warned) || (said == "") != (tt.warned == "") {
				t.Errorf("warned by %q; want %q", said, tt.warned)
			}
		})
	}
}

func TestMutate(t *testing.T) {
	with := func(change func(*corev1.Pod)) *corev1.Pod {
		pod := listing(lan)
		change(pod)
		return pod
	}
	gates := func(names ...string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			for _, name := range names {
				pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: name})
			}
		}
	}
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want string // of the patch
	}{
		"no list":                   {listing(""), ""},
		"W4 a list":                 {listing(lan), `"path": "/spec/schedulingGates", "value": [{"name": "tenure.dev/pod-networks"}]`},
		"W4 a list of default only": {listing(`[{"podNetworkName": "default"}]`), `"/spec/schedulingGates"`},
		"W4 beside another gate":    {with(gates("example.org/x")), `"/spec/schedulingGates/-"`},
		"W4 not twice":              {with(gates("example.org/x", podnetwork.Gate)), ""},
		"W4 not with a node":        {with(func(p *corev1.Pod) { p.Spec.NodeName = "n" }), ""},
		"W4 not with hostNetwork":   {with(func(p *corev1.Pod) { p.Spec.HostNetwork = true }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := gate.Mutate(t.Context(), request(t, tt.pod))
			if !got.Allowed || !strings.Contains(string(got.Patch), tt.want) || (len(got.Patch) == 0) != (tt.want == "") {
				t.Errorf("allowed %t, patch %s; want %q", got.Allowed, got.Patch, tt.want)
			}
			if len(got.Patch) > 0 && (!json.Valid(got.Patch) || *got.PatchType != admissionv1.PatchTypeJSONPatch) {
				t.Errorf("%s is no JSON patch", got.Patch)
			}
		})
	}
}

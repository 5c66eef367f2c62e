package podnetworks

import (
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/tenure-ipam/tenure/api/podnetwork"
)

func pod(list string, phase corev1.PodPhase) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"x": "y"}},
		Spec: corev1.PodSpec{
			NodeName: "n", SchedulingGates: []corev1.PodSchedulingGate{{Name: "g"}}, Containers: []corev1.Container{{Name: "c"}},
		},
		Status: corev1.PodStatus{Phase: phase, PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{{Type: "Ready"}}},
	}
	if list != "" {
		p.Annotations[podnetwork.AnnotationNetworks] = list
	}
	return p
}

// TestCondensePod: of a pod that lists networks more is kept than of others.
func TestCondensePod(t *testing.T) {
	const list = `[{"podNetworkName":"lan"}]`
	for _, list := range []string{"", list} {
		p := pod(list, corev1.PodRunning)
		CondensePod(p)
		want := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
			Spec:       corev1.PodSpec{NodeName: "n", SchedulingGates: []corev1.PodSchedulingGate{{Name: "g"}}},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning},
		}
		if list != "" {
			want.Annotations = map[string]string{podnetwork.AnnotationNetworks: list}
			want.Status.Conditions = []corev1.PodCondition{{Type: "Ready"}}
		}
		if !reflect.DeepEqual(p, want) {
			t.Errorf("of the list %q: got %+v; want %+v", list, p, want)
		}
	}
}

// TestRunning (P9, Q3): a pod that has ended refers to nothing. Of a faulty list counts what can
// be read.
func TestRunning(t *testing.T) {
	const list = `[{"podNetworkName":"lan"},{"podNetworkAttachmentName":"mine"},{"podNetworkName":7},{"podNetworkName":"lan"}]`
	for phase, refers := range map[corev1.PodPhase]bool{
		"": true, corev1.PodPending: true, corev1.PodRunning: true, corev1.PodUnknown: true, corev1.PodSucceeded: false, corev1.PodFailed: false,
	} {
		networks, attachments := running(pod(list, phase))
		if slices.Contains(networks, "lan") != refers || slices.Equal(attachments, []string{"mine"}) != refers {
			t.Errorf("%q: refers to networks %q and attachments %q", phase, networks, attachments)
		}
	}
}

func TestPodEvents(t *testing.T) {
	const list = `[{"podNetworkName":"lan"}]`
	for _, tt := range []struct {
		name          string
		before, after *corev1.Pod
		want          bool
	}{
		{"of others", pod("", corev1.PodRunning), pod("", corev1.PodFailed), false},
		{"another state", pod(list, corev1.PodPending), pod(list, corev1.PodRunning), false},
		{"the end", pod(list, corev1.PodRunning), pod(list, corev1.PodSucceeded), true},
		{"another list", pod("", corev1.PodRunning), pod(list, corev1.PodRunning), true},
	} {
		if got := podEvents.Update(event.UpdateEvent{ObjectOld: tt.before, ObjectNew: tt.after}); got != tt.want {
			t.Errorf("%s: %v; want %v", tt.name, got, tt.want)
		}
	}
}

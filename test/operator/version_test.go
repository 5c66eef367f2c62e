package operator_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/test/fleet"
)

// ours makes a pod of Tenure's on a node, whose container has the program's name and runs an
// image of this tag; running is whether it has started.
func ours(t *testing.T, name, tag string, running bool) {
	t.Helper()
	no := false
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenure-system", Name: fleet.Unique(name), Labels: map[string]string{"app.kubernetes.io/name": name}},
		Spec: corev1.PodSpec{NodeName: fleet.Unique("node"), ServiceAccountName: name, AutomountServiceAccountToken: &no, Containers: []corev1.Container{
			{Name: name, Image: "registry.example:5000/" + name + ":" + tag}, {Name: "programs", Image: "other:v0.1.0"},
		}},
	}
	create(t, p)
	p.Status.Phase = corev1.PodPending
	state := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}
	if running {
		p.Status.Phase, state = corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: name, State: state}}
	setStatus(t, p)
}

// TestVersions: of what runs each version is shown with how often it runs, by whoever may view
// the cluster.
func TestVersions(t *testing.T) {
	says(t, tenure(t, 0, "version"), "client development", "agents - none", "controllers - none")
	for _, tag := range []string{"v0.9.0", "v0.9.0", "v0.7.2"} {
		ours(t, "tenured", tag, true)
	}
	ours(t, "tenured", "v0.9.1", false)
	ours(t, "tenure-controller", "v0.9.0", true)
	says(t, tenure(t, 0, "version", bound(t, "view")),
		"client development - agents v0.7.2 on 1 node agents v0.9.0 on 2 nodes controllers v0.9.0 in 1 pod WARNING agents v0.7.2 on 1 node do not fit controllers v0.9.0")
	says(t, tenure(t, 0, "version", "-o", "json"), `"client": "development", "agents": [ { "version": "v0.7.2", "nodes": 1 }`, `"warnings": [ "agents v0.7.2`)
	says(t, tenure(t, 1, "version", "--kubeconfig", "/none"), "client development", "/none")
}

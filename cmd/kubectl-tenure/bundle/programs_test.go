package bundle

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestHotplugIsBundled: the service for networks of running pods has a log, and no metrics, on the
// nodes that are asked for.
func TestHotplugIsBundled(t *testing.T) {
	o := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "tenure-hotplug-x", Labels: map[string]string{"app.kubernetes.io/name": hotplugName}}}
	o.Spec.NodeName = "a"
	o.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "hotplug", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	ours := &programs{all: []corev1.Pod{o}}
	b := &bundle{}
	if all := b.ofPrograms(ours); len(all) != 1 || all[0].name != "log of tenure-hotplug-x.hotplug on node a" {
		t.Errorf("%+v; want its log alone", all)
	}
	b.nodes = []string{"b"}
	if all := b.ofPrograms(ours); len(all) != 0 {
		t.Errorf("%+v; want nothing of another node", all)
	}
}

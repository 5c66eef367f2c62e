package networks_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/attach/controller/podnetworks"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// TestPodWithoutItsPodNetworks (W1, W5): of a pod that runs, and whose node does not say what it
// was attached to, an Event tells; of one whose node does, none.
func TestPodWithoutItsPodNetworks(t *testing.T) {
	for _, name := range []string{"attached", "forgotten"} {
		p := listing(team, lists("default"))
		p.Name, p.Spec.NodeName = name, "worker"
		if name == "attached" {
			p.Annotations[podnetwork.AnnotationIPs] = "[]"
		}
		create(t, p)
		p.Status.Phase, p.Status.StartTime = corev1.PodRunning, new(metav1.NewTime(time.Now().Add(-time.Hour)))
		if err := kc.Status().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	fleet.Event(t, kc, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "forgotten"}}, podnetworks.ReasonNotAttached)
	var list corev1.EventList
	if err := kc.List(t.Context(), &list, client.InNamespace(team)); err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Reason == podnetworks.ReasonNotAttached && e.InvolvedObject.Name == "attached" {
			t.Errorf("of the pod that was attached an Event says: %s", e.Message)
		}
	}
}

package networks_test

import (
	"context"
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
	ctx := t.Context()
	for _, name := range []string{"attached", "forgotten"} {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name, Annotations: map[string]string{podnetwork.AnnotationNetworks: `[{"podNetworkName": "default"}]`}},
			Spec:       corev1.PodSpec{NodeName: "worker", Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}
		if name == "attached" {
			p.Annotations[podnetwork.AnnotationIPs] = "[]"
		}
		if err := kc.Create(ctx, p); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := client.IgnoreNotFound(kc.Delete(context.WithoutCancel(ctx), p, client.GracePeriodSeconds(0))); err != nil {
				t.Error(err)
			}
		})
		p.Status.Phase, p.Status.StartTime = corev1.PodRunning, new(metav1.NewTime(time.Now().Add(-time.Hour)))
		if err := kc.Status().Update(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	fleet.Event(t, kc, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "forgotten"}}, podnetworks.ReasonNotAttached)
	var list corev1.EventList
	if err := kc.List(ctx, &list, client.InNamespace(team)); err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Reason == podnetworks.ReasonNotAttached && e.InvolvedObject.Name == "attached" {
			t.Errorf("of the pod that was attached an Event says: %s", e.Message)
		}
	}
}

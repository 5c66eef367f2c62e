package operator_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/workload"
)

// asking makes a StatefulSet, web, of one replica that asks for claims of the network.
func (w *world) asking() *appsv1.StatefulSet {
	w.t.Helper()
	replicas, labels := int32(1), map[string]string{"app": "web"}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web"}, Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"k8s.v1.cni.cncf.io/networks": "lan", workload.AnnotationClaims: "lan"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		},
	}}
	create(w.t, set)
	return set
}

// TestUnusedClaims: what is kept for a StatefulSet that is gone, or has fewer pods by now, is
// listed and counted, unless a pod uses it.
func TestUnusedClaims(t *testing.T) {
	w := newWorld(t)
	set := w.asking()
	keep := func(set, name string, ips ...string) {
		c := w.claim(name, ips...)
		c.Labels = map[string]string{workload.LabelSet: set}
		if err := kc.Update(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if name == "web-2.lan" {
			w.use(c, w.podWith("web-2", ips[0]))
		}
	}
	keep("web", "web-0.lan", "10.40.0.33/20")
	keep("web", "web-1.lan", "10.40.0.34/20", "fd00::34/64")
	keep("web", "web-2.lan", "10.40.0.35/20") // its pod still runs
	keep("web", "web-0.dmz", "10.40.0.36/20") // a network that it names no more
	keep("gone", "gone-0.lan", "10.40.0.37/20")
	w.claim("mine", "10.40.0.38/20")
	looks := bound(t, "tenure-operator")
	out := tenure(t, 0, "claims", "-n", w.namespace, "--unused", looks)
	says(t, out, "web-1.lan", "web-0.dmz", "gone-0.lan", "3 claims that were kept for StatefulSets hold 4 addresses, and no pod uses them.")
	for _, name := range []string{"web-0.lan", "web-2.lan", "mine"} {
		if strings.Contains(out, name) {
			t.Errorf("%s is listed: %s", name, out)
		}
	}
	set.Spec.Template.Annotations[workload.AnnotationClaims] = "Lan" // wrong words: what there is of its ordinals stays
	if err := kc.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	out = tenure(t, 0, "claims", "-n", w.namespace, "--unused", "-o", "name")
	if want := "ipamclaim.k8s.cni.cncf.io/gone-0.lan ipamclaim.k8s.cni.cncf.io/web-1.lan"; out != want {
		t.Errorf("with wrong words %s; want %s", out, want)
	}
}

// TestInferredClaimOfAPod: pod says which claim a StatefulSet's pod waits for, though it names
// none.
func TestInferredClaimOfAPod(t *testing.T) {
	w := newWorld(t)
	no, owner := false, *metav1.NewControllerRef(w.asking(), appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
	for claims, want := range map[string]string{"lan": "claim web-0.lan does not exist", "Lan": "annotation tenure.dev/claims: element 1"} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: w.namespace, Name: "web-0", Annotations: map[string]string{"k8s.v1.cni.cncf.io/networks": "lan", workload.AnnotationClaims: claims},
				OwnerReferences: []metav1.OwnerReference{owner},
			},
			Spec: corev1.PodSpec{NodeName: w.node, AutomountServiceAccountToken: &no, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}
		create(t, pod)
		says(t, tenure(t, 3, "pod", "web-0", "-n", w.namespace), want)
		if err := kc.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
}

package operator_test

import (
	"fmt"
	"strings"
	"testing"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// openPool has a pool say that it is ready.
func (w *world) openPool() {
	w.t.Helper()
	w.pool.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PoolReady, Status: metav1.ConditionTrue, Reason: "Opened", LastTransitionTime: metav1.Now()}}
	setStatus(w.t, w.pool)
}

// definition makes a definition with Tenure's IPAM and this main plugin's configuration.
func (w *world) definition(name, pool string) *nad.NetworkAttachmentDefinition {
	w.t.Helper()
	d := &nad.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: nad.NetworkAttachmentDefinitionSpec{Config: fmt.Sprintf(
			`{"cniVersion":"1.0.0","name":%q,"type":"bridge","capabilities":{"ips":true},"ipam":{"type":"tenure","pool":%q}}`, name, pool)},
	}
	create(w.t, d)
	return d
}

// podNetwork makes a PodNetwork by a definition, which is Ready.
func (w *world) podNetwork(of *nad.NetworkAttachmentDefinition) *v1alpha1.PodNetwork {
	w.t.Helper()
	n := &v1alpha1.PodNetwork{ObjectMeta: metav1.ObjectMeta{Name: fleet.Unique("network")}, Spec: v1alpha1.PodNetworkSpec{
		Provider:       podnetwork.Provider,
		ParametersRefs: []v1alpha1.ParametersRef{{Group: "k8s.cni.cncf.io", Kind: "NetworkAttachmentDefinition", Namespace: of.Namespace, Name: of.Name}},
	}}
	create(w.t, n)
	meta.SetStatusCondition(&n.Status.Conditions, metav1.Condition{Type: v1alpha1.NetworkReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNetworkReady})
	setStatus(w.t, n)
	return n
}

// waiting makes a pod on the node that has none of its networks yet.
func (w *world) waiting(name, annotation, value string, owners ...metav1.OwnerReference) {
	w.t.Helper()
	no := false
	create(w.t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Annotations: map[string]string{annotation: value}, OwnerReferences: owners},
		Spec:       corev1.PodSpec{NodeName: w.node, AutomountServiceAccountToken: &no, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	})
}

// A pod that cannot be attached is told why, also where nothing but the pool stands in the way.
func TestPodThatCannotBeAttached(t *testing.T) {
	w := newWorld(t)
	w.pool.Spec.Ranges[0].Exclude = []string{"10.40.0.9"}
	if err := kc.Update(t.Context(), w.pool); err != nil {
		t.Fatal(err)
	}
	w.openPool()
	w.definition("fixed", w.pool.Name)
	pods := w.podNetwork(w.definition("ro", w.pool.Name))
	lease := w.lease("10.40.0.16/28", w.node)
	w.published(lease, "10.40.0.17 "+w.namespace+"/web-6f9c5-abcde net1")
	for _, tt := range []struct{ name, annotation, value, want string }{
		{"excluded", nad.NetworkAttachmentAnnot, `[{"name": "fixed", "ips": ["10.40.0.9"]}]`, "it asks for 10.40.0.9 of pool " + w.pool.Name + ", which is given to nobody: 10.40.0.9 is excluded"},
		{"outside", nad.NetworkAttachmentAnnot, `[{"name": "fixed", "ips": ["10.41.0.9"]}]`, "which lies in no range of pool " + w.pool.Name},
		{"gateway", podnetwork.AnnotationNetworks, `[{"podNetworkName": "` + pods.Name + `", "isDefaultGW6": true}]`, "isDefaultGW6 is set, and pool " + w.pool.Name + " gives no IPv6 address with a gateway"},
		{"nowhere", podnetwork.AnnotationNetworks, `[{"podNetworkName": "none-such", "interfaceName": "blue0"}]`, "blue0 none-such - - - no"},
		{"undefined", nad.NetworkAttachmentAnnot, `[{"name": "none-such", "interface": "blue0"}]`, "blue0 " + w.namespace + "/none-such - - - no"},
		{"plain", nad.NetworkAttachmentAnnot, "fixed", "nothing of what can be seen from here stands in the way"},
	} {
		w.waiting(tt.name, tt.annotation, tt.value)
		says(t, tenure(t, 3, "pod", w.namespace+"/"+tt.name), tt.want)
	}
	replaces := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-7d4b8", UID: "r", Controller: new(true)}
	w.waiting("web-7d4b8-abcde", nad.NetworkAttachmentAnnot, `[{"name": "fixed", "ips": ["10.40.0.17"]}]`, replaces)
	says(t, tenure(t, 3, "pod", "web-7d4b8-abcde", "-n", w.namespace),
		"it asks for 10.40.0.17 of pool "+w.pool.Name+", and another has it: pod "+w.namespace+"/web-6f9c5-abcde on node "+w.node+": both are pods of Deployment web.", "strategy: {type: Recreate}")
	c := w.claim("kept", "10.40.0.18/20")
	w.use(c, w.podWith("web-6f9c5-fghij", "10.40.0.18"))
	w.waiting("web-7d4b8-fghij", nad.NetworkAttachmentAnnot, `[{"name": "fixed", "ipam-claim-reference": "kept"}]`, replaces)
	says(t, tenure(t, 3, "pod", "web-7d4b8-fghij", "-n", w.namespace), "claim kept is used by pod "+w.namespace+"/web-6f9c5-fghij on node "+w.node+": both are pods of Deployment web.")

	create(t, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "fixed.1"}, Type: corev1.EventTypeWarning, Reason: "VIFPoolNotFound", Message: "no pool has that subnet",
		InvolvedObject: corev1.ObjectReference{Kind: "NetworkAttachmentDefinition", Namespace: w.namespace, Name: "fixed"}, LastTimestamp: metav1.Now(),
	})
	says(t, tenure(t, 3, "pod", "plain", "-n", w.namespace), "network "+w.namespace+"/fixed: ", "its definition was warned of: VIFPoolNotFound: no pool has that subnet")

	w.pool.Status.Leasing = v1alpha1.LeasingClosed
	w.pool.Status.Conditions[0].Status, w.pool.Status.Conditions[0].Reason, w.pool.Status.Conditions[0].Message = metav1.ConditionFalse, "SourcePending", "see the condition SourceReady"
	meta.SetStatusCondition(&w.pool.Status.Conditions, metav1.Condition{Type: v1alpha1.PoolSourceReady, Status: metav1.ConditionFalse, Reason: "NotFound", Message: "Neutron has no such subnet"})
	setStatus(t, w.pool)
	says(t, tenure(t, 3, "pod", "plain", "-n", w.namespace), "pool "+w.pool.Name+" is not ready: SourcePending: see the condition SourceReady; SourceReady is False: NotFound: Neutron has no such subnet")
}

// TestPodKeepsItsPool: of a pod that has an address, the pool is shown that the address is of,
// whatever its definition says by now.
func TestPodKeepsItsPool(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	d := w.definition("moving", w.pool.Name)
	w.published(w.lease("10.40.0.0/28", w.node), "10.40.0.5 "+w.namespace+"/old net1")
	pod := w.podWith("old", "10.40.0.5")
	pod.Annotations[nad.NetworkAttachmentAnnot] = "moving"
	pod.Annotations[nad.NetworkStatusAnnot] = strings.ReplaceAll(pod.Annotations[nad.NetworkStatusAnnot], "/lan", "/moving")
	c := w.claim("kept", "10.40.0.21/20")
	w.lease("10.40.0.16/28", "", toClaim(c, "10.40.0.21"))
	claimed := w.podWith("claimed", "10.40.0.21")
	claimed.Annotations[nad.NetworkAttachmentAnnot] = `[{"name": "moving", "ipam-claim-reference": "kept"}]`
	claimed.Annotations[nad.NetworkStatusAnnot] = strings.ReplaceAll(claimed.Annotations[nad.NetworkStatusAnnot], "/lan", "/moving")
	for _, p := range []*corev1.Pod{pod, claimed} {
		if err := kc.Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		p.Status.Phase = corev1.PodRunning
		setStatus(t, p)
	}
	says(t, tenure(t, 0, "pod", "old", "-n", w.namespace), "moving 10.40.0.5 "+w.pool.Name+" - yes")
	says(t, tenure(t, 0, "pod", "claimed", "-n", w.namespace), "moving 10.40.0.21 "+w.pool.Name+" kept yes")
	other.pool.Spec.Ranges = []v1alpha1.Range{{CIDR: "10.41.0.0/20"}}
	if err := kc.Update(t.Context(), other.pool); err != nil {
		t.Fatal(err)
	}
	d.Spec.Config = strings.ReplaceAll(d.Spec.Config, w.pool.Name, other.pool.Name)
	if err := kc.Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	remark := "its definition names pool " + other.pool.Name + ", and the pod has an address of " + w.pool.Name
	says(t, tenure(t, 0, "pod", "old", "-n", w.namespace), "moving 10.40.0.5 "+w.pool.Name+" - yes", remark)
	says(t, tenure(t, 0, "pod", "claimed", "-n", w.namespace), "moving 10.40.0.21 "+w.pool.Name+" kept yes", remark)
}

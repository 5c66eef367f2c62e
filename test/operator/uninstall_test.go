package operator_test

import (
	"io/fs"
	"strings"
	"testing"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	dra "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/deploy"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// agents makes the agents' DaemonSet as it is shipped, as Helm's if a release is named.
func agents(t *testing.T, release string) {
	t.Helper()
	text, err := fs.ReadFile(deploy.FS, "programs/tenured.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var set appsv1.DaemonSet
	if err := yaml.UnmarshalStrict(text, &set); err != nil {
		t.Fatal(err)
	}
	if release != "" {
		set.Annotations = map[string]string{"meta.helm.sh/release-name": release}
	}
	create(t, &set)
}

// tenured names the agents' DaemonSet.
func tenured() *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "tenure-system", Name: "tenured"}}
}

// there reports whether an object is in the cluster.
func there(t *testing.T, o client.Object) bool {
	t.Helper()
	err := kc.Get(t.Context(), client.ObjectKeyFromObject(o), o)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return !apierrors.IsNotFound(err)
}

// cleans says, as the controller of DaemonSets does, that so many of so many nodes are clean.
func cleans(t *testing.T, clean, nodes int32) {
	t.Helper()
	set := tenured()
	fleet.Eventually(t, 20*time.Second, func() error { return kc.Get(t.Context(), client.ObjectKeyFromObject(set), set) })
	set.Status = appsv1.DaemonSetStatus{
		ObservedGeneration: set.Generation, DesiredNumberScheduled: nodes, CurrentNumberScheduled: nodes, UpdatedNumberScheduled: nodes, NumberReady: clean,
	}
	setStatus(t, set)
}

// Nothing is removed while a pod or a claim has an address. When nobody has one the agents' pods
// clean their nodes, and the pools are deleted.
func TestUninstall(t *testing.T) {
	t.Run("in use", func(t *testing.T) {
		w := inOrder(t)
		agents(t, "")
		devices := &dra.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "nic"}}
		devices.Spec.Devices.Requests = []dra.DeviceRequest{{Name: "nic", Exactly: &dra.ExactDeviceRequest{DeviceClassName: "nics"}}}
		create(t, devices)
		devices.Status.Allocation = &dra.AllocationResult{Devices: dra.DeviceAllocationResult{
			Results: []dra.DeviceRequestAllocationResult{{Request: "nic", Driver: "nic.example.com", Pool: w.node, Device: "eth1"}},
		}}
		setStatus(t, devices)
		w.published(w.lease("10.40.9.0/28", w.node), "10.40.9.1 "+w.namespace+"/gone eth1 resourceclaim/nic")
		says(t, tenure(t, 3, "uninstall"), "pod "+w.namespace+"/plain has 10.40.0.5 of pool "+w.pool.Name, "claim "+w.namespace+"/vm has ",
			"ResourceClaim "+w.namespace+"/nic, device eth1, of pod "+w.namespace+"/gone on node "+w.node+" has 10.40.9.1 of pool", "Nothing was removed.", "--force")
		if set := tenured(); !there(t, set) || len(set.Labels["tenure.dev/uninstall"]) > 0 {
			t.Error("the agents have ended while somebody has an address")
		}
	})
	w := newWorld(t)
	w.pool.Finalizers = []string{v1alpha1.LeasesFinalizer}
	if err := kc.Update(t.Context(), w.pool); err != nil {
		t.Fatal(err)
	}
	network := &v1alpha1.PodNetwork{ObjectMeta: metav1.ObjectMeta{Name: w.pool.Name, Finalizers: []string{v1alpha1.InUseFinalizer}}}
	attachment := &v1alpha1.PodNetworkAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "a", Finalizers: []string{v1alpha1.InUseFinalizer}},
		Spec:       v1alpha1.PodNetworkAttachmentSpec{PodNetworkName: network.Name},
	}
	gated := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "gated"},
		Spec: corev1.PodSpec{
			SchedulingGates: []corev1.PodSchedulingGate{{Name: podnetwork.Gate}, {Name: "example.org/other"}},
			Containers:      []corev1.Container{{Name: "c", Image: "none"}},
		},
	}
	hook := &admissionregistration.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: podnetwork.Admission}}
	for _, o := range []client.Object{network, attachment, gated, hook} {
		create(t, o)
	}
	publishing := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.pool.Name + "-publishes"}}
	create(t, publishing)
	publishing.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("2"), corev1.ResourceName("tenure.dev/" + w.pool.Name): resource.MustParse("7")}
	publishing.Status.Allocatable = publishing.Status.Capacity
	setStatus(t, publishing)
	says(t, tenure(t, 3, "uninstall"), "No agent is installed", "Nothing was removed.")
	says(t, tenure(t, 1, "uninstall", bound(t, "tenure-operator")), "forbidden")
	agents(t, "net")
	says(t, tenure(t, 1, "uninstall", "--timeout=1s"), "ending tenured", "are not clean", "Run it again")
	if set := tenured(); !there(t, set) || set.Spec.Template.Spec.InitContainers[0].Args[0] != "uninstall" {
		t.Error("the agents have not ended")
	}
	cleans(t, 1, 2)
	says(t, tenure(t, 1, "uninstall", "--timeout=1s"), "1 of 2 nodes are clean")
	if !there(t, w.pool) || w.pool.DeletionTimestamp != nil {
		t.Error("the pool is deleted while a node is not clean")
	}
	cleans(t, 2, 2)
	says(t, tenure(t, 0, "uninstall"), "2 of 2 nodes are clean", "took the scheduling gate tenure.dev/pod-networks from 1 pod:", "took the finalizer tenure.dev/in-use from 1 PodNetwork and 1 PodNetworkAttachment:", "took the resources tenure.dev/… from 1 node:", "helm uninstall net --namespace tenure-system", "kubectl delete crd")
	if there(t, w.pool) {
		t.Error("the pool is still there")
	}
	if !there(t, publishing) || len(publishing.Status.Capacity) != 1 || len(publishing.Status.Allocatable) != 1 {
		t.Errorf("the node publishes %v and %v; want what is its own alone", publishing.Status.Capacity, publishing.Status.Allocatable)
	}
	if ns := (&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenure-system"}}); !there(t, ns) || ns.Labels["tenure.dev/uninstall"] != "true" {
		t.Errorf("the namespace has the labels %v: the policy lets nobody delete it", ns.Labels)
	}
	if there(t, hook) {
		t.Error("the API server still gives pods gates")
	}
	if !there(t, gated) || len(gated.Spec.SchedulingGates) != 1 {
		t.Errorf("the pod is gone, or has the gates %v; want that of somebody else", gated.Spec.SchedulingGates)
	}
	for _, o := range []client.Object{network, attachment} {
		if !there(t, o) || len(o.GetFinalizers()) > 0 {
			t.Errorf("%s is gone, or has the finalizers %q", o.GetName(), o.GetFinalizers())
		}
		if err := kc.Delete(t.Context(), o); err != nil {
			t.Error(err)
		}
	}
}

// By force it goes on in spite of addresses, and without nodes that do not answer: it says how
// they are cleaned later.
func TestUninstallByForce(t *testing.T) {
	w := inOrder(t)
	says(t, tenure(t, 0, "uninstall", "--force"), "No agent is installed", "They stay as they are.")
	agents(t, "")
	said := tenure(t, 0, "uninstall", "--force", "--timeout=1s")
	says(t, said, "pod "+w.namespace+"/plain has 10.40.0.5", "When it is back, install", "kubectl delete --ignore-not-found -f FILE")
	if strings.Contains(said, "helm") || there(t, tenured()) {
		t.Errorf("the agents are still there, or it speaks of Helm: %s", said)
	}
}

package operator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// old is a cluster whose pods have their addresses by another IPAM.
type old struct {
	t         *testing.T
	namespace string
}

// newOld makes a namespace. When the test ends, nothing of Tenure's is left in the cluster.
func newOld(t *testing.T) *old {
	t.Helper()
	o := &old{t, fleet.Unique("ns")}
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.namespace}})
	create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: "default"}})
	t.Cleanup(func() {
		for _, of := range []client.Object{&v1alpha1.IPPool{}, &v1alpha1.IPLease{}, &v1alpha1.IPSubLease{}} {
			if err := kc.DeleteAllOf(context.Background(), of); err != nil {
				t.Error(err)
			}
		}
	})
	return o
}

// definition makes a definition; ipam is its ipam section.
func (o *old) definition(name, ipam string) *nad.NetworkAttachmentDefinition {
	o.t.Helper()
	return o.configured(name, fmt.Sprintf(`{"cniVersion":"1.0.0","name":"%s-%s","type":"macvlan","ipam":%s}`, o.namespace, name, ipam))
}

func (o *old) configured(name, config string) *nad.NetworkAttachmentDefinition {
	o.t.Helper()
	d := &nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: name}, Spec: nad.NetworkAttachmentDefinitionSpec{Config: config}}
	create(o.t, d)
	return d
}

// ipamOf returns the type of IPAM that a definition names.
func (o *old) ipamOf(definition string) string {
	o.t.Helper()
	var d nad.NetworkAttachmentDefinition
	if err := kc.Get(o.t.Context(), client.ObjectKey{Namespace: o.namespace, Name: definition}, &d); err != nil {
		o.t.Fatal(err)
	}
	var config struct {
		IPAM struct {
			Type string `json:"type"`
		} `json:"ipam"`
	}
	if err := json.Unmarshal([]byte(d.Spec.Config), &config); err != nil {
		o.t.Fatal(err)
	}
	return config.IPAM.Type
}

// runs makes a pod that has run on a node for an hour. Where it has addresses, its status
// shows them.
func (o *old) runs(name, node, definition string, addrs ...string) *corev1.Pod {
	o.t.Helper()
	no := false
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: name, Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{NodeName: node, AutomountServiceAccountToken: &no, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	if definition != "" {
		p.Annotations[nad.NetworkAttachmentAnnot] = definition
	}
	if len(addrs) > 0 {
		p.Annotations[nad.NetworkStatusAnnot] = o.statusOf(definition, addrs...)
	}
	create(o.t, p)
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour))}}
	setStatus(o.t, p)
	return p
}

func (o *old) statusOf(definition string, addrs ...string) string {
	text, err := json.Marshal([]map[string]any{
		{"name": "default", "interface": "eth0", "ips": []string{"10.0.0.1"}, "default": true},
		{"name": o.namespace + "/" + definition, "interface": "net1", "ips": addrs},
	})
	if err != nil {
		o.t.Fatal(err)
	}
	return string(text)
}

// shows writes that a pod's status shows addresses from now on.
func (o *old) shows(p *corev1.Pod, addrs ...string) {
	o.t.Helper()
	p.Annotations[nad.NetworkStatusAnnot] = o.statusOf(p.Annotations[nad.NetworkAttachmentAnnot], addrs...)
	if err := kc.Update(o.t.Context(), p); err != nil {
		o.t.Fatal(err)
	}
}

// records makes one of whereabouts' IPPools: allocations are "offset pod".
func (o *old) records(name, cidr string, allocations ...string) {
	o.t.Helper()
	all := map[string]any{}
	for _, text := range allocations {
		offset, ref, _ := strings.Cut(text, " ")
		all[offset] = map[string]any{"id": "c", "ifname": "net1", "podref": o.ref(ref)}
	}
	p := kube.NewWhereaboutsPool(o.namespace, name)
	p.Object["spec"] = map[string]any{"range": cidr, "allocations": all}
	create(o.t, p)
}

// reserves makes one of whereabouts' reservations.
func (o *old) reserves(name, pod string) {
	o.t.Helper()
	r := kube.NewWhereaboutsReservation(o.namespace, name)
	r.Object["spec"] = map[string]any{"podref": o.ref(pod), "ifname": "net1"}
	create(o.t, r)
}

// ref returns how whereabouts names a pod. What has a '!' is damaged.
func (o *old) ref(pod string) string {
	if rest, damaged := strings.CutPrefix(pod, "!"); damaged {
		return rest
	}
	return o.namespace + "/" + pod
}

// state returns the versions of all that import and export may write.
func state(t *testing.T) (all []string) {
	t.Helper()
	lists := []client.ObjectList{&nad.NetworkAttachmentDefinitionList{}, &corev1.PodList{}}
	for _, l := range fleet.WhereaboutsLists() {
		lists = append(lists, l)
	}
	for _, l := range lists {
		if err := kc.List(t.Context(), l); client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
			t.Fatal(err)
		}
		err := meta.EachListItem(l, func(item runtime.Object) error {
			o, err := meta.Accessor(item)
			if err == nil {
				all = append(all, fmt.Sprintf("%T %s/%s %s", item, o.GetNamespace(), o.GetName(), o.GetResourceVersion()))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var pools v1alpha1.IPPoolList // their status is the controller's
	if err := kc.List(t.Context(), &pools); err != nil {
		t.Fatal(err)
	}
	for i := range pools.Items {
		all = append(all, fmt.Sprintf("pool %s %d", pools.Items[i].Name, pools.Items[i].Generation))
	}
	slices.Sort(all)
	return all
}

// object is an object of whereabouts'.
type object = unstructured.Unstructured

func specOf(o *object) (namespace, name string, spec map[string]any) {
	spec, _, _ = unstructured.NestedMap(o.Object, "spec") // the schema says that it is one
	return o.GetNamespace(), o.GetName(), spec
}

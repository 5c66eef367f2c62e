package controller_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// advertised makes a pool of 14 addresses that is advertised, and two nodes with agents.
func advertised(t *testing.T) (p *v1alpha1.IPPool, ns string) {
	t.Helper()
	ns, p = lan(t, "10.0.0.0/28")
	fl := newFleet(t, cp.Config(), 15*time.Minute, "")
	for _, name := range []string{"a", "b"} {
		name = p.Name + "-" + name
		n := makeNode(t, name)
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		n.Status.Capacity = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
		n.Status.Allocatable = n.Status.Capacity
		if err := kc.Status().Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		setTaints(t, name) // the API server makes nodes with one, which the controller of nodes takes off
		fl.Start(name)
	}
	opened(t, p)
	fleet.Edit(t, kc, p, func() { p.Spec.Advertise = true })
	return p, ns
}

// publishes waits until the pool's two nodes publish these numbers, "-" is nothing, of what they
// have and of what is allocatable.
func publishes(t *testing.T, p *v1alpha1.IPPool, what string, a, b string) {
	t.Helper()
	name := corev1.ResourceName("tenure.dev/" + p.Name)
	eventually(t, 30*time.Second, func() error {
		var got []string
		for _, node := range []string{"a", "b"} {
			n, err := read(nodeOf(p.Name + "-" + node))
			if err != nil {
				return err
			}
			if _, ok := n.Status.Capacity[corev1.ResourceMemory]; !ok {
				t.Fatal("what else a node has was taken away")
			}
			for _, all := range []corev1.ResourceList{n.Status.Capacity, n.Status.Allocatable} {
				q, ok := all[name]
				if !ok {
					got = append(got, "-")
					continue
				}
				got = append(got, q.String())
			}
		}
		if want := []string{a, a, b, b}; !slices.Equal(got, want) {
			return fmt.Errorf("%s: nodes publish %q; want %q", what, got, want)
		}
		return nil
	})
}

// saysOf waits until a pool's condition Advertised has a reason, "" is that it is gone.
func saysOf(t *testing.T, p *v1alpha1.IPPool, status metav1.ConditionStatus, reason string, words ...string) {
	t.Helper()
	eventually(t, 20*time.Second, func() error {
		if _, err := read(p); err != nil {
			return err
		}
		if reason == "" {
			if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PoolAdvertised); c != nil {
				return fmt.Errorf("there still is %+v", c)
			}
			return nil
		}
		return condition(p.Status.Conditions, v1alpha1.PoolAdvertised, status, reason, words...)
	})
}

// asker makes a pod that asks for an address of a pool, bound to one of its nodes, or to none.
func asker(t *testing.T, ns string, p *v1alpha1.IPPool, name, node string) *corev1.Pod {
	t.Helper()
	one := corev1.ResourceList{corev1.ResourceName("tenure.dev/" + p.Name): resource.MustParse("1")}
	o := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: corev1.PodSpec{AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{
			Name: "c", Image: "x", Resources: corev1.ResourceRequirements{Requests: one, Limits: one},
		}}},
	}
	if node != "" {
		o.Spec.NodeName = p.Name + "-" + node
	}
	eventually(t, 20*time.Second, func() error { return kc.Create(t.Context(), o) }) // once there is a service account
	return o
}

// setStatus writes what a kubelet does of its node's resource.
func setStatus(t *testing.T, p *v1alpha1.IPPool, node, number string) {
	t.Helper()
	body := fmt.Sprintf(`{"status":{"capacity":{"tenure.dev/%[1]s":%[2]s},"allocatable":{"tenure.dev/%[1]s":%[2]s}}}`, p.Name, number)
	if err := kc.Status().Patch(t.Context(), nodeOf(p.Name+"-"+node), client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		t.Fatal(err)
	}
}

// TestAdvertise: nodes publish the addresses that their pods have asked for, and their share of
// what is free, while the pool gives addresses.
func TestAdvertise(t *testing.T) {
	start(t)
	p, ns := advertised(t)
	publishes(t, p, "all is free", "7", "7")
	saysOf(t, p, metav1.ConditionTrue, v1alpha1.ReasonPublished, "tenure.dev/"+p.Name)

	var pods []*corev1.Pod
	for i := range 7 {
		pods = append(pods, asker(t, ns, p, fmt.Sprint("p", i), "a"))
	}
	asker(t, ns, p, "nowhere", "")
	// Of the other seven addresses each node gets half.
	publishes(t, p, "seven pods are on one node", "10", "4")
	setStatus(t, p, "a", `"0"`)
	publishes(t, p, "the kubelet has zeroed it", "10", "4")
	setStatus(t, p, "b", "null")
	publishes(t, p, "the kubelet has dropped it", "11", "3")
	claim(t, ns, "kept", "lan")
	publishes(t, p, "a claim has one more", "10", "3")

	n, err := read(nodeOf(p.Name + "-b"))
	if err != nil {
		t.Fatal(err)
	}
	fleet.Edit(t, kc, n, func() { n.Spec.Unschedulable = true })
	publishes(t, p, "pods cannot be scheduled on one", "13", "-")
	fleet.Edit(t, kc, n, func() { n.Spec.Unschedulable = false })
	publishes(t, p, "they can again", "10", "3")

	for _, o := range pods {
		if err := kc.Delete(t.Context(), o, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
	publishes(t, p, "the pods are gone", "7", "6")

	fleet.Edit(t, kc, p, func() { p.Spec.Allocation = v1alpha1.AllocationStopped })
	publishes(t, p, "the pool is stopped", "-", "-")
	saysOf(t, p, metav1.ConditionFalse, v1alpha1.ReasonNotOpen, "Ready")
	fleet.Edit(t, kc, p, func() { p.Spec.Allocation = v1alpha1.AllocationAutomatic })
	publishes(t, p, "the pool is open again", "7", "6")
	fleet.Edit(t, kc, p, func() { p.Spec.Advertise = false })
	publishes(t, p, "it is not advertised", "-", "-")
	saysOf(t, p, "", "")
}

// TestAdvertisedRanges: of ranges that select nodes each node publishes those that are for it.
func TestAdvertisedRanges(t *testing.T) {
	start(t)
	p, _ := advertised(t)
	of := func(rack string) *v1alpha1.LabelSelector {
		return &v1alpha1.LabelSelector{MatchLabels: map[string]v1alpha1.LabelValue{"rack": v1alpha1.LabelValue(rack)}}
	}
	fleet.Edit(t, kc, p, func() {
		p.Spec.Ranges = []v1alpha1.Range{{CIDR: "10.0.0.0/28", NodeSelector: of("one")}, {CIDR: "10.0.1.0/29", NodeSelector: of("two")}}
	})
	rack := func(node, name string) {
		o := nodeOf(p.Name + "-" + node)
		fleet.Edit(t, kc, o, func() { metav1.SetMetaDataLabel(&o.ObjectMeta, "rack", name) })
	}
	rack("a", "one")
	publishes(t, p, "one node has a rack", "14", "-")
	rack("b", "two")
	publishes(t, p, "both have", "14", "6")
	rack("b", "one")
	publishes(t, p, "both have the same", "7", "7")
}

// TestAdvertisedPoolGoes: what nodes publish goes with the pool, also where nobody looked when that
// was deleted.
func TestAdvertisedPoolGoes(t *testing.T) {
	stop := start(t)
	p, _ := advertised(t)
	publishes(t, p, "all is free", "7", "7")
	remove(t, p)
	publishes(t, p, "the pool is deleted", "-", "-")
	fleet.Gone(t, kc, p, 20*time.Second)
	stop()
	setStatus(t, p, "b", `"7"`)
	start(t)
	publishes(t, p, "the pool is long gone", "-", "-")
}

// TestAdvertiseWithoutTheRight: the pool says what the controller lacks, and gives addresses all
// the same.
func TestAdvertiseWithoutTheRight(t *testing.T) {
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "tenure-controller-advertise"}}
	if _, err := read(binding); err != nil {
		t.Fatal(err)
	}
	remove(t, binding)
	again := func() {
		binding.ResourceVersion, binding.UID = "", ""
		if err := client.IgnoreAlreadyExists(kc.Create(t.Context(), binding)); err != nil {
			t.Error(err)
		}
	}
	defer again()
	start(t)
	p, _ := advertised(t)
	saysOf(t, p, metav1.ConditionFalse, v1alpha1.ReasonNotPermitted, "tenure-controller-advertise", "advertise.enabled", "nodes/status")
	opened(t, p)
	again()
	fleet.Edit(t, kc, p, func() { metav1.SetMetaDataAnnotation(&p.ObjectMeta, "example.org/look", "again") })
	publishes(t, p, "it has the right", "7", "7")
	saysOf(t, p, metav1.ConditionTrue, v1alpha1.ReasonPublished)
}

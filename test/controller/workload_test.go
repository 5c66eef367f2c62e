package controller_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/cmd/tenure-controller/controller"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// asking makes a StatefulSet of one replica that asks for a claim of the network lan.
func asking(t *testing.T, namespace string) *appsv1.StatefulSet {
	t.Helper()
	labels := map[string]string{"app": "web"}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}, Spec: appsv1.StatefulSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{kube.AnnotationNetworks: "lan", workload.AnnotationClaims: "lan"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		},
	}}
	fleet.Create(t, kc, set)
	return set
}

// TestStatefulSetWithTheRightsThatAreShipped: its claim is made, changed and deleted.
func TestStatefulSetWithTheRightsThatAreShipped(t *testing.T) {
	ns, p := namespace(t), pool(t, "10.161.0.0/24")
	definition(t, ns, "lan", fleet.Unique("net"), ofPool(p.Name))
	start(t)
	set := asking(t, ns)
	c := &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web-0.lan"}}
	eventually(t, 10*time.Second, func() error { return kc.Get(t.Context(), client.ObjectKeyFromObject(c), c) })
	allocated(t, c)
	fleet.Edit(t, kc, set, func() {
		set.Annotations = map[string]string{workload.AnnotationRetention: "whenDeleted=Delete,whenScaled=Delete"}
	})
	eventually(t, 10*time.Second, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		if owner := kube.OwnerOf(c); string(owner.UID) != string(set.UID) {
			return fmt.Errorf("the claim's owner is %+v; want the StatefulSet", owner)
		}
		return nil
	})
	fleet.Edit(t, kc, set, func() { set.Spec.Replicas = new(int32) })
	fleet.Gone(t, kc, c, 10*time.Second)
}

// TestWithoutStatefulSetClaims: a controller that is not to make claims, or may not, does all
// else.
func TestWithoutStatefulSetClaims(t *testing.T) {
	for name, leaveOut := range map[string]func(*testing.T) func(*controller.Config){
		"not to": func(*testing.T) func(*controller.Config) {
			return func(c *controller.Config) { c.StatefulSetClaims = false }
		},
		"may not": func(t *testing.T) func(*controller.Config) {
			unbind(t)
			return func(*controller.Config) {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ns, p, network := namespace(t), pool(t, "10.161.1.0/24"), fleet.Unique("net")
			definition(t, ns, "lan", network, ofPool(p.Name))
			start(t, leaveOut(t))
			asking(t, ns)
			allocated(t, claim(t, ns, "mine", network))
			var list ipamclaims.IPAMClaimList
			if err := kc.List(t.Context(), &list, client.InNamespace(ns)); err != nil || len(list.Items) != 1 {
				t.Errorf("%d claims, %v; want the person's alone", len(list.Items), err)
			}
			remove(t, p)
		})
	}
}

// unbind takes the role of StatefulSets' claims from the controller until the test ends.
func unbind(t *testing.T) {
	t.Helper()
	b := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "tenure-controller-workloads"}}
	if err := kc.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil {
		t.Fatal(err)
	}
	again := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: b.Name}, RoleRef: b.RoleRef, Subjects: b.Subjects}
	remove(t, b)
	t.Cleanup(func() {
		if err := kc.Create(context.WithoutCancel(t.Context()), again); err != nil {
			t.Error(err)
		}
	})
	c, err := client.New(role, client.Options{Scheme: kc.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, func() error { // the authorizer hears of it
		if err := c.List(t.Context(), &appsv1.StatefulSetList{}); !apierrors.IsForbidden(err) {
			return fmt.Errorf("StatefulSets are listed: %w", err)
		}
		return nil
	})
}

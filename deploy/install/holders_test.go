package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// TestHoldersAmong: a lease whose pods are gone is idle, and is named with its node, also
// where its status, which an agent with another store never writes again, still names one.
func TestHoldersAmong(t *testing.T) {
	lease := func(name, node string, allocations ...string) v1alpha1.IPLease {
		l := v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: name}}
		l.Spec.Pool, l.Spec.Holder = "lan", v1alpha1.Holder{Kind: v1alpha1.HolderNode, Node: node}
		l.Status.Allocations = allocations
		return l
	}
	leases := []v1alpha1.IPLease{
		lease("used", "a", "10.0.0.5 shop/web net1"),
		lease("frozen", "b", "10.0.1.5 shop/gone net1"),
		lease("cluster", ""),
	}
	leases[2].Spec.Holder = v1alpha1.Holder{Kind: v1alpha1.HolderCluster}
	sub := v1alpha1.IPSubLease{ObjectMeta: metav1.ObjectMeta{Name: "left"}}
	sub.Spec.Node = "c"
	pods := []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}}
	held, idle := holdersAmong(leases, []v1alpha1.IPSubLease{sub}, pods)
	if want := []string{"pod shop/web has 10.0.0.5 of pool lan (net1)"}; !slices.Equal(held, want) {
		t.Errorf("in use: %q; want %q", held, want)
	}
	if want := []string{"lease frozen of node b", "sub-lease left of node c"}; !slices.Equal(idle, want) {
		t.Errorf("left: %q; want %q", idle, want)
	}
	said := errNotGivenBack(idle, time.Minute).Error()
	for _, want := range append(idle, "StoreFrozen", "FORCE=1") {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q: %s", want, said)
		}
	}
}

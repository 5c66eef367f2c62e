package install

import (
	"cmp"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resource "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// TestHeld: what pods that are there and claims have counts. What a lease's status or a sub-lease
// says of a pod that is gone does not: an agent with another store never writes it again.
func TestHeld(t *testing.T) {
	lease := func(name, node string, allocations ...string) v1alpha1.IPLease {
		l := v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: name}}
		l.Spec.Pool, l.Spec.Holder = "lan", v1alpha1.Holder{Kind: v1alpha1.HolderNode, Node: node}
		l.Status.Allocations = allocations
		return l
	}
	leases := []v1alpha1.IPLease{
		lease("used", "a", "10.0.0.5 shop/web net1"),
		lease("frozen", "b", "10.0.1.5 shop/gone net1"),
		lease("counted", "c"),
		lease("cluster", ""),
	}
	leases[2].Status.Used = new(int32(3))
	leases[3].Spec.Holder = v1alpha1.Holder{Kind: v1alpha1.HolderCluster}
	leases[3].Spec.Grants = []v1alpha1.Grant{{Address: "10.0.3.5", To: v1alpha1.Grantee{Kind: v1alpha1.GranteeClaim, Namespace: "shop", Name: "db"}}}
	leases[3].Spec.Grants = append(leases[3].Spec.Grants,
		v1alpha1.Grant{Address: "10.0.3.6", To: v1alpha1.Grantee{Kind: v1alpha1.GranteeSubLease, UID: "1", Name: "request-1"}},
		v1alpha1.Grant{Address: "10.0.3.7", To: v1alpha1.Grantee{Kind: v1alpha1.GranteeSubLease, UID: "2", Name: "request-2"}},
		v1alpha1.Grant{Address: "10.0.3.8", To: v1alpha1.Grantee{Kind: v1alpha1.GranteePod, Namespace: "shop", Name: "gone"}},
		v1alpha1.Grant{Address: "10.0.3.9", To: v1alpha1.Grantee{Kind: v1alpha1.GranteePod, Namespace: "shop", Name: "web"}},
		v1alpha1.Grant{Address: "10.0.3.10", To: v1alpha1.Grantee{Kind: v1alpha1.GranteeReservation, Name: "router"}})
	request := func(uid types.UID, pod string) v1alpha1.IPSubLease {
		return v1alpha1.IPSubLease{ObjectMeta: metav1.ObjectMeta{UID: uid}, Spec: v1alpha1.IPSubLeaseSpec{Request: &v1alpha1.Request{Pod: v1alpha1.PodReference{Namespace: "shop", Name: pod}}}}
	}
	use := func(pod string) v1alpha1.IPSubLease {
		return v1alpha1.IPSubLease{Spec: v1alpha1.IPSubLeaseSpec{Use: &v1alpha1.Use{
			Claim: v1alpha1.ClaimReference{Name: "db"}, Pod: v1alpha1.PodReference{Namespace: "shop", Name: pod},
		}}}
	}
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: map[string]string{"k8s.v1.cni.cncf.io/networks": "lan"}}}
	want := []string{
		"pod shop/web uses claim db", "pod shop/web has 10.0.0.5 of pool lan (net1)", "pods on node c have 3 addresses of pool lan",
		"claim shop/db has 10.0.3.5 of pool lan", "pod shop/web has 10.0.3.6 of pool lan", "pod shop/web has 10.0.3.9 of pool lan",
	}
	if held := heldAmong(leases, []v1alpha1.IPSubLease{use("web"), use("gone"), request("1", "web"), request("2", "gone")}, []corev1.Pod{pod}, nil); !slices.Equal(held, want) {
		t.Errorf("in use: %q; want %q", held, want)
	}
	pods := []corev1.Pod{pod, pod, pod} // the first has no node yet
	pods[1].Spec.NodeName, pods[2].Spec.NodeName = "a", "a"
	pods[2].Status.Phase = corev1.PodSucceeded
	if held, want := attached(pods), []string{"pod shop/web on node a is attached to networks of its own"}; !slices.Equal(held, want) {
		t.Errorf("attached: %q; want %q", held, want)
	}
}

// TestHeldByResourceClaims: a device that is allocated has its addresses whether the pod is there
// that had them first or not. One that is allocated to no ResourceClaim does not count.
func TestHeldByResourceClaims(t *testing.T) {
	claim := func(name string, devices ...string) resource.ResourceClaim {
		c := resource.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		for _, d := range devices {
			c.Status.Allocation = cmp.Or(c.Status.Allocation, &resource.AllocationResult{})
			c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resource.DeviceRequestAllocationResult{Device: d})
		}
		return c
	}
	claims := []resource.ResourceClaim{claim("idle"), claim("shared", "eth1", "eth2"), claim("other", "eth3")}
	var lease v1alpha1.IPLease
	lease.Spec.Pool, lease.Spec.Holder = "lan", v1alpha1.Holder{Kind: v1alpha1.HolderNode, Node: "a"}
	lease.Status.Allocations = []string{
		"10.0.0.1 shop/web eth9 resourceclaim/lost", // its pod is there
		"10.0.0.2 shop/gone eth1 resourceclaim/shared",
		"10.0.0.3 shop/gone eth1 resourceclaim/idle",   // let go of
		"10.0.0.4 shop/gone eth3 resourceclaim/shared", // another's device
		"10.0.0.5 else/gone eth1 resourceclaim/shared",
		"10.0.0.6 shop/gone net1",
	}
	asked := v1alpha1.IPSubLease{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
	asked.Spec.Request = &v1alpha1.Request{Pod: v1alpha1.PodReference{Namespace: "shop", Name: "gone"}, Interface: "eth2"}
	var use v1alpha1.IPSubLease
	use.Spec.Use = &v1alpha1.Use{Claim: v1alpha1.ClaimReference{Name: "db"}, Pod: asked.Spec.Request.Pod, Interface: "eth3"}
	lease.Spec.Grants = []v1alpha1.Grant{
		{Address: "10.0.0.8", To: v1alpha1.Grantee{Kind: v1alpha1.GranteeSubLease, UID: "1", Name: "request-1"}},
		{Address: "10.0.0.9", To: v1alpha1.Grantee{Kind: v1alpha1.GranteePod, Namespace: "shop", Name: "gone"}},
	}
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	want := []string{
		"device eth3 of ResourceClaim shop/other uses claim db",
		"ResourceClaim shop/lost, device eth9, of pod shop/web on node a has 10.0.0.1 of pool lan",
		"ResourceClaim shop/shared, device eth1, of pod shop/gone on node a has 10.0.0.2 of pool lan",
		"device eth2 of ResourceClaim shop/shared has 10.0.0.8 of pool lan",
	}
	if held := heldAmong([]v1alpha1.IPLease{lease}, []v1alpha1.IPSubLease{asked, use}, []corev1.Pod{pod}, claims); !slices.Equal(held, want) {
		t.Errorf("in use: %q; want %q", held, want)
	}
}

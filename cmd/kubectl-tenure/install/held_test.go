package install

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
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
	if held := heldAmong(leases, []v1alpha1.IPSubLease{use("web"), use("gone"), request("1", "web"), request("2", "gone")}, []corev1.Pod{pod}); !slices.Equal(held, want) {
		t.Errorf("in use: %q; want %q", held, want)
	}
	pods := []corev1.Pod{pod, pod, pod} // the first has no node yet
	pods[1].Spec.NodeName, pods[2].Spec.NodeName = "a", "a"
	pods[2].Status.Phase = corev1.PodSucceeded
	if held, want := attached(pods), []string{"pod shop/web on node a is attached to networks of its own"}; !slices.Equal(held, want) {
		t.Errorf("attached: %q; want %q", held, want)
	}
}

package daemon

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// TestSetOfAPod: the set is the StatefulSet of Kubernetes that controls the pod, and no
// other kind of that name.
func TestSetOfAPod(t *testing.T) {
	yes := true
	for name, tt := range map[string]struct {
		owner metav1.OwnerReference
		want  string
	}{
		"its own":                   {metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", Controller: &yes}, "web"},
		"another project's":         {metav1.OwnerReference{APIVersion: "apps.kruise.io/v1beta1", Kind: "StatefulSet", Name: "web", Controller: &yes}, ""},
		"another kind":              {metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", Controller: &yes}, ""},
		"one that does not control": {metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web"}, ""},
	} {
		pod := podOf(&metav1.ObjectMeta{
			Name: "web-0", OwnerReferences: []metav1.OwnerReference{tt.owner}, Annotations: map[string]string{"tenure.dev/claims": "lan"},
		})
		if pod.Set != tt.want || pod.Claims != "lan" {
			t.Errorf("%s: set %q, claims %q; want %q, %q", name, pod.Set, pod.Claims, tt.want, "lan")
		}
	}
	if !keeps("tenure.dev/claims") {
		t.Error("the watch of pods drops the annotation")
	}
}

// TestPodToWhichAMachineMoves: KubeVirt's label says it.
func TestPodToWhichAMachineMoves(t *testing.T) {
	for label, moving := range map[string]bool{"kubevirt.io/migrationJobUID": true, "kubevirt.io/created-by": false} {
		if o := (metav1.ObjectMeta{Labels: map[string]string{label: "4c9d"}}); attachPodOf(&o).Moving != moving {
			t.Errorf("with label %s a machine moves there: %t; want %t", label, !moving, moving)
		}
	}
}

// TestTooManyStrangers: of a pool of which strangers have too many addresses no more are asked for.
func TestTooManyStrangers(t *testing.T) {
	for reason, asks := range map[string]bool{"": true, v1alpha1.ReasonAddressesKept: true, v1alpha1.ReasonTooManyStrangers: false} {
		o := &v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{DetectConflicts: true}}
		if reason != "" {
			o.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PoolStrangers, Status: metav1.ConditionTrue, Reason: reason}}
		}
		if got := PoolOf(o).DetectConflicts; got != asks {
			t.Errorf("with reason %q it is asked: %t; want %t", reason, got, asks)
		}
	}
}

// TestGivenAway: of a pool that was stopped the node hears that another IPAM may have given what is
// free, until the pool is open again.
func TestGivenAway(t *testing.T) {
	for leasing, want := range map[v1alpha1.Leasing]bool{v1alpha1.LeasingClosed: true, v1alpha1.LeasingOpen: false} {
		o := &v1alpha1.IPPool{Status: v1alpha1.IPPoolStatus{Leasing: leasing, Conditions: []metav1.Condition{
			{Type: v1alpha1.PoolWithheld, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonGivenAway},
		}}}
		if got := PoolOf(o).GivenAway; got != want {
			t.Errorf("%s: given away %t; want %t", leasing, got, want)
		}
		o.Status.Conditions[0].Reason = v1alpha1.ReasonNotLookedAt
		if PoolOf(o).GivenAway {
			t.Errorf("%s: what an edit has added counts as given away", leasing)
		}
	}
}

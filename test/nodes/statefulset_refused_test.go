package nodes_test

import (
	"fmt"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// TestStatefulSetsClaimsWithoutAddresses: of a range that is no part of the pool no claim is made,
// and the StatefulSet says so. Of more ordinals than addresses, and of an address that another
// StatefulSet has, the claim says why it has none. One that waits has it when it comes free.
func TestStatefulSetsClaimsWithoutAddresses(t *testing.T) {
	w := newWorld(t, "few", "default", "10.78.0.0/29") // 6 usable
	set := func(name string, replicas int32, requested string) *appsv1.StatefulSet {
		annotations := map[string]string{}
		if requested != "" {
			annotations[workload.AnnotationRequested] = requested
		}
		return w.keeper(replicas, annotations, func(o *appsv1.StatefulSet) {
			o.Name, o.Annotations = name, map[string]string{workload.AnnotationRetention: "whenDeleted=Delete"}
		}).obj
	}
	claim := func(set string, ordinal int) *ipamclaims.IPAMClaim {
		return &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s-%d.%s", set, ordinal, w.definition)}}
	}
	refused := func(c *ipamclaims.IPAMClaim, reason, words string) {
		t.Helper()
		claimSays(t, c, metav1.ConditionFalse, reason, words)
		if len(c.Status.IPs) > 0 {
			t.Errorf("claim %s has %v; want no address", c.Name, c.Status.IPs)
		}
	}

	set("outside", 3, "10.78.0.6-10.78.0.9")
	said(t, "StatefulSet", "outside", "InvalidClaimsAnnotation", "10.78.0.7 is for ordinal 1, and cannot be given: pool few: 10.78.0.7 is the broadcast address (10.78.0.0/29): no claim is made")
	for i := range 3 {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(claim("outside", i)), claim("outside", i)); !apierrors.IsNotFound(err) {
			t.Errorf("claim of ordinal %d: %v; want none", i, err)
		}
	}

	first, second := set("first", 2, "10.78.0.2-10.78.0.3"), claim("second", 0)
	allocated(t, claim("first", 1))
	set("second", 2, "10.78.0.3-10.78.0.4")
	allocated(t, claim("second", 1))
	refused(second, "RequestedIPsTaken", "claim default/"+claim("first", 1).Name)
	fleet.Delete(t, kc, first)
	if ips := allocated(t, second); ips[0].Addr().String() != "10.78.0.3" {
		t.Errorf("claim %s has %v; want the address that came free", second.Name, ips)
	}

	set("many", 5, "") // 4 are left
	eventually(t, 20*time.Second, func() error {
		without := 0
		for i := range 5 {
			c := claim("many", i)
			if err := kc.Get(t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
				return err
			}
			if cond := meta.FindStatusCondition(c.Status.Conditions, kube.ConditionIPsAllocated); len(c.Status.IPs) == 0 && cond != nil && cond.Reason == "SubnetExhausted" {
				without++
			}
		}
		if without != 1 {
			return fmt.Errorf("%d of 5 claims say that the pool is exhausted; want one", without)
		}
		return nil
	})
}

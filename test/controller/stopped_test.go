package controller_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// TestStartedAgain (I1): a pool that was stopped and is started again gives nothing before it is
// open, and does not open while another IPAM may give its addresses, whatever is edited meanwhile
// and also where the controller begins anew. Who has an address keeps it. Where no other IPAM has
// to do with the pool, it opens at once.
func TestStartedAgain(t *testing.T) {
	stop := start(t)
	ns, p := lan(t, "10.81.0.0/24")
	network := fleet.Unique("claims")
	definition(t, ns, "claims", network, ofPool(p.Name))
	had := allocated(t, claim(t, ns, "c1", network))
	set := func(change func()) { fleet.Edit(t, kc, p, change) }
	closed := func(reason string) {
		t.Helper()
		eventually(t, 20*time.Second, func() error {
			if _, err := read(p); err != nil {
				return err
			}
			if p.Status.ObservedGeneration != p.Generation {
				return fmt.Errorf("generation %d is not looked at", p.Generation)
			}
			if err := condition(p.Status.Conditions, v1alpha1.PoolReady, metav1.ConditionFalse, reason); err != nil {
				return err
			}
			return condition(p.Status.Conditions, v1alpha1.PoolWithheld, metav1.ConditionTrue, v1alpha1.ReasonGivenAway)
		})
	}
	set(func() { p.Spec.Allocation = v1alpha1.AllocationStopped })
	closed(v1alpha1.ReasonStopped)
	set(func() { p.Spec.Allocation = v1alpha1.AllocationAutomatic })
	opened(t, p)

	set(func() { p.Spec.Allocation = v1alpha1.AllocationStopped })
	closed(v1alpha1.ReasonStopped)
	failed(t, claim(t, ns, "c2", network), "PoolNotReady", "Stopped")
	theirs := definition(t, ns, "theirs", fleet.Unique("net"), `{"type":"whereabouts","range":"10.81.0.0/24"}`)
	set(func() { p.Spec.Allocation, p.Spec.BlockSize = v1alpha1.AllocationAutomatic, new(int32(8)) })
	closed(v1alpha1.ReasonForeignIPAM)
	stop()
	start(t)
	set(func() { p.Spec.Ranges[0].CIDR = "10.81.0.0/23" })
	closed(v1alpha1.ReasonForeignIPAM)
	always(t, 2*time.Second, func() error {
		c, err := read(claimOf(ns, "c2", network))
		if err == nil && len(c.Status.IPs) > 0 {
			err = fmt.Errorf("while another IPAM gives the pool's addresses, c2 gets %q", c.Status.IPs)
		}
		return err
	})
	failed(t, claimOf(ns, "c2", network), "PoolNotReady", "was stopped")
	if got := allocated(t, claimOf(ns, "c1", network)); !slices.Equal(got, had) {
		t.Errorf("c1 has %q; want what it had, %q", got, had)
	}
	remove(t, theirs)
	opened(t, p)
	if got := allocated(t, claimOf(ns, "c2", network)); slices.Equal(got, had) {
		t.Errorf("c2 gets %q, which c1 has", got)
	}
}

package nodes_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/proof"
)

const (
	// rateAim is how fast the claims of a large StatefulSet get their addresses, as a part of
	// the rate at which the API server takes the same creates and status patches from so many
	// writers, on a machine that does nothing else. The test reports it.
	rateAim      = 0.7
	manyOrdinals = 1000
	rawWriters   = 32
)

// TestThousandOrdinals: all claims of a StatefulSet of 1,000 ordinals have their addresses
// nearly as soon as the API server can take that many creates and patches.
func TestThousandOrdinals(t *testing.T) {
	proof.Only(t)
	raw := rawClaims(t, "raw")
	served := servedClaims(t, "ordinals", "10.80.0.0/20")
	t.Logf("%d claims made and allocated in %v; the same creates and patches alone take %v: %.2f of that rate (aim: %.1f). Load average %s",
		manyOrdinals, served.Round(time.Millisecond), raw.Round(time.Millisecond), raw.Seconds()/served.Seconds(), rateAim, fleet.LoadAverage(t))
}

// servedClaims returns how long a StatefulSet's claims take to be made and allocated.
func servedClaims(t *testing.T, name, cidr string) time.Duration {
	t.Helper()
	w := newWorld(t, name, "default", cidr)
	says(t, readPool(t, name), v1alpha1.PoolReady, metav1.ConditionTrue)
	seen := make(chan error, 1)
	go func() { seen <- awaitAllocated(t, name, manyOrdinals) }()
	began := time.Now()
	k := w.keeper(manyOrdinals, nil)
	must(t, <-seen)
	took := time.Since(began)
	fleet.Delete(t, kc, k.obj)
	must(t, kc.DeleteAllOf(t.Context(), &ipamclaims.IPAMClaim{}, client.InNamespace("default"), client.MatchingLabels{workload.LabelSet: name}))
	w.nothingGranted(time.Minute)
	return took
}

// awaitAllocated waits until so many claims of a StatefulSet have addresses.
func awaitAllocated(t *testing.T, set string, count int) error {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	has := map[types.UID]bool{}
	err := cluster.AwaitClaims(ctx, "default", func(c *ipamclaims.IPAMClaim) bool {
		if c.Labels[workload.LabelSet] == set && len(c.Status.IPs) > 0 {
			has[c.UID] = true
		}
		return len(has) == count
	})
	if err != nil {
		return fmt.Errorf("%d of %d claims have addresses: %w", len(has), count, err)
	}
	return nil
}

// rawClaims returns how long the API server takes for the creates and status patches of as
// many claims, of a network that is nobody's.
func rawClaims(t *testing.T, name string) time.Duration {
	t.Helper()
	raw := map[string]string{"raw": name}
	began := time.Now()
	var group errgroup.Group
	group.SetLimit(rawWriters)
	for i := range manyOrdinals {
		group.Go(func() error {
			c := &ipamclaims.IPAMClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s-%d.lan", name, i), Labels: raw},
				Spec:       ipamclaims.IPAMClaimSpec{Network: "nobodys"},
			}
			if err := kc.Create(t.Context(), c); err != nil {
				return err
			}
			patch, err := json.Marshal(map[string]any{
				"metadata": map[string]any{"uid": c.UID, "resourceVersion": c.ResourceVersion},
				"status": ipamclaims.IPAMClaimStatus{IPs: []string{"192.0.2.1/24"}, Conditions: []metav1.Condition{{
					Type: kube.ConditionIPsAllocated, Status: metav1.ConditionTrue, Reason: "SuccessfulAllocation", Message: "addresses are allocated", LastTransitionTime: metav1.Now(),
				}}},
			})
			if err != nil {
				return err
			}
			return kc.Status().Patch(t.Context(), c, client.RawPatch(types.MergePatchType, patch))
		})
	}
	must(t, group.Wait())
	took := time.Since(began)
	must(t, kc.DeleteAllOf(t.Context(), &ipamclaims.IPAMClaim{}, client.InNamespace("default"), client.MatchingLabels(raw)))
	return took
}

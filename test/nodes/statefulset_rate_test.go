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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
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
	served := servedClaims(t, "thousand", "10.80.0.0/20")
	t.Logf("%d claims made and allocated in %v; the same creates and patches alone take %v: %.2f of that rate (aim: %.1f). Load average %s",
		manyOrdinals, served.Round(time.Millisecond), raw.Round(time.Millisecond), raw.Seconds()/served.Seconds(), rateAim, fleet.LoadAverage(t))
}

// servedClaims returns how long a StatefulSet's claims take to be made and allocated.
func servedClaims(t *testing.T, name, cidr string) time.Duration {
	t.Helper()
	w := newWorld(t, name, "default", cidr)
	eventually(t, 10*time.Second, func() error {
		var p v1alpha1.IPPool
		if err := kc.Get(t.Context(), client.ObjectKey{Name: name}, &p); err != nil || p.Status.Leasing != v1alpha1.LeasingOpen {
			return fmt.Errorf("pool %s is %q: %w", name, p.Status.Leasing, err)
		}
		return nil
	})
	seen := make(chan error, 1)
	go func() { seen <- awaitAllocated(t, name, manyOrdinals) }()
	began := time.Now()
	k := w.keeper(manyOrdinals, nil)
	if err := <-seen; err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	fleet.Delete(t, kc, k.obj)
	if err := kc.DeleteAllOf(t.Context(), &ipamclaims.IPAMClaim{}, client.InNamespace("default"), client.MatchingLabels{workload.LabelSet: name}); err != nil {
		t.Fatal(err)
	}
	w.nothingGranted(time.Minute)
	return took
}

// awaitAllocated waits until so many claims of a StatefulSet have addresses.
func awaitAllocated(t *testing.T, set string, count int) error {
	c, err := client.NewWithWatch(cp.Config(), client.Options{Scheme: kc.Scheme()})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	options := func(o metav1.ListOptions) *client.ListOptions {
		return &client.ListOptions{Namespace: "default", LabelSelector: labels.SelectorFromSet(labels.Set{workload.LabelSet: set}), Raw: &o}
	}
	has := map[types.UID]bool{}
	_, err = watchtools.UntilWithSync(ctx, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			var list ipamclaims.IPAMClaimList
			return &list, c.List(ctx, &list, options(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(ctx, &ipamclaims.IPAMClaimList{}, options(o))
		},
	}, &ipamclaims.IPAMClaim{}, nil, func(e watch.Event) (bool, error) {
		if claim, ok := e.Object.(*ipamclaims.IPAMClaim); ok && len(claim.Status.IPs) > 0 {
			has[claim.UID] = true
		}
		return len(has) == count, nil
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
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	if err := kc.DeleteAllOf(t.Context(), &ipamclaims.IPAMClaim{}, client.InNamespace("default"), client.MatchingLabels(raw)); err != nil {
		t.Fatal(err)
	}
	return took
}

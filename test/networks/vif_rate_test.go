package networks_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/proof"
)

const (
	manyPods = 200
	writers  = 32
	// rateAim is how much longer pods may take to get their maps than to be created and patched
	// once by one client. It is not met: for a map the claim is created and its status written,
	// and a lease has the grant, which is twice as many writes.
	rateAim = 1.5
)

// TestTwoHundredPods (K5): 200 pods with one interface each, created at once, have their maps soon.
// It measures, and fails where one has none.
func TestTwoHundredPods(t *testing.T) {
	proof.Only(t)
	plain := createAndPatch(t)
	served := createAndMap(t)
	t.Logf("%d pods have their maps after %v; the same creates and patches alone take %v: %.2f times that (aim: %.1f). Load average %s",
		manyPods, served.Round(time.Millisecond), plain.Round(time.Millisecond), served.Seconds()/plain.Seconds(), rateAim, fleet.LoadAverage(t))
}

// each does f for every pod, by many writers at once.
func each(t *testing.T, f func(ctx context.Context) error) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(writers)
	for range manyPods {
		group.Go(func() error { return f(ctx) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// createAndPatch returns how long a client takes to create pods, and to annotate each.
func createAndPatch(t *testing.T) time.Duration {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"annotations": {"note": "as long as a map is, more or less: it says which interface has which address"}}}`))
	began := time.Now()
	each(t, func(ctx context.Context) error {
		p := newPod("")
		if err := kc.Create(ctx, p); err != nil {
			return err
		}
		return kc.Patch(ctx, p, patch)
	})
	took := time.Since(began)
	sweep(t)
	return took
}

// createAndMap returns how long pods take to be created and to get their maps.
func createAndMap(t *testing.T) time.Duration {
	t.Helper()
	d := definition(t, team, vif.AnnotationNetwork, inline(pool(t, "10.0.0.0/22")))
	rendered(t, d, "macvlan")
	mapped(t, pod(t, d.Name), "net1") // the pool is open
	await := newMaps(t)
	began, all := time.Now(), make(chan error, 1)
	go func() { all <- await(manyPods) }()
	each(t, func(ctx context.Context) error { return kc.Create(ctx, newPod(d.Name)) })
	if err := <-all; err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	sweep(t)
	return took
}

// newMaps returns a function that waits until so many pods, of those that are not there yet, have
// their maps.
func newMaps(t *testing.T) (await func(n int) error) {
	t.Helper()
	to, err := client.NewWithWatch(cp.Config(), client.Options{Scheme: kc.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	var before corev1.PodList
	if err := to.List(t.Context(), &before, client.InNamespace(team)); err != nil {
		t.Fatal(err)
	}
	seen := map[types.UID]bool{}
	for i := range before.Items {
		seen[before.Items[i].UID] = true
	}
	options := func(o metav1.ListOptions) client.ListOption {
		return &client.ListOptions{Namespace: team, Raw: &o}
	}
	return func(n int) error {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		_, err := watchtools.UntilWithSync(ctx, &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				var list corev1.PodList
				return &list, to.List(ctx, &list, options(o))
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return to.Watch(ctx, &corev1.PodList{}, options(o))
			},
		}, &corev1.Pod{}, nil, func(e watch.Event) (bool, error) {
			if p, ok := e.Object.(*corev1.Pod); ok && p.Annotations[vif.AnnotationMap] != "" && !seen[p.UID] {
				seen[p.UID] = true
				n--
			}
			return n <= 0, nil
		})
		if err != nil {
			return fmt.Errorf("%d pods have no map: %w", n, err)
		}
		return nil
	}
}

// sweep deletes all pods, and waits until they are gone.
func sweep(t *testing.T) {
	t.Helper()
	fleet.Eventually(t, time.Minute, func() error {
		// On a busy machine one call does not get to the end of them.
		if err := kc.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(team), client.GracePeriodSeconds(0)); err != nil {
			return err
		}
		var claims ipamclaims.IPAMClaimList
		if err := kc.List(t.Context(), &claims, client.InNamespace(team), client.HasLabels{vif.LabelClaim}); err != nil {
			return err
		}
		if n := len(claims.Items); n > 0 {
			return fmt.Errorf("%d claims are left of pods that are gone", n)
		}
		return nil
	})
}

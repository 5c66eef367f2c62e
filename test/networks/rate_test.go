package networks_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/proof"
)

const (
	manyPods    = 1000
	podNetworks = 10
	writers     = 32
	// gateAim is how much longer 1,000 pods may take to get through the gate than to be created
	// and patched once by one client, on a machine that does nothing else. The test reports it.
	gateAim = 1.5
)

// TestThousandPods (W4): 1,000 pods of ten PodNetworks that are created at once are through the
// gate nearly as soon as the API server can take that many creates and patches.
func TestThousandPods(t *testing.T) {
	proof.Only(t)
	start(t)
	var names []string
	for range podNetworks {
		n := network(t)
		ready(t, n)
		names = append(names, n.Name)
	}
	plain := createAndPatch(t)
	gated := createAndPass(t, names)
	t.Logf("%d pods are through the gate in %v; the same creates and patches alone take %v: %.2f times that (aim: %.1f). Load average %s",
		manyPods, gated.Round(time.Millisecond), plain.Round(time.Millisecond), gated.Seconds()/plain.Seconds(), gateAim, fleet.LoadAverage(t))
}

// each does f for every pod, by many writers at once.
func each(t *testing.T, f func(ctx context.Context, i int) error) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(writers)
	for i := range manyPods {
		group.Go(func() error { return f(ctx, i) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// createAndPatch returns how long a client takes to create pods with somebody else's gate, and
// to take it from each.
func createAndPatch(t *testing.T) time.Duration {
	t.Helper()
	ns := namespace(t)
	lift := client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec": {"schedulingGates": [{"$patch": "delete", "name": "example.org/x"}]}}`))
	began := time.Now()
	each(t, func(ctx context.Context, _ int) error {
		p := pod(ns, "")
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/x"}}
		if err := kc.Create(ctx, p); err != nil {
			return err
		}
		return kc.Patch(ctx, p, lift)
	})
	return time.Since(began)
}

// createAndPass returns how long pods take to be created and to get through the gate.
func createAndPass(t *testing.T, networks []string) time.Duration {
	t.Helper()
	ns := namespace(t)
	began := time.Now()
	each(t, func(ctx context.Context, i int) error {
		return kc.Create(ctx, pod(ns, lists(networks[i%len(networks)])))
	})
	fleet.Eventually(t, 3*time.Minute, func() error {
		var list corev1.PodList
		if err := kc.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
			return err
		}
		left := 0
		for i := range list.Items {
			if gated(&list.Items[i]) {
				left++
			}
		}
		if left > 0 {
			return fmt.Errorf("%d of %d pods have their gate", left, len(list.Items))
		}
		return nil
	})
	return time.Since(began)
}

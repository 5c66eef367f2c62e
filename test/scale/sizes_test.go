package scale_test

import (
	"encoding/json"
	"fmt"
	"testing"

	coordination "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// sizes says how large the objects of a pool are on average, as the API server sends
// them: what a cluster of many of them keeps and watches follows from that.
func sizes(t *testing.T, pool string) string {
	t.Helper()
	var leases v1alpha1.IPLeaseList
	if err := kc.List(t.Context(), &leases, client.MatchingFields{"spec.pool": pool}); err != nil {
		t.Fatal(err)
	}
	var bytes, said, ofNodes int
	for i := range leases.Items {
		if leases.Items[i].Spec.Holder.Kind == v1alpha1.HolderNode {
			ofNodes++
			bytes += size(t, &leases.Items[i])
			said += len(leases.Items[i].Status.Allocations)
		}
	}
	var seats coordination.LeaseList
	if err := kc.List(t.Context(), &seats, client.InNamespace(api.SeatNamespace), client.Limit(1)); err != nil {
		t.Fatal(err)
	}
	var p v1alpha1.IPPool
	if err := kc.Get(t.Context(), client.ObjectKey{Name: pool}, &p); err != nil {
		t.Fatal(err)
	}
	if ofNodes == 0 || len(seats.Items) == 0 {
		t.Fatalf("pool %s has %d leases of nodes, and there are %d seats; want some", pool, ofNodes, len(seats.Items))
	}
	return fmt.Sprintf("bytes: %d for a lease that tells of %.1f addresses, %d for a seat, %d for the pool",
		bytes/ofNodes, float64(said)/float64(ofNodes), size(t, &seats.Items[0]), size(t, &p))
}

// size returns how many bytes o has as JSON, as API server and etcd keep it.
func size(t *testing.T, o any) int {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return len(text)
}

package pools

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// onePool is a cache with one pool.
type onePool struct {
	client.Reader
	pool *v1alpha1.IPPool
}

func (c onePool) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if p, ok := into.(*v1alpha1.IPPool); ok {
		*p = *c.pool
	}
	return nil
}

// TestH9FreesBeforeItOpens: after a restore nothing of a pool is freed while nodes may be
// about to put back that they use it. A pool that waits for no node any more, but for
// leases of an earlier pool of its name, would wait for ever if what was granted of these
// to a claim that is gone could not be freed (I4).
func TestH9FreesBeforeItOpens(t *testing.T) {
	p := with(pool("10.0.0.0/24"), open(32))
	p.Status.Leasing, p.Status.Opening = v1alpha1.LeasingClosed, "5"
	now := noon
	r := &Reconciler{Cache: onePool{pool: p}, Now: func() time.Time { return now }}
	r.seats.hear(saying(seatAt("a", 0), true, "5"), noon)
	for ; now.Before(noon.Add(12 * time.Minute)); now = now.Add(lookAgain) {
		got, err := r.Restored(t.Context(), "lan")
		if err != nil {
			t.Fatal(err)
		}
		if want := now.Before(noon.Add(8 * time.Minute)); got != want {
			t.Fatalf("%v after the pool was closed nothing is freed: %v; want %v", now.Sub(noon), got, want)
		}
	}
}

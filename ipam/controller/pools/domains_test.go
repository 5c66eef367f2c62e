package pools

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

var errEarlier, errLater = errors.New("earlier"), errors.New("later")

// changing is a cache whose lists fail with one error, and later with another.
type changing struct {
	somePools

	later *atomic.Bool
}

func (c changing) List(context.Context, client.ObjectList, ...client.ListOption) error {
	if c.later.Load() {
		return errLater
	}
	return errEarlier
}

// TestLooksWhenItsTurnComes: a pool that waits for another of its domain goes by what there is when
// its turn comes. The other may have waited long for the API server.
func TestLooksWhenItsTurnComes(t *testing.T) {
	var later atomic.Bool
	p := with(pool("10.0.0.0/24"), func(p *v1alpha1.IPPool) { p.Spec.Domain = "lans" })
	r := &Reconciler{
		Networks: using{}, Live: liveOf{}, Metrics: NewMetrics(), Shapes: &Shapes{}, Now: func() time.Time { return noon },
		Cache: changing{somePools{pools: []*v1alpha1.IPPool{p}}, &later},
	}
	r.domains.Lock() // as who looks at another pool
	done := make(chan error)
	go func() {
		_, err := r.Reconcile(t.Context(), request("lan"))
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("it does not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	later.Store(true)
	r.domains.Unlock()
	if err := <-done; !errors.Is(err, errLater) {
		t.Errorf("it has read what was %v; want what is there when its turn comes", err)
	}
}

package pools

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// noneOfTheName is a cache that has other pools than who asks wants.
type noneOfTheName struct{ somePools }

func (noneOfTheName) Get(_ context.Context, k client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "ippools"}, k.Name)
}

// TestPoolsThatAreGoneAreForgotten, whoever took the finalizer off, and nothing of others is.
func TestPoolsThatAreGoneAreForgotten(t *testing.T) {
	here, gone := types.UID("p1"), types.UID("p0")
	r := &Reconciler{
		Cache: noneOfTheName{somePools{pools: []*v1alpha1.IPPool{pool("10.0.0.0/24")}}}, Metrics: NewMetrics(),
		counts:  map[types.UID]time.Time{here: noon, gone: noon},
		closed:  map[types.UID]spell{here: {}, gone: {}},
		starved: map[types.UID]lastStarved{here: nil, gone: nil},
		settled: map[types.UID]acceptedSpec{here: {}, gone: {}},
	}
	if _, err := r.Reconcile(t.Context(), request("gone")); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(slices.Collect(maps.Keys(r.counts)), slices.Collect(maps.Keys(r.closed)), slices.Collect(maps.Keys(r.starved)),
		slices.Collect(maps.Keys(r.settled)))
	if got != "[p1] [p1] [p1] [p1]" {
		t.Errorf("known is %s; want p1 alone, everywhere", got)
	}
}

// TestDefinitionsThatAreGoneAreForgotten: what was told of a definition is kept to tell it once.
func TestDefinitionsThatAreGoneAreForgotten(t *testing.T) {
	r := &Implicit{Cache: noneOfTheName{}, Log: slog.New(slog.DiscardHandler)}
	refused := notice{reasonRefused, "because"}
	r.tell(t.Context(), "ns/gone", refused)
	if len(r.reported.New(types.NamespacedName{Namespace: "ns", Name: "gone"}, refused)) == 0 {
		t.Error("what was told of a definition that is gone is kept")
	}
}

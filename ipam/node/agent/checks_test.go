package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenure-ipam/tenure/ipam/node/store"
)

func TestCountErrors(t *testing.T) {
	one := errors.New("one")
	for _, tt := range []struct {
		err  error
		want int
	}{
		{nil, 0}, {one, 1}, {errors.Join(one, one), 2}, {errors.Join(one, errors.Join(one, one)), 3},
		{fmt.Errorf("store: %w", one), 1}, {fmt.Errorf("%w and %w", one, one), 2},
	} {
		if got := countErrors(tt.err); got != tt.want {
			t.Errorf("%v has %d errors; want %d", tt.err, got, tt.want)
		}
	}
}

// TestUnloggedMetric: a store whose redo log was given up shows in the metrics.
func TestUnloggedMetric(t *testing.T) {
	a, _ := newRegisteredAgent(t, &createdLeases{}, shutPools{})
	st, err := store.Open(filepath.Join(t.TempDir(), "store"), store.Options{Redo: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	a.st = st
	scraped := prometheus.NewPedanticRegistry()
	scraped.MustRegister(state{a})
	unlogged := func() float64 {
		families, err := scraped.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "tenure_agent_store_unlogged" {
				return f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		return -1
	}
	if v := unlogged(); v != 0 {
		t.Errorf("with a redo log it is %v", v)
	}
	if err := os.Remove(store.RedoPath(st.Path())); err != nil {
		t.Fatal(err)
	}
	if err := st.Update(t.Context(), func(tx *store.Tx) error { return tx.PutIdentity(store.Identity{Node: "n1"}) }); err != nil {
		t.Fatal(err)
	}
	if v := unlogged(); v != 1 {
		t.Errorf("without one it is %v; want 1", v)
	}
}

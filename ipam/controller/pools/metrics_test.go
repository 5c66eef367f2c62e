package pools

import (
	"slices"
	"testing"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// TestPressureIsShown as the number of its word, once there is one, and no longer than the pool.
func TestPressureIsShown(t *testing.T) {
	m, p := NewMetrics(), pool("10.0.0.0/24")
	shape, _ := shapeOf(p)
	for _, tt := range []struct {
		says v1alpha1.Pressure
		want []float64
	}{
		{"", nil}, {v1alpha1.PressureLow, []float64{0}}, {v1alpha1.PressureHigh, []float64{1}}, {v1alpha1.PressureExhausted, []float64{2}},
	} {
		p.Status.Pressure = tt.says
		m.observe(p, tally{}, shape)
		if got := gauges(t, m, "tenure_pool_pressure"); !slices.Equal(got, tt.want) {
			t.Errorf("pressure %q is shown as %v; want %v", tt.says, got, tt.want)
		}
	}
	m.forget(p.Name)
	if got := gauges(t, m, "tenure_pool_pressure"); got != nil {
		t.Errorf("a pool that is gone is shown as %v", got)
	}
}

// gauges returns the values that a metric has.
func gauges(t *testing.T, m *Metrics, name string) (values []float64) {
	t.Helper()
	families, err := m.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, sample := range f.GetMetric() {
			if f.GetName() == name {
				values = append(values, sample.GetGauge().GetValue())
			}
		}
	}
	return values
}

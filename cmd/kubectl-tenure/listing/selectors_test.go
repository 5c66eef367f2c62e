package listing

import (
	"testing"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// TestPressureOfSomeNodes: a pool that is full for some nodes alone says so.
func TestPressureOfSomeNodes(t *testing.T) {
	full, free := v1alpha1.SelectorStatus{Selector: "rack=a", Exhausted: "full"}, v1alpha1.SelectorStatus{Selector: "rack=b"}
	for _, tt := range []struct {
		pressure  v1alpha1.Pressure
		selectors []v1alpha1.SelectorStatus
		want      string
	}{
		{v1alpha1.PressureExhausted, nil, "Exhausted"},
		{v1alpha1.PressureExhausted, []v1alpha1.SelectorStatus{full, free}, "Exhausted (some nodes)"},
		{v1alpha1.PressureExhausted, []v1alpha1.SelectorStatus{full, full}, "Exhausted"},
		{v1alpha1.PressureLow, []v1alpha1.SelectorStatus{free, free}, "Low"},
	} {
		p := &v1alpha1.IPPool{Status: v1alpha1.IPPoolStatus{Pressure: tt.pressure, Selectors: tt.selectors}}
		if got := poolPressureCell(p).Text; got != tt.want {
			t.Errorf("%v of %v: %q; want %q", tt.pressure, tt.selectors, got, tt.want)
		}
	}
}

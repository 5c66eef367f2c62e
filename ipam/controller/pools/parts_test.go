package pools

import (
	"testing"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// TestPartsAreOfTheCountsMoment: numbers of selectors that are written beside newer ones of the
// pool are as new.
func TestPartsAreOfTheCountsMoment(t *testing.T) {
	p := with(pool("10.0.0.0/28"), open(30), func(p *v1alpha1.IPPool) {
		p.Spec.Ranges[0].NodeSelector = &v1alpha1.LabelSelector{MatchLabels: map[string]v1alpha1.LabelValue{"rack": "a"}}
		p.Status.ObservedGeneration = p.Generation
		p.Status.Counts = &v1alpha1.PoolCounts{Capacity: 14, Free: 14}
		p.Status.Selectors = []v1alpha1.SelectorStatus{{Selector: "rack=a", Capacity: 14, Free: 14, Pressure: v1alpha1.PressureLow}}
	})
	s := seen{pool: p, now: noon, starved: true} // the pressure changes
	s.shape, _ = shapeOf(p)
	s.tally = count([]v1alpha1.IPLease{{
		Spec:   v1alpha1.IPLeaseSpec{Pool: "lan", Block: "10.0.0.4/30", Holder: v1alpha1.Holder{Kind: v1alpha1.HolderNode, Node: "n1"}},
		Status: v1alpha1.IPLeaseStatus{Used: new(int32(4)), Free: new(int32(0))},
	}}, s.shape, surroundings{reaches: func(*v1alpha1.IPLease) bool { return true }})
	s.parts = []part{{selector: "rack=a", shape: s.shape, tally: s.tally}}
	st := decide(s).status
	if st == nil || st.Counts.Used == 0 || len(st.Selectors) != 1 || st.Selectors[0].Used != st.Counts.Used || st.Selectors[0].Free != st.Counts.Free {
		t.Errorf("status %+v: the pool's counts are not the selector's", st)
	}
}

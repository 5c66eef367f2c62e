package pools

import (
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// TestEditedIsCounted: what a change of the ranges gives is in the counts with the change,
// and not when the next are due.
func TestEditedIsCounted(t *testing.T) {
	p := pool("10.0.0.0/24")
	look := func(now time.Time, due bool) (counted bool) {
		s := seen{pool: p, now: now, countsDue: due}
		s.shape, s.fault = shapeOf(p)
		s.tally = count(nil, s.shape, near)
		s.live = &live{pool: p}
		plan := decide(s)
		if plan.status != nil {
			p.Status = *plan.status
		}
		return plan.counted
	}
	look(noon, true)
	p.Spec.Ranges = append(p.Spec.Ranges, v1alpha1.Range{CIDR: "10.0.1.0/24"})
	p.Generation++
	counted := look(noon.Add(time.Second), false)
	if c := p.Status.Counts; !counted || c == nil || c.Capacity != 508 {
		t.Errorf("counted %v: %+v; want those of both ranges", counted, c)
	}
	if look(noon.Add(2*time.Second), false) {
		t.Error("counted again, where nothing was edited")
	}
}

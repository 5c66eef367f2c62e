package pools

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// TestShapesAreParsedOnce: the shape of a spec is parsed once for each edit of it, and forgotten
// with the pool.
func TestShapesAreParsedOnce(t *testing.T) {
	var s Shapes
	p := pool("10.0.0.0/24")
	p.UID, p.Generation = types.UID("u1"), 1
	first, ok := s.Whole(p)
	if again, _ := s.Whole(p); !ok || again != first {
		t.Errorf("parsed again: %v", ok)
	}
	p.Generation, p.Spec.Ranges[0].CIDR = 2, "10.0.0.1/24"
	if edited, ok := s.Whole(p); ok {
		t.Errorf("after an edit that is faulty: %v", edited)
	}
	s.Forget(p.UID)
	p.Spec.Ranges[0].CIDR = "10.0.0.0/25"
	if anew, ok := s.Whole(p); !ok || anew.Capacity(4) != 126 {
		t.Errorf("after it was forgotten: %v", ok)
	}
}

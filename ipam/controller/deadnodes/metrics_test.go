package deadnodes

import "testing"

// TestTermsAreCountedFromNone: who looks for growth sees the first node that dies.
func TestTermsAreCountedFromNone(t *testing.T) {
	families, err := NewMetrics().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "tenure_takeover_terms_ended_total" && len(f.GetMetric()) == 2 {
			return
		}
	}
	t.Errorf("got %v; want one count of each evidence", families)
}

package claims

import (
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
)

// heard counts Events by their reason.
type heard map[string]int

func (h heard) Eventf(_, _ runtime.Object, _, reason, _, _ string, _ ...any) { h[reason]++ }

// TestUndefinedNetworkIsTold: once in a while, however often the claim is looked at, and without a
// write.
func TestUndefinedNetworkIsTold(t *testing.T) {
	w, events, now := world{}, heard{}, noon
	r := w.reconciler()
	r.Events, r.Now = events, func() time.Time { return now }
	for i, tt := range []struct {
		later time.Duration
		want  int
	}{{0, 1}, {time.Minute, 1}, {tellAgain, 2}} {
		now = now.Add(tt.later)
		after, err := r.apply(t.Context(), &ipamclaims.IPAMClaim{}, fresh(), plan{tellUndefined: true, after: tellAgain})
		if got := events[ReasonNetworkUndefined]; got != tt.want || after != tellAgain || err != nil || len(w.calls) > 0 {
			t.Errorf("look %d: %d Events, again after %v, %v, calls %v; want %d Events, no call", i, got, after, err, w.calls, tt.want)
		}
	}
}

package state

import (
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Of a node whose clock is wrong the API server's word counts, where there is one.
func TestLastBeat(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name              string
		said, noted, want time.Duration // before now; noted 0: not at all
	}{
		{"both clocks are right", time.Second, 2 * time.Second, time.Second},
		{"the node's is behind", time.Hour, time.Minute, time.Minute},
		{"the node's is ahead", -time.Hour, time.Minute, time.Minute},
		{"the node's is ahead by a little", -30 * time.Second, time.Minute, -30 * time.Second},
		{"only the node has said", time.Minute, 0, time.Minute},
		{"only the node has said, and is ahead", -time.Hour, 0, -time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			said := metav1.NewMicroTime(now.Add(-tt.said))
			o := &coordination.Lease{Spec: coordination.LeaseSpec{RenewTime: &said}}
			if tt.noted != 0 {
				noted, later := metav1.NewTime(now.Add(-tt.noted)), metav1.NewTime(now)
				o.ManagedFields = []metav1.ManagedFieldsEntry{
					{Time: &noted, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:renewTime":{}}}`)},
					{Time: &later, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{}}`)}, // a recall
				}
			}
			if got := now.Sub(lastBeat(o, now)); got != tt.want {
				t.Errorf("got %v before now; want %v", got, tt.want)
			}
		})
	}
}

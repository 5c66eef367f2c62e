package requests

import (
	"context"
	"log/slog"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// answering takes every answer whose outcome is Done.
type answering struct {
	SubLeases
	outcome protocol.Outcome
}

func (a answering) AnswerSubLease(context.Context, protocol.SubLease) (protocol.Outcome, error) {
	return a.outcome, nil
}

// TestAnsweredVersion: the version of a request that was answered is not looked at
// again while the cache still shows it; one whose answer met a newer version is.
func TestAnsweredVersion(t *testing.T) {
	for outcome, answered := range map[protocol.Outcome]bool{protocol.Done: true, protocol.Conflict: false} {
		r := &Reconciler{API: answering{outcome: outcome}, Metrics: NewMetrics(), Log: slog.New(slog.DiscardHandler), Now: time.Now}
		cached := &v1alpha1.IPSubLease{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "5"}}
		if r.outdated(cached) {
			t.Error("outdated before it was answered")
		}
		sub := protocol.SubLease{Meta: protocol.Meta{Name: "a", Revision: "5"}, Request: &protocol.Request{}}
		if done, err := r.answer(t.Context(), sub, time.Now()); done != answered || err != nil {
			t.Fatalf("answer: %v, %v; want %v", done, err, answered)
		}
		if got := r.outdated(cached); got != answered {
			t.Errorf("%v: the version that was answered is outdated: %v; want %v", outcome, got, answered)
		}
		cached.ResourceVersion = "6"
		if r.outdated(cached) {
			t.Errorf("%v: the next version is outdated; want it looked at", outcome)
		}
	}
}

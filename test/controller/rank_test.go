package controller_test

import (
	"fmt"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Each seat has a rank of its own soon, also one that was there before the controller
// and one whose rank is none; a rank stays, and that of a seat that is gone is given
// again. Nothing else of the seat is written.
func TestRanks(t *testing.T) {
	withoutSeats(t)
	ranked := func(want map[string]int) {
		t.Helper()
		eventually(t, 10*time.Second, func() error {
			for node, rank := range want {
				if s := seat(t, node); s.Rank != rank {
					return fmt.Errorf("node %s has rank %d; want %d", node, s.Rank, rank)
				}
			}
			return nil
		})
	}
	first := seated(t, "rank-a")
	start(t)
	ranked(map[string]int{"rank-a": 1})
	if s := seat(t, "rank-a"); s.Turn != first.Turn || !s.Beat.Equal(first.Beat) || s.Store != first.Store || s.Fence != first.Fence {
		t.Errorf("the seat is %+v; want it as it was but for its rank: %+v", s, first)
	}
	seated(t, "rank-b")
	ranked(map[string]int{"rank-b": 2})
	seated(t, "rank-c")
	ranked(map[string]int{"rank-a": 1, "rank-b": 2, "rank-c": 3})

	amend(t, "rank-c", func(s *protocol.Seat) { s.Beat, s.Turn = time.Now(), s.Turn+1 }) // a heartbeat
	if s := seat(t, "rank-c"); s.Rank != 3 {
		t.Errorf("after a heartbeat the node has rank %d; want 3", s.Rank)
	}
	mark(t, &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kube.DefaultSeatNamespace, Name: "rank-c"}},
		`{"metadata":{"annotations":{"tenure.dev/rank":"many"}}}`)
	ranked(map[string]int{"rank-c": 3})

	gone := seat(t, "rank-a")
	if out, err := api.DeleteSeat(t.Context(), gone.Meta); out != protocol.Done {
		t.Fatal(out, err)
	}
	seated(t, "rank-d")
	ranked(map[string]int{"rank-b": 2, "rank-c": 3, "rank-d": 1})
}

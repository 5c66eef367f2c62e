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

// Each registration has a rank of its own soon, also one that was there before the controller
// and one whose rank is none; a rank stays, and that of a registration that is gone is given
// again. Nothing else of the registration is written.
func TestRanks(t *testing.T) {
	withoutRegistrations(t)
	ranked := func(want map[string]int) {
		t.Helper()
		eventually(t, 10*time.Second, func() error {
			for node, rank := range want {
				if s := reg(t, node); s.Rank != rank {
					return fmt.Errorf("node %s has rank %d; want %d", node, s.Rank, rank)
				}
			}
			return nil
		})
	}
	first := registered(t, "rank-a")
	start(t)
	ranked(map[string]int{"rank-a": 1})
	if s := reg(t, "rank-a"); s.Turn != first.Turn || !s.Beat.Equal(first.Beat) || s.Store != first.Store || s.Fence != first.Fence {
		t.Errorf("the registration is %+v; want it as it was but for its rank: %+v", s, first)
	}
	registered(t, "rank-b")
	ranked(map[string]int{"rank-b": 2})
	registered(t, "rank-c")
	ranked(map[string]int{"rank-a": 1, "rank-b": 2, "rank-c": 3})

	amend(t, "rank-c", func(s *protocol.Registration) { s.Beat, s.Turn = time.Now(), s.Turn+1 }) // a heartbeat
	if s := reg(t, "rank-c"); s.Rank != 3 {
		t.Errorf("after a heartbeat the node has rank %d; want 3", s.Rank)
	}
	mark(t, &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kube.DefaultRegistrationNamespace, Name: "rank-c"}},
		`{"metadata":{"annotations":{"tenure.dev/rank":"many"}}}`)
	ranked(map[string]int{"rank-c": 3})

	gone := reg(t, "rank-a")
	if out, err := api.DeleteRegistration(t.Context(), gone.Meta); out != protocol.Done {
		t.Fatal(out, err)
	}
	registered(t, "rank-d")
	ranked(map[string]int{"rank-b": 2, "rank-c": 3, "rank-d": 1})
}

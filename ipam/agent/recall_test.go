package agent

import (
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/ipam/store"
)

// TestRecallOfUnknownLease: a recall of a lease that the store has no record of has the
// node's own listed at once, so that a create which has come late goes back while somebody
// waits for its addresses. One of a lease that is on its way back has not.
func TestRecallOfUnknownLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newBubbleAgent(t, &listedLeases{})
		a.metrics, a.listNow = newMetrics(state{a}), make(chan struct{}, 1)
		known := leaseRight(p.known.Pool, netip.MustParsePrefix("10.0.0.4/30"))
		known.Phase, known.UID = protocol.Releasing, "u"
		if err := a.st.Update(t.Context(), func(tx *store.Tx) error { return tx.PutRight(known) }); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			lease string
			lists int
		}{{known.Name, 0}, {protocol.LeaseName("lan", netip.MustParsePrefix("10.0.0.8/30")), 1}} {
			a.answerRecall(t.Context(), protocol.Recall{ID: "1", Lease: tt.lease}, false)
			if len(a.listNow) != tt.lists {
				t.Errorf("recall of %s: %d lists are due; want %d", tt.lease, len(a.listNow), tt.lists)
			}
		}
	})
}

package agent

import (
	"net/netip"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/ipam/store"
)

// TestLostIsNoReserve: a lost lease on which nothing rests any more goes back at once,
// though addresses are free in its block: they are none that this node can give. One that
// serves is kept for a while.
func TestLostIsNoReserve(t *testing.T) {
	for phase, want := range map[protocol.Phase]int{protocol.Lost: 1, protocol.Held: 0} {
		a := newRestoredAgent(t)
		a.cfg.Idle = time.Minute
		r := leaseRight(Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}, netip.MustParsePrefix("10.0.0.10/31"))
		r.Phase, r.UID, r.Revision, r.Said = phase, "u1", "7", 3
		if phase == protocol.Held {
			r.Term = 3
		}
		err := a.st.Update(t.Context(), func(tx *store.Tx) error {
			if err := allocator.NewSpace(tx.Table("lan"), nil).Open(r.Block); err != nil {
				return err
			}
			return tx.PutRight(r)
		})
		if err != nil {
			t.Fatal(err)
		}
		a.dark.follow(3, protocol.Result{Next: r})
		if got := a.idleRights([]protocol.Right{r}); len(got) != want {
			t.Errorf("%s: %d leases go back; want %d", phase, len(got), want)
		}
	}
}

package agent

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestLostIsNoReserve: a lost lease on which nothing rests any more goes back at once,
// though addresses are free in its block: they are none that this node can give. One that
// serves is kept, however long nothing has rested on it, by a node that uses the pool.
func TestLostIsNoReserve(t *testing.T) {
	shape, err := poolspec.ParsePool(poolspec.PoolText{Ranges: []poolspec.RangeText{{CIDR: "10.0.0.0/24"}}})
	if err != nil {
		t.Fatal(err)
	}
	for phase, want := range map[protocol.Phase]int{protocol.Lost: 1, protocol.Held: 0} {
		a := newRestoredAgent(t)
		a.cfg.Idle = time.Minute
		r := leaseRight(Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}, netip.MustParsePrefix("10.0.0.10/31"))
		r.Phase, r.UID, r.Revision, r.Asserted = phase, "u1", "7", 3
		if phase == protocol.Held {
			r.Term = 3
		}
		err := a.st.Update(t.Context(), func(tx *store.Tx) error {
			space, used := allocator.NewSpace(tx.Table("lan"), shape), netip.MustParsePrefix("10.0.0.20/32")
			return errors.Join(space.Open(r.Block), space.Open(used), space.Take(used.Addr()), tx.PutRight(r))
		})
		if err != nil {
			t.Fatal(err)
		}
		a.unserving.follow(3, protocol.Result{Next: r})
		a.idle[r.Name], a.sched = protocol.Instant{}, sched.Goroutines(clockAt{now: protocol.Instant{Boot: 2 * time.Minute}})
		if got := a.idleRights([]protocol.Right{r}); len(got) != want {
			t.Errorf("%s: %d leases go back; want %d", phase, len(got), want)
		}
	}
}

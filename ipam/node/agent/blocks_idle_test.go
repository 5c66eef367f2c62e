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

// TestNoReserve: a lost lease on which nothing rests any more goes back at once, and one that
// was put back and waits for its pool once it has been idle for long, though addresses are free
// in their blocks: they are none that this node can give. One that serves is kept, however long
// nothing has rested on it, by a node that uses the pool.
func TestNoReserve(t *testing.T) {
	shape, err := poolspec.ParsePool(poolspec.PoolText{Ranges: []poolspec.RangeText{{CIDR: "10.0.0.0/24"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		phase protocol.Phase
		term  int64
		want  int
	}{{protocol.Lost, 0, 1}, {protocol.Held, 3, 0}, {protocol.Held, 0, 1}} {
		a := newRestoredAgent(t)
		a.cfg.Idle = time.Minute
		r := leaseRight(Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}, netip.MustParsePrefix("10.0.0.10/31"))
		r.Phase, r.UID, r.Revision, r.Asserted, r.Term = tt.phase, "u1", "7", 3, tt.term
		err := a.st.Update(t.Context(), func(tx *store.Tx) error {
			space, used := allocator.NewSpace(tx.Table("lan"), shape), netip.MustParsePrefix("10.0.0.20/32")
			return errors.Join(space.Open(r.Block), space.Open(used), space.Take(used.Addr()), tx.PutRight(r))
		})
		if err != nil {
			t.Fatal(err)
		}
		a.rights.unserving.follow(3, protocol.Result{Next: r})
		a.rights.idle.since(r.Name, protocol.Instant{})
		a.sched = sched.Goroutines(clockAt{now: protocol.Instant{Boot: 2 * time.Minute}})
		if got := a.blocks.idleRights([]protocol.Right{r}); len(got) != tt.want {
			t.Errorf("%s in term %d: %d leases go back; want %d", tt.phase, tt.term, len(got), tt.want)
		}
	}
}

package agent

import (
	"net/netip"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestH9LeaseOfALostStore: the restored data have a block in the name of a store that this
// node had lost, and it has leased the block again since. It waits for the pool to be opened
// before it says that its lease is lost. But not where the pool was made again: that one may
// wait for just this lease, which the node gives back when it knows that its own is lost (I4).
func TestH9LeaseOfALostStore(t *testing.T) {
	for uid, want := range map[protocol.UID]protocol.Outcome{"p": protocol.Unknown, "q": protocol.Done} {
		a := newRestoredAgent(t)
		r := leaseRight(Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}, netip.MustParsePrefix("10.0.0.10/32"))
		r.Phase, r.UID, r.Revision, r.Said, r.Term = protocol.Held, "u2", "7", 2, 2
		a.put(t, r)
		a.pools["lan"] = newPool("lan")
		a.pools["lan"].set(&knownPool{Pool: Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: uid}, Opening: "w1"}}}, false)
		leases := carefulLeases{&shownLease{lease: protocol.Lease{Meta: protocol.Meta{Name: r.Name, UID: "u1"}, Pool: "lan", Store: "lost"}}, a}
		if _, out, _ := leases.ReadLease(t.Context(), r.Name); out != want {
			t.Errorf("a lease of pool p while lan is %s is read as %v; want %v", uid, out, want)
		}
	}
}

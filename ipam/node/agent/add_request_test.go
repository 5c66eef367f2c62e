package agent

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// goneHost is a host on which every network namespace that was recorded is gone.
type goneHost struct{ Host }

func (goneHost) Gone(store.Attachment) bool { return true }

// TestGrantOfAnotherPool: what was granted in a pool does not serve an interface whose
// network is another pool's by then, be it of the same addresses (I1): the request goes
// back.
func TestGrantOfAnotherPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newBubbleAgent(t)
		a.host, a.reg.registrar.Term = goneHost{}, 3
		pod := protocol.PodRef{Namespace: "ns", Name: "p", UID: "pod"}
		r := protocol.Right{
			Kind: protocol.RightRequest, Name: "hash-1", Phase: protocol.Held, UID: "u", Revision: "7", Asserted: 3, Term: 3, Writes: 1,
			SubLeaseRight: protocol.SubLeaseRight{Request: &protocol.Request{Pod: pod, Interface: "net1", Wants: []protocol.Wanted{{Pool: "lan", Ranges: []string{"10.0.0.1-10.0.0.30"}}}}, Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.9")}, Leases: []string{"lan.0a000008.30"}},
		}
		err := a.st.Update(t.Context(), func(tx *store.Tx) error {
			return errors.Join(tx.PutIdentity(store.Identity{Node: "n1", Term: 3}), tx.PutRight(r))
		})
		if err != nil {
			t.Fatal(err)
		}
		a.rights.follows(protocol.Self{Term: 3}, protocol.Result{Next: r})
		for _, tt := range []struct {
			pool protocol.PoolName
			ok   bool
		}{{"wan", false}, {"lan", true}} {
			key := store.Key{Network: "net", ContainerID: "sandbox", IfName: "net1"}
			add := &addCall{key: key, demand: assign.Demand{
				Key: key, Pod: pod, Gone: a.host.Gone,
				Slots: []assign.Slot{{Pool: tt.pool, Shape: p.known.shape, Family: allocator.IPv4, BlockBits: 30}},
			}}
			_, stale, err := a.pickRequest(t.Context(), add)
			if err != nil || (len(stale) == 1) == tt.ok {
				t.Errorf("on pool %s these go back: %+v, %v; want the request: %v", tt.pool, stale, err, !tt.ok)
			}
			att, ok, err := a.holdGranted(t.Context(), add)
			if err != nil || ok != tt.ok {
				t.Errorf("on pool %s the grant of lan gives %+v, %v, %v; want %v", tt.pool, att.Addresses, ok, err, tt.ok)
			}
		}
	})
}

package agent

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestFamilyWithoutBlocks: where a pool has come to have ranges of a family again, and the
// controller has not decided its blocks, an ADD waits for that. It takes none of what is
// free of an earlier lease, which may be another's (I1).
func TestFamilyWithoutBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newBubbleAgent(t)
		a.cfg.Fence, a.reg.registrar.Term = 0, 3
		lost, held := leaseRight(p.known.Pool, netip.MustParsePrefix("fd00::/120")), leaseRight(p.known.Pool, netip.MustParsePrefix("10.0.0.8/30"))
		lost.Phase, lost.UID, lost.Revision = protocol.Lost, "u", "7"
		held.Phase, held.UID, held.Revision, held.Asserted, held.Term = protocol.Held, "v", "7", 3, 3
		err := a.st.Update(t.Context(), func(tx *store.Tx) error {
			space := allocator.NewSpace(tx.Table("lan"), p.known.shape)
			return errors.Join(tx.PutIdentity(store.Identity{Node: "n1", Term: 3}), tx.PutRight(lost), tx.PutRight(held),
				space.Open(lost.Block), space.Open(held.Block), space.Take(netip.MustParseAddr("fd00::1")))
		})
		if err != nil {
			t.Fatal(err)
		}
		p.set(changed(p, func(k *knownPool) { k.Bits6, k.Edited = 0, true }), false)
		key := store.Key{Network: "net", ContainerID: "sandbox", IfName: "net1"}
		add := &addCall{
			key: key, conf: &poolspec.Config{Name: "net", CNIVersion: "1.1.0", Sources: []poolspec.Source{{Pool: "lan"}}},
			demand: assign.Demand{Key: key, Pod: protocol.PodRef{Namespace: "ns", Name: "p", UID: "pod"}},
		}
		ctx, cancel := context.WithTimeout(t.Context(), a.cfg.Wait)
		defer cancel()
		if att, err := a.hold(ctx, add); !is[*notReadyError](err) {
			t.Errorf("the ADD gets %+v, %v; want that the pool is waited for", att.Addresses, err)
		}
	})
}

// TestClaimOnAnotherPool: a new sandbox of a claim's pod is not answered as the one before,
// without a look at the claim, where the network is another pool's by then: the address may
// be another's there. The sandbox that has it is answered it again (C10).
func TestClaimOnAnotherPool(t *testing.T) {
	for _, tt := range []struct {
		sandbox, pool string
		answered      bool
	}{{"s2", "lan", true}, {"s2", "wan", false}, {"s1", "wan", true}} {
		a := newRestoredAgent(t)
		a.host = goneHost{}
		pod := protocol.PodRef{Namespace: "ns", Name: "db-0", UID: "p"}
		ref := protocol.ClaimRef{Namespace: "ns", Name: "db", UID: "c"}
		x := netip.MustParseAddr("10.0.0.9")
		r := protocol.Right{
			Kind: protocol.RightUse, Name: protocol.UseName("c", 0), Phase: protocol.Held, UID: "u", Revision: "7", Asserted: 3, Term: 3, Writes: 1,
			SubLeaseRight: protocol.SubLeaseRight{Use: &protocol.Use{Claim: ref, Pod: pod, Interface: "net1"}, Addrs: []netip.Addr{x}, Leases: []string{"lan.0a000008.30"}},
		}
		key := store.Key{Network: "net", ContainerID: "s1", IfName: "net1"}
		err := a.st.Update(t.Context(), func(tx *store.Tx) error {
			return errors.Join(tx.PutRight(r), tx.PutAttachment(store.Attachment{
				Key: key, Pod: pod, Claim: &ref, Use: r.Name, Addresses: []store.Address{{Addr: x, Bits: 27, Pool: "lan"}},
			}))
		})
		if err != nil {
			t.Fatal(err)
		}
		key.ContainerID = tt.sandbox
		add := &addCall{
			key: key, conf: &poolspec.Config{Name: "net", Sources: []poolspec.Source{{Pool: tt.pool}}},
			demand: assign.Demand{Key: key, Pod: pod, Gone: a.host.Gone},
		}
		add.sel.Claim = "db"
		att, ok, err := a.repeatClaim(t.Context(), add)
		if err != nil || ok != tt.answered {
			t.Errorf("sandbox %s on pool %s is answered %+v, %v, %v; want that at once: %v", tt.sandbox, tt.pool, att.Addresses, ok, err, tt.answered)
		}
	}
}

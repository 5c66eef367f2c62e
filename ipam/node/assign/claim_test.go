package assign

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

func claimDemand(container string, claim protocol.UID) Demand {
	a := demand(container)
	a.Granted = []store.Address{{Addr: netip.MustParseAddr("10.0.0.5"), Bits: 24, Pool: "p"}}
	a.Claim = &protocol.ClaimRef{Namespace: "ns", Name: "vm", UID: claim}
	a.Use = protocol.UseName(claim, 0)
	return a
}

func putUse(t *testing.T, st *store.Store, claim protocol.UID) {
	t.Helper()
	update(t, st, func(tx *store.Tx) error {
		return tx.PutRight(protocol.Right{
			Kind: protocol.RightUse, Name: protocol.UseName(claim, 0), Phase: protocol.Held, UID: "use", Term: 1,
			SubLeaseRight: protocol.SubLeaseRight{Use: &protocol.Use{Claim: protocol.ClaimRef{Namespace: "ns", Name: "vm", UID: claim}, Interface: "net1"}},
		})
	})
}

func TestClaimsAddresses(t *testing.T) {
	st := openStore(t)
	putUse(t, st, "u1")
	putUse(t, st, "u2")
	a := claimDemand("c1", "u1")
	first := mustHold(t, st, a)
	if got := addrs(first); got != "10.0.0.5/24" || first.Use != "u1.0" || first.Claim.UID != "u1" {
		t.Errorf("got %s by %q for %v; want the claim's", got, first.Use, first.Claim)
	}
	if again := mustHold(t, st, a); !cmp.Equal(first, again, cmpAddrs) {
		t.Errorf("C10: %+v; want %+v", again, first)
	}
	other := claimDemand("c1", "u2")
	if _, err := hold(st, other); !is[*ConflictError](err) {
		t.Errorf("another claim for the attachment: %v; want ConflictError", err)
	}
	second := claimDemand("c1", "u1")
	second.Key.IfName = "net2"
	if _, err := hold(st, second); !is[*TakenError](err) {
		t.Errorf("another interface of the pod: %v; want TakenError", err)
	}
	stranger := claimDemand("c2", "u1")
	if _, err := hold(st, stranger); !is[*TakenError](err) {
		t.Errorf("another pod: %v; want TakenError", err)
	}
	stranger.Gone = goneNS(first.Netns)
	mustHold(t, st, stranger)
	if !release(t, st, first.Key) {
		t.Error("the first pod's record went with the second pod's ADD; want it to wait for its DEL")
	}
	if !release(t, st, stranger.Key) {
		t.Error("the second pod's record is gone")
	}
}

func TestClaimOfANewSandbox(t *testing.T) {
	st := openStore(t)
	putUse(t, st, "u1")
	a := claimDemand("c1", "u1")
	old := mustHold(t, st, a)
	b := a
	b.Key.ContainerID, b.Netns = "c2", "/run/netns/c2"
	if _, err := hold(st, b); !is[*TakenError](err) {
		t.Errorf("old namespace alive: %v; want TakenError", err)
	}
	b.Gone = goneNS(old.Netns)
	mustHold(t, st, b)
	if release(t, st, old.Key) {
		t.Error("the late DEL of the old container frees something; want nothing")
	}
}

func TestDemandThatContradictsItself(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/29")
	both := claimDemand("c1", "u1")
	both.Slots = []Slot{p.any(allocator.IPv4)}
	noUse := claimDemand("c1", "u1")
	noUse.Use = ""
	for name, a := range map[string]Demand{
		"nothing": demand("c1"), "both": both, "no right": noUse, "no family": demand("c1", Slot{Pool: "p", Shape: p.shape}),
	} {
		if _, err := hold(st, a); err == nil {
			t.Errorf("%s: success; want an error", name)
		}
	}
}

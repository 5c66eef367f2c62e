package grants

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestPodWithTheUIDOfAClaim: the UID of a pod that is said to have an address by another IPAM is a
// text that others may have written. What is kept for such a pod is no claim's that has this UID:
// the claim gets another address, which no request for the pod takes from it, and which comes free
// with the claim and not before.
func TestPodWithTheUIDOfAClaim(t *testing.T) {
	for _, first := range []bool{true, false} { // what is kept was there before the claim's grant
		synctest.Test(t, func(t *testing.T) {
			s := newServer(rand.New(rand.NewPCG(1, 2)))
			pool := lan(t, "lan", "10.0.0.0/24")
			pool.Revision = s.next()
			s.pools["lan"] = pool.Pool
			r := newRig(t, s)
			r.SetPool(pool)
			claim, a := ask("db", "lan"), netip.MustParseAddr("10.0.0.77")
			one := []Source{{Pool: "lan", Addr: a, Families: []allocator.Family{allocator.IPv4}}}
			pod := protocol.Grantee{Kind: protocol.GranteePod, UID: claim.To.UID, Namespace: "ns", Name: "p", Node: "n1"}
			bar := Ask{To: pod, From: one}
			if first {
				r.settle(bar)
			}
			has := r.settle(claim)
			r.settle(bar)
			if len(has.Granted) != 1 || has.Granted[0].Addr == a {
				t.Fatalf("kept first: %v: the claim is granted %+v", first, has)
			}
			of := func() []Held { return r.Held(claim.To.UID) }
			if kept := r.Kept(); len(kept) != 1 || kept[0].Grant.Addr != a || len(of()) != 1 || of()[0].Grant.Addr != has.Granted[0].Addr {
				t.Errorf("kept first: %v: kept %v, and the claim has %v", first, kept, of())
			}
			request := r.settle(Ask{To: protocol.Grantee{Kind: protocol.GranteeSubLease, UID: "u-q", Name: "q"}, From: one, Pod: pod})
			if len(request.Granted) != 1 || len(of()) != 1 {
				t.Errorf("kept first: %v: the pod's request is granted %+v, and the claim has %v", first, request, of())
			}
			r.Withdraw(claim.To.UID)
			if known := r.Known(ClaimKey{"ns", "db"}); !slices.Equal(known, []protocol.UID{claim.To.UID}) {
				t.Errorf("kept first: %v: %v have grants under the claim's name", first, known)
			}
		})
	}
}

// TestPodOfAnotherNode: a node may name a pod of another node, by its UID. What is kept for the pod
// on the one node is not kept for it on the other: only who says that it ends there changes that.
func TestPodOfAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(rand.New(rand.NewPCG(1, 2)))
		pool := lan(t, "lan", "10.0.0.0/24")
		pool.Revision = s.next()
		s.pools["lan"] = pool.Pool
		r := newRig(t, s)
		r.SetPool(pool)
		one := []Source{{Pool: "lan", Addr: netip.MustParseAddr("10.0.0.77"), Families: []allocator.Family{allocator.IPv4}}}
		there := protocol.Grantee{Kind: protocol.GranteePod, UID: "u", Name: "u", Node: "n1"}
		here := protocol.Grantee{Kind: protocol.GranteePod, UID: "u", Namespace: "ns", Name: "p", Node: "n2"}
		r.settle(Ask{To: there, From: one})
		if a := r.settle(Ask{To: here, From: one}); len(a.Granted) > 0 || a.Problem.Reason != Taken {
			t.Errorf("kept on n1, it is said to be kept on n2, too: %+v", a)
		}
		r.settle(Ask{To: here, From: one, Pod: there})
		if kept := r.Kept(); len(kept) != 1 || kept[0].Grant.To != here {
			t.Errorf("passed on to the pod of n2, it is kept as %v", kept)
		}
		request := r.settle(Ask{To: protocol.Grantee{Kind: protocol.GranteeSubLease, UID: "u-q", Name: "q"}, From: one, Pod: there})
		if len(request.Granted) > 0 {
			t.Errorf("n1 is granted what is kept for the pod of n2: %+v", request)
		}
	})
}

package agent

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// lateUses are uses; the first update waits until it may go on, and finds nothing.
type lateUses struct {
	SubLeases
	mu      sync.Mutex
	now     protocol.SubLease
	waiting chan struct{}
	goOn    chan struct{}
}

func (l *lateUses) CreateSubLease(_ context.Context, s protocol.SubLease) (protocol.SubLease, protocol.Outcome, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.UID, s.Revision = "u2", "10"
	l.now = s
	return s, protocol.Done, nil
}

func (l *lateUses) ReadSubLease(_ context.Context, name string) (protocol.SubLease, protocol.Outcome, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now.Name != name {
		return protocol.SubLease{}, protocol.NotFound, nil
	}
	return l.now, protocol.Done, nil
}

func (l *lateUses) UpdateSubLease(_ context.Context, old, next protocol.SubLease) (protocol.SubLease, protocol.Outcome, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now.Name == "" {
		close(l.waiting)
		l.mu.Unlock()
		<-l.goOn
		l.mu.Lock()
		return protocol.SubLease{}, protocol.NotFound, nil
	}
	l.now.Term, l.now.Writes, l.now.Use, l.now.Revision = next.Term, next.Writes, next.Use, l.now.Revision+"1"
	return l.now, protocol.Done, nil
}

// TestUseOfAnAddThatGaveUp: an ADD for a claim gave up while its use was found gone; the
// next ADD of another pod made the use anew and has it. What the first began does not put
// its own pod into the use afterwards.
func TestUseOfAnAddThatGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addr := netip.MustParseAddr("10.0.0.5")
		block := netip.MustParsePrefix("10.0.0.4/30")
		ref := protocol.ClaimRef{Namespace: "ns", Name: "db", UID: "c"}
		first := protocol.Use{Claim: ref, Pod: protocol.PodRef{Namespace: "ns", Name: "first", UID: "p1"}, Interface: "net1"}
		second := protocol.Use{Claim: ref, Pod: protocol.PodRef{Namespace: "ns", Name: "second", UID: "p2"}, Interface: "net1"}
		a, _ := newRegisteredAgent(t, nil, shutPools{})
		a.reg.registrar.Sent = a.sched.Now()
		leases := []string{protocol.LeaseName("lan", block)}
		uses := &lateUses{waiting: make(chan struct{}), goOn: make(chan struct{})}
		a.cl.SubLeases = uses
		a.cl.Claims = oneClaim{protocol.Claim{Meta: protocol.Meta{Name: "db", UID: "c"}, Namespace: "ns", Network: "lan", IPs: []netip.Prefix{netip.PrefixFrom(addr, 24)}}}
		a.cl.Leases = oneLease{lease: protocol.Lease{Meta: protocol.Meta{Name: leases[0], UID: "l", Revision: "3"}, Pool: "lan", Block: block, Holder: protocol.Holder{Cluster: true},
			Grants: []protocol.Grant{{Addr: addr, To: protocol.Grantee{Kind: protocol.GranteeClaim, UID: "c", Name: "db"}}}}}
		r := protocol.Right{Kind: protocol.RightUse, Name: protocol.UseName("c", 0), SubLeaseRight: protocol.SubLeaseRight{Use: &first, Addrs: []netip.Addr{addr}, Leases: leases}}
		going := r
		going.Phase, going.UID, going.Revision, going.Writes, going.Asserted = protocol.Releasing, "u1", "7", 1, 3
		if err := a.st.Update(t.Context(), func(tx *store.Tx) error { return tx.PutRight(going) }); err != nil {
			t.Fatal(err)
		}
		// As holdClaim does.
		add := func(ctx context.Context, use protocol.Use) (protocol.Right, protocol.Result, error) {
			unlock, err := a.claims.Lock(ctx, a.sched, "c")
			if err != nil {
				t.Fatal(err)
			}
			defer unlock()
			r := r
			r.Use = &use
			return a.settleUse(ctx, r)
		}
		go func() { <-uses.waiting; time.Sleep(6 * time.Second); close(uses.goOn) }()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, res, err := add(ctx, first); err == nil {
			t.Fatalf("the first ADD: %v; want that it ends before its answer", res.Verdict)
		}
		_, res, err := add(t.Context(), second)
		if err != nil || res.Verdict != protocol.VerdictUsable {
			t.Fatalf("the second ADD: %v %v %v", res.Verdict, res.Why, err)
		}
		time.Sleep(time.Minute)
		uses.mu.Lock()
		defer uses.mu.Unlock()
		now, _ := a.right(r.Name)
		if uses.now.Use.Pod.UID != "p2" || now.Use.Pod.UID != "p2" {
			t.Errorf("the use names %v there and %v here; want the second pod, which has it", uses.now.Use.Pod, now.Use.Pod)
		}
	})
}

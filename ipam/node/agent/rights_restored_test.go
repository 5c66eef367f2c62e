package agent

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// subLeasesThatGo are sub-leases that are there until they are deleted.
type subLeasesThatGo struct {
	SubLeases
	deleted bool
}

func (s *subLeasesThatGo) DeleteSubLease(context.Context, protocol.Meta) (protocol.Outcome, error) {
	s.deleted = true
	return protocol.Done, nil
}

func (s *subLeasesThatGo) ReadSubLease(context.Context, string) (protocol.SubLease, protocol.Outcome, error) {
	return protocol.SubLease{}, protocol.NotFound, nil
}

// TestUseGoesBack: while a pool is closed after a restore a use and a request that nothing
// rests on go back, once they have been said anew. The pool may have been deleted by force
// and made again, and wait for a lease of the cluster's with what is granted for them: it
// would be closed for ever (I4).
func TestUseGoesBack(t *testing.T) {
	lease := protocol.LeaseName("lan", netip.MustParsePrefix("10.0.0.10/32"))
	use := protocol.Right{Kind: protocol.RightUse, Name: "c.0", SubLeaseRight: protocol.SubLeaseRight{Use: &protocol.Use{Claim: protocol.ClaimRef{UID: "c"}}, Leases: []string{lease}}}
	request := protocol.Right{Kind: protocol.RightRequest, Name: "r", SubLeaseRight: protocol.SubLeaseRight{Request: &protocol.Request{Wants: []protocol.Wanted{{Pool: "lan"}}}, Leases: []string{lease}}}
	for _, r := range []protocol.Right{use, request} {
		for said, kept := range map[int64]bool{2: true, 3: false} {
			a := newRestoredAgent(t)
			r.Phase, r.UID, r.Revision, r.Asserted, r.Term = protocol.Held, "u", "7", said, 2
			a.put(t, r)
			s := &subLeasesThatGo{}
			a.cl.SubLeases = carefulSubLeases{s, a.rights}
			_, _, _ = a.rights.settle(t.Context(), r, a.rights.beginWith(protocol.Event{Kind: protocol.EventLetGo}))
			if _, known := a.right(r.Name); known != kept || s.deleted == kept {
				t.Errorf("%s, said in term %d of 3: recorded %v, deleted %v; want it kept: %v", r.Name, said, known, s.deleted, kept)
			}
		}
	}
}

// TestUseOfEarlierHolder: after a restore the data name an earlier holder of a use that this node
// has by now. He gives it back. Until the pools are open again the use is not lost: its pod runs,
// and has its address by nobody's fault.
func TestUseOfEarlierHolder(t *testing.T) {
	const name = "c.0"
	of := &protocol.Use{Claim: protocol.ClaimRef{UID: "c"}}
	for _, open := range []bool{false, true} {
		a := newRestoredAgent(t)
		a.cfg.Fence = 15 * time.Minute
		r := protocol.Right{
			Kind: protocol.RightUse, Name: name, Phase: protocol.Held, UID: "ours", Revision: "38", Asserted: 2, Term: 2,
			SubLeaseRight: protocol.SubLeaseRight{Use: of, Leases: []string{protocol.LeaseName("lan", netip.MustParsePrefix("10.0.0.10/32"))}},
		}
		a.put(t, r)
		if open {
			a.reg.history.Restored = nil
		}
		earlier := protocol.SubLease{Meta: protocol.Meta{Name: name, UID: "his", Revision: "28"}, Protocol: protocol.Version, Node: "n0", Store: "his", Term: 1, Use: of}
		a.cl.SubLeases, a.cl.Events = carefulSubLeases{&someUses{there: map[string]protocol.SubLease{name: earlier}}, a.rights}, &warned{}
		a.rights.recheckIn(name, 0)
		a.rights.recheckDue(t.Context())
		now, _ := a.right(name)
		if lost := now.Phase == protocol.Lost; lost != open {
			t.Errorf("pools open: %v: the use is %s", open, now.Phase)
		}
		if !open && a.reg.putBack(t.Context(), 3) {
			t.Error("the node says that it has put back what it holds, before it has the use again")
		}
	}
}

// countedSubLeases counts what is written to a sub-lease.
type countedSubLeases struct {
	unanswered
	writes int
}

func (c *countedSubLeases) UpdateSubLease(ctx context.Context, old, next protocol.SubLease) (protocol.SubLease, protocol.Outcome, error) {
	c.writes++
	return c.unanswered.UpdateSubLease(ctx, old, next)
}

// TestSaidOnce: while a pool is closed after a restore a use of one of its claims, a request whose
// answer has gone, and a lease that had vanished, are said once, and not at every recheck: all
// nodes do so at once.
func TestSaidOnce(t *testing.T) {
	lease := leaseRight(Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}, netip.MustParsePrefix("10.0.0.10/32"))
	use := protocol.Right{Kind: protocol.RightUse, Name: "c.0", SubLeaseRight: protocol.SubLeaseRight{Use: &protocol.Use{Claim: protocol.ClaimRef{UID: "c"}}, Leases: []string{lease.Name}}, Term: 2}
	request := protocol.Right{
		Kind: protocol.RightRequest, Name: "r", SubLeaseRight: protocol.SubLeaseRight{Request: &protocol.Request{Wants: []protocol.Wanted{{Pool: "lan"}}}, Leases: []string{lease.Name}, Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.10")}}, Term: 2,
	}
	for _, tt := range []struct {
		name   string
		right  protocol.Right
		said   int64
		unseen bool
		open   bool
		going  bool // it is being deleted, and somebody's finalizer keeps it
		writes int  // in three rechecks
	}{
		{name: "a use", right: use, said: 2, writes: 1},
		{name: "a use that is said", right: use, said: 3},
		{name: "a use that is said, and the pools are open", right: use, said: 3, open: true, writes: 3},
		{name: "a use that is missing", right: use, said: 3, unseen: true, writes: 1},
		{name: "a request", right: request, said: 2, writes: 1},
		{name: "a request that is said", right: request, said: 3},
		{name: "a lease that had vanished", right: lease, said: 2, writes: 1},
		{name: "a lease that had vanished, and is said", right: lease, said: 3},
		{name: "a lease that had vanished, is said, and is being deleted", right: lease, said: 3, open: true, going: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newRestoredAgent(t)
			r := tt.right
			r.Phase, r.UID, r.Revision, r.Asserted, r.Deleting = protocol.Held, "u", "7", tt.said, tt.going
			a.put(t, r)
			a.reg.unseen = map[string]bool{r.Name: tt.unseen}
			if tt.open {
				a.reg.history.Restored = nil
			}
			subs := &countedSubLeases{unanswered: unanswered{sub: protocol.SubLease{Meta: protocol.Meta{Name: r.Name, UID: "u", Revision: "7"}, Node: "n1", Store: a.st.ID(), Term: tt.said, Use: r.Use, Request: r.Request}}}
			leases := &countedLeases{}
			a.cl.SubLeases, a.cl.Leases, a.cl.Pools, a.cl.Claims = carefulSubLeases{subs, a.rights}, carefulLeases{leases, a.rights}, carefulPools{nil, a.rights}, noClaims{}
			for range 3 {
				a.rights.recheckIn(r.Name, 0)
				a.rights.recheckDue(t.Context())
				if a.rights.schedule.planned(r.Name) == nil {
					t.Fatal("it is not rechecked")
				}
			}
			if n := subs.writes + leases.writes; n != tt.writes {
				t.Errorf("%d writes; want %d", n, tt.writes)
			}
		})
	}
}

// TestWaitsForAClosedPool: a lease that was put back, and whose pool waits for nodes no more but
// stays closed, is written no more either: until the pool opens nothing comes of it. It does not
// wait for a pool that waits for the lease.
func TestWaitsForAClosedPool(t *testing.T) {
	shut := Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}, Epoch: "w9", Bits4: 32}, Stopped: true}
	for name, tt := range map[string]struct {
		change  func(*Pool)
		absent  bool
		refused string
		going   bool  // the lease is being deleted, and somebody's finalizer keeps it
		term    int64 // in which the lease was confirmed last
		want    bool
	}{
		"closed":                {change: func(*Pool) {}, want: true},
		"open":                  {change: func(p *Pool) { p.Open = true }},
		"open, and edited":      {change: func(p *Pool) { p.Open, p.Edited = true, true }, want: true},
		"cannot be read":        {change: func(p *Pool) { p.Open = true }, refused: "no ranges", want: true},
		"a lease that goes":     {change: func(*Pool) {}, going: true},
		"confirmed before":      {change: func(*Pool) {}, term: 2},
		"being deleted":         {change: func(p *Pool) { p.Deleting = true }},
		"gone":                  {change: func(*Pool) {}, absent: true},
		"another of the name":   {change: func(p *Pool) { p.UID = "q" }},
		"blocks of other sizes": {change: func(p *Pool) { p.Bits4 = 31 }},
	} {
		a := newRestoredAgent(t)
		r := leaseRight(shut, netip.MustParsePrefix("10.0.0.10/32"))
		r.Phase, r.UID, r.Revision, r.Asserted, r.Term, r.Deleting = protocol.Held, "u", "7", 3, tt.term, tt.going
		a.put(t, r)
		now := shut
		tt.change(&now)
		p := a.pools.get("lan")
		p.set(&knownPool{Pool: now}, tt.absent)
		p.refuse(tt.refused)
		if got := a.pools.waitsForPool(r); got != tt.want {
			t.Errorf("%s: the lease waits for the pool: %v; want %v", name, got, tt.want)
		}
	}
}

// countedLeases counts what is written to a lease.
type countedLeases struct {
	Leases
	writes int
}

func (c *countedLeases) UpdateLease(_ context.Context, _, next protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	c.writes++
	next.Revision = "9"
	return next, protocol.Done, nil
}

func (*countedLeases) ReadLease(context.Context, string) (protocol.Lease, protocol.Outcome, error) {
	return protocol.Lease{}, protocol.Unknown, errNothing
}

// noClaims cannot be read.
type noClaims struct{ Claims }

func (noClaims) ReadClaim(context.Context, string, string) (protocol.Claim, protocol.Outcome, error) {
	return protocol.Claim{}, protocol.Unknown, errNothing
}

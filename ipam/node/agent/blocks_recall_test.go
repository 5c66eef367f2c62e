package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/leasestatus"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestRecallOfUnknownLease: a recall of a lease that the store has no record of has the
// node's own listed at once, so that a create which has come late goes back while somebody
// waits for its addresses. One of a lease that is on its way back has not.
func TestRecallOfUnknownLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newBubbleAgent(t)
		a.metrics, a.reg.listNow = newMetrics(state{a}), make(chan struct{}, 1)
		known := leaseRight(p.known.Pool, netip.MustParsePrefix("10.0.0.4/30"))
		known.Phase, known.UID = protocol.Releasing, "u"
		if err := a.st.Update(t.Context(), func(tx *store.Tx) error { return tx.PutRight(known) }); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			lease string
			lists int
		}{{known.Name, 0}, {protocol.LeaseName("lan", netip.MustParsePrefix("10.0.0.8/30")), 1}} {
			a.blocks.answerRecall(t.Context(), protocol.Recall{ID: "1", Lease: tt.lease}, false)
			if len(a.reg.listNow) != tt.lists {
				t.Errorf("recall of %s: %d lists are due; want %d", tt.lease, len(a.reg.listNow), tt.lists)
			}
		}
	})
}

// deafLeases takes publications of a lease, and until it hears no write of it, and answers
// nothing.
type deafLeases struct {
	Leases
	hears    bool
	now      protocol.Lease
	answered string
}

func (d *deafLeases) UpdateLease(_ context.Context, _, next protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	if !d.hears {
		return protocol.Lease{}, protocol.Unknown, errors.New("no answer")
	}
	d.now.Ceded, d.now.Writes, d.now.Revision = next.Ceded, next.Writes, d.now.Revision+"1"
	return d.now, protocol.Done, nil
}

func (d *deafLeases) ReadLease(context.Context, string) (protocol.Lease, protocol.Outcome, error) {
	if !d.hears {
		return protocol.Lease{}, protocol.Unknown, errors.New("no answer")
	}
	return d.now, protocol.Done, nil
}

func (d *deafLeases) PublishLease(_ context.Context, _ string, _ protocol.UID, p protocol.Publication) (protocol.Outcome, error) {
	d.answered = p.Answered
	return protocol.Done, nil
}

// TestRecallAnsweredBeforeItIsCeded: a recall is answered once the API server has heard
// of what is ceded, and not before.
func TestRecallAnsweredBeforeItIsCeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := &deafLeases{}
		a, p := newRegisteredAgent(t, leases, shutPools{})
		a.reg.registrar.Sent = a.sched.Now()
		a.rights.public = leasestatus.New(leasestatus.Config{Store: a.st, Leases: leases, Sched: a.sched, Every: time.Minute, Term: a.reg.term, Doubt: func(string) {}, Log: a.log})
		r := leaseRight(p.known.Pool, netip.MustParsePrefix("10.0.0.4/30"))
		r.Phase, r.UID, r.Revision, r.Asserted, r.Term, r.Writes = protocol.Held, "u1", "7", 3, 3, 1
		leases.now = protocol.Lease{Meta: protocol.Meta{Name: r.Name, UID: "u1", Revision: "7"}, Protocol: protocol.Version, Pool: "lan", PoolUID: r.PoolUID, Block: r.Block,
			Holder: protocol.Holder{Node: "n1"}, Store: a.st.ID(), Term: 3, Writes: 1}
		pool := Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}
		pool.Text.Ranges = []poolspec.RangeText{{CIDR: "10.0.0.0/27"}}
		err := a.st.Update(t.Context(), func(tx *store.Tx) error {
			text, err := json.Marshal(pool)
			return errors.Join(err, tx.PutPool("lan", text), tx.PutRight(r), allocator.NewSpace(tx.Table("lan"), p.known.shape).Open(r.Block))
		})
		if err != nil {
			t.Fatal(err)
		}
		rc := protocol.Recall{ID: "1.x.1", Lease: r.Name, Ranges: []string{"10.0.0.5-10.0.0.5"}}
		a.blocks.answerRecall(t.Context(), rc, false)
		if leases.answered != "" {
			t.Errorf("recall %s is answered, and no write of the lease has been", leases.answered)
		}
		leases.hears, rc.ID = true, "1.x.2"
		a.blocks.answerRecall(t.Context(), rc, false)
		if len(leases.now.Ceded) != 1 || leases.answered != rc.ID {
			t.Errorf("the lease says %v is ceded, and recall %q is answered; want both of the second recall", leases.now.Ceded, leases.answered)
		}
	})
}

// TestRecallOfWhatAnEditAdds: the controller recalls what an edit adds to a block of this node's
// before the node may give it, since a pod has it by another IPAM. It is ceded, though the pool as
// this node knows it does not have it: else it would pass for one that a pod of this node has, and
// be given here as soon as the edit is accepted (I1).
func TestRecallOfWhatAnEditAdds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := &deafLeases{hears: true}
		a, p := newRegisteredAgent(t, leases, shutPools{})
		a.reg.registrar.Sent = a.sched.Now()
		a.rights.public = leasestatus.New(leasestatus.Config{Store: a.st, Leases: leases, Sched: a.sched, Every: time.Minute, Term: a.reg.term, Doubt: func(string) {}, Log: a.log})
		r := leaseRight(p.known.Pool, netip.MustParsePrefix("10.0.0.4/30"))
		r.Phase, r.UID, r.Revision, r.Asserted, r.Term, r.Writes = protocol.Held, "u1", "7", 3, 3, 1
		leases.now = protocol.Lease{Meta: protocol.Meta{Name: r.Name, UID: "u1", Revision: "7"}, Protocol: protocol.Version, Pool: "lan", PoolUID: r.PoolUID, Block: r.Block,
			Holder: protocol.Holder{Node: "n1"}, Store: a.st.ID(), Term: 3, Writes: 1}
		pool := Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}
		pool.Text.Ranges = []poolspec.RangeText{{CIDR: "10.0.0.0/27", Exclude: []string{"10.0.0.6"}}}
		err := a.st.Update(t.Context(), func(tx *store.Tx) error {
			text, err := json.Marshal(pool)
			return errors.Join(err, tx.PutPool("lan", text), tx.PutRight(r), allocator.NewSpace(tx.Table("lan"), p.known.shape).Open(r.Block))
		})
		if err != nil {
			t.Fatal(err)
		}
		a.blocks.answerRecall(t.Context(), protocol.Recall{ID: "1.x.1", Lease: r.Name, Ranges: []string{"10.0.0.6-10.0.0.6"}}, false)
		if want := []netip.Addr{netip.MustParseAddr("10.0.0.6")}; !slices.Equal(leases.now.Ceded, want) || leases.answered != "1.x.1" {
			t.Errorf("the lease says %v is ceded, and recall %q is answered; want %v", leases.now.Ceded, leases.answered, want)
		}
	})
}

// TestNoLeaseBeforeTheRegistrationIsSeen: an agent that has just started serves no new lease until
// it has seen its registration. The API server may have gone back to when this node had given just
// this lease not yet back, and another node has given addresses of it since (I1).
func TestNoLeaseBeforeTheRegistrationIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newRegisteredAgent(t, &deafLeases{}, shutPools{})
		a.reg.registrar.Seen.UID = "" // as after a start
		r := leaseRight(p.known.Pool, netip.MustParsePrefix("10.0.0.4/30"))
		pool := p.known.Pool.Pool
		pool.Open, pool.Edited, pool.Bits4 = true, false, 30
		pool.Ranges = []netipx.IPRange{netipx.MustParseIPRange("10.0.0.0-10.0.0.31")}
		if out, err := a.rights.confirmLease(r, pool, protocol.Done); out != protocol.Unknown || !errors.Is(err, errEarly) {
			t.Errorf("before the registration is seen: %v, %v; want that nothing is concluded", out, err)
		}
		a.reg.registrar.Seen.UID = "r"
		if out, err := a.rights.confirmLease(r, pool, protocol.Done); out != protocol.Done {
			t.Errorf("afterwards: %v, %v; want that the lease serves", out, err)
		}
	})
}

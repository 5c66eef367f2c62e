package agent

import (
	"context"
	"testing"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// fullLeases has a lease of another's for every block, and none of this node's. It
// counts reads.
type fullLeases struct {
	Leases
	out   protocol.Outcome // of creates
	reads int
}

func (f *fullLeases) CreateLease(context.Context, protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	return protocol.Lease{}, f.out, errNothing
}

func (f *fullLeases) ReadLease(_ context.Context, name string) (protocol.Lease, protocol.Outcome, error) {
	f.reads++
	pool, block, err := protocol.ParseLeaseName(name)
	return protocol.Lease{Meta: protocol.Meta{Name: name, UID: "u", Revision: "1"}, Pool: pool, Block: block, Holder: protocol.Holder{Node: "n2"}}, protocol.Done, err
}

func (f *fullLeases) NodeLeases(context.Context, protocol.NodeName) ([]protocol.Lease, protocol.Revision, error) {
	return nil, "1", nil
}

// noSubLeases is an API server without sub-leases.
type noSubLeases struct{ SubLeases }

func (noSubLeases) NodeSubLeases(context.Context, protocol.NodeName) ([]protocol.SubLease, protocol.Revision, error) {
	return nil, "1", nil
}

// TestMetLeaseIsNotRead: a lease that a new create has met is another's, and need not be
// read, once the node's own have been listed, and no create is in doubt (H13).
func TestMetLeaseIsNotRead(t *testing.T) {
	leases := &fullLeases{out: protocol.Exists}
	a, p := newSeatedAgent(t, leases, shutPools{})
	a.cl.SubLeases = noSubLeases{}
	meet := func(when string, reads int) {
		t.Helper()
		leases.reads = 0
		block, ok, err := a.candidate(p, p.known, need{family: allocator.IPv4}, nil)
		if err != nil || !ok {
			t.Fatalf("no candidate: %v", err)
		}
		p.demand.unclaim(block)
		_, res, err := a.drive(t.Context(), leaseRight(p.known.Pool, block), protocol.Event{Kind: protocol.EventWant})
		if err != nil || res.Verdict != protocol.VerdictTaken || leases.reads != reads {
			t.Errorf("%s: %v, %v after %d reads; want %v after %d", when, res.Verdict, err, leases.reads, protocol.VerdictTaken, reads)
		}
	}
	list := func() {
		t.Helper()
		if err := a.compareOwn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	meet("before its own are listed", 1)
	list()
	meet("after that", 0)
	leases.out = protocol.Unknown
	if _, _, err := a.drive(t.Context(), leaseRight(p.known.Pool, p.known.shape.Block(p.known.shape.Spread(allocator.IPv4, 0), 30)), protocol.Event{Kind: protocol.EventWant}); err == nil {
		t.Fatal("a create without an answer came to an end")
	}
	leases.out = protocol.Exists
	meet("after a create without an answer", 1)
	list()
	meet("while that may still come", 1)
}

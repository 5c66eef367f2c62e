package agent

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// newPerNodeAgent is newBubbleAgent with a pool that gives each node a subnet of four addresses.
func newPerNodeAgent(t *testing.T, pins ...poolspec.Pin) (*Agent, *pool) {
	t.Helper()
	a, p := newBubbleAgent(t)
	of := p.known.Pool
	of.Text = poolspec.PoolText{Ranges: []poolspec.RangeText{{CIDR: "10.0.0.0/28"}}, PerNode: &poolspec.PerNodeText{PrefixLength: 30, Pinned: pins}}
	known, err := knownAs(of, "")
	if err != nil {
		t.Fatal(err)
	}
	p.set(known, false)
	return a, p
}

// putLease records a lease of a block as it is in a phase.
func putLease(t *testing.T, a *Agent, p *pool, block string, phase protocol.Phase) protocol.Right {
	t.Helper()
	r := leaseRight(p.known.Pool, netip.MustParsePrefix(block))
	r.Phase = phase
	if err := a.st.Update(t.Context(), func(tx *store.Tx) error { return tx.PutRight(r) }); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSubnetThatStays: a node keeps its subnet, but not one that the pool does not have any more,
// or has pinned to another node; and not while it has another one pinned.
func TestSubnetThatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			block string
			pins  []poolspec.Pin
			stays bool
		}{
			{"10.0.0.4/30", nil, true},
			{"10.0.0.4/30", []poolspec.Pin{{Node: "n1", CIDR: "10.0.0.4/30"}, {Node: "n2", CIDR: "10.0.0.8/30"}}, true},
			{"10.0.0.4/30", []poolspec.Pin{{Node: "n1", CIDR: "10.0.0.8/30"}}, false},
			{"10.0.0.4/30", []poolspec.Pin{{Node: "n2", CIDR: "10.0.0.4/30"}}, false},
			{"10.9.0.4/30", nil, false},
		} {
			a, p := newPerNodeAgent(t, tt.pins...)
			if got := a.pools.staysHere(leaseRight(p.known.Pool, netip.MustParsePrefix(tt.block))); got != tt.stays {
				t.Errorf("%s with %v stays: %v; want %v", tt.block, tt.pins, got, tt.stays)
			}
		}
	})
}

// TestOneSubnet: a node leases a subnet if it has none of which it can give addresses.
func TestOneSubnet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			name, has string
			phase     protocol.Phase
			leases    bool
		}{
			{"its own", "10.0.0.4/30", protocol.Held, false},
			{"one whose create is in doubt", "10.0.0.4/30", protocol.Noted, false},
			{"one that was taken away", "10.0.0.4/30", protocol.Lost, true},
			{"one of a store that was lost", "10.0.0.4/30", protocol.Frozen, true},
			{"one that the ranges had before", "10.9.0.4/30", protocol.Held, true},
		} {
			a, p := newPerNodeAgent(t)
			putLease(t, a, p, tt.has, tt.phase)
			block, ok, _, err := a.blocks.candidate(p, p.known, addressDemand{family: allocator.IPv4}, nil)
			if err != nil || ok != tt.leases || block.String() == tt.has {
				t.Errorf("%s: leases %v: %v, %v; want %v", tt.name, block, ok, err, tt.leases)
			}
		}
	})
}

// TestNamedSubnet: an ADD that asks for an address by name leases no second subnet while another
// ADD leases the node's first.
func TestNamedSubnet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newPerNodeAgent(t)
		first, ok, _, err := a.blocks.candidate(p, p.known, addressDemand{family: allocator.IPv4}, nil)
		if err != nil || !ok {
			t.Fatalf("no subnet: %v", err)
		}
		named := addressDemand{family: allocator.IPv4, exact: netip.MustParseAddr("10.0.0.9")}
		if first.Contains(named.exact) {
			named.exact = netip.MustParseAddr("10.0.0.5")
		}
		ended := make(chan error)
		go func() {
			_, err := a.blocks.obtainExact(t.Context(), p, named)
			ended <- err
		}()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("it did not wait: %v", err)
		default:
		}
		putLease(t, a, p, first.String(), protocol.Held)
		p.demands.unclaim(first)
		a.blocks.land(&p.demands, addressDemand{family: allocator.IPv4}, nil)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		_, err = a.blocks.obtainExact(t.Context(), p, named)
		if wrong, ok := errors.AsType[*assign.UnassignableError](err); !ok || !strings.Contains(wrong.Error(), "this node's subnet is "+first.String()) {
			t.Errorf("then: %v", err)
		}
		rights, err := a.rightsThat(func(protocol.Right) bool { return true })
		if err != nil || len(rights) != 1 || rights[0].Block != first {
			t.Errorf("the node has %v, %v; want %v alone", rights, err, first)
		}
	})
}

package agent

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
// or has pinned to another node; and not while it has another one pinned. Of two it keeps the one
// on which something rests.
func TestSubnetThatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			blocks, used []string
			pins         []poolspec.Pin
			goes         []string
		}{
			{blocks: []string{"10.0.0.4/30"}},
			{blocks: []string{"10.0.0.4/30"}, pins: []poolspec.Pin{{Node: "n1", CIDR: "10.0.0.4/30"}, {Node: "n2", CIDR: "10.0.0.8/30"}}},
			{blocks: []string{"10.0.0.4/30"}, pins: []poolspec.Pin{{Node: "n1", CIDR: "10.0.0.8/30"}}, goes: []string{"10.0.0.4/30"}},
			{blocks: []string{"10.0.0.4/30"}, pins: []poolspec.Pin{{Node: "n2", CIDR: "10.0.0.4/30"}}, goes: []string{"10.0.0.4/30"}},
			{blocks: []string{"10.9.0.4/30"}, goes: []string{"10.9.0.4/30"}},
			{blocks: []string{"10.0.0.4/30", "10.0.0.8/30"}, goes: []string{"10.0.0.8/30"}},
			{blocks: []string{"10.0.0.4/30", "10.0.0.8/30"}, used: []string{"10.0.0.9", "10.0.0.10"}, goes: []string{"10.0.0.4/30"}},
			{blocks: []string{"10.0.0.4/30", "10.0.0.8/30"}, used: []string{"10.0.0.5", "10.0.0.9"}},
		} {
			a, p := newPerNodeAgent(t, tt.pins...)
			a.cfg.Idle, a.reg.registrar.Term = time.Minute, 3
			var rights []protocol.Right
			for _, block := range tt.blocks {
				r := putLease(t, a, p, block, protocol.Held)
				r.Term = 3
				rights = append(rights, r)
			}
			takeIn(t, a, p, tt.blocks, tt.used)
			a.blocks.idleRights(rights)
			time.Sleep(2 * time.Minute)
			var goes []string
			for _, r := range a.blocks.idleRights(rights) {
				goes = append(goes, r.Block.String())
			}
			if !slices.Equal(goes, tt.goes) {
				t.Errorf("of %v with pins %v, where %v are used, %v go back; want %v", tt.blocks, tt.pins, tt.used, goes, tt.goes)
			}
		}
	})
}

// takeIn opens blocks of the pool, and takes addresses of them.
func takeIn(t *testing.T, a *Agent, p *pool, blocks, used []string) {
	t.Helper()
	err := a.st.Update(t.Context(), func(tx *store.Tx) (err error) {
		space := allocator.NewSpace(tx.Table(p.name), p.known.shape)
		for _, block := range blocks {
			err = errors.Join(err, space.Open(netip.MustParsePrefix(block)))
		}
		for _, x := range used {
			err = errors.Join(err, space.Take(netip.MustParseAddr(x)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
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
			block, ok, _, err := a.blocks.candidate(p, p.known, assign.Slot{Family: allocator.IPv4}, nil)
			if err != nil || ok != tt.leases || block.String() == tt.has {
				t.Errorf("%s: leases %v: %v, %v; want %v", tt.name, block, ok, err, tt.leases)
			}
		}
	})
}

// TestTakesBackOne: a node takes no subnet back that it gives back while it has another, or may
// have got one.
func TestTakesBackOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			name, other string
			phase       protocol.Phase
			want        string
		}{
			{"it has no other", "", protocol.Held, "10.0.0.4/30"},
			{"it has another", "10.0.0.8/30", protocol.Held, "invalid Prefix"},
			{"the create of another is in doubt", "10.0.0.8/30", protocol.Noted, "10.0.0.8/30"},
			{"another was taken away", "10.0.0.8/30", protocol.Lost, "10.0.0.4/30"},
			{"another is one that the ranges had before", "10.9.0.4/30", protocol.Held, "10.0.0.4/30"},
			{"it gives back another, too", "10.0.0.8/30", protocol.Releasing, "10.0.0.4/30"},
		} {
			a, p := newPerNodeAgent(t)
			putLease(t, a, p, "10.0.0.4/30", protocol.Releasing)
			if tt.other != "" {
				putLease(t, a, p, tt.other, tt.phase)
			}
			if block, err := a.blocks.unsettled(p, p.known, assign.Slot{Family: allocator.IPv4}); err != nil || block.String() != tt.want {
				t.Errorf("%s: it tries %v, %v; want %s", tt.name, block, err, tt.want)
			}
		}
	})
}

// TestTakesBackNoneBesideAnAcquire: nor while an ADD that asks for an address by name is at another
// subnet, or where it has got that since the first was chosen.
func TestTakesBackNoneBesideAnAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newPerNodeAgent(t)
		leaving, other := netip.MustParsePrefix("10.0.0.4/30"), netip.MustParsePrefix("10.0.0.8/30")
		putLease(t, a, p, leaving.String(), protocol.Releasing)
		release := p.acquires.claimAlone(other)
		if block, err := a.blocks.unsettled(p, p.known, assign.Slot{Family: allocator.IPv4}); err != nil || block.IsValid() {
			t.Errorf("meanwhile it tries %v, %v; want none", block, err)
		}
		putLease(t, a, p, other.String(), protocol.Held)
		release()
		if ok, err := a.blocks.claimOwn(p, p.known, leaving); ok || err != nil || !p.acquires.claim(leaving) {
			t.Errorf("then it claims %v: %v, %v; want that it does not", leaving, ok, err)
		}
	})
}

// TestTakesBackNoneForOthers: nor one that another node waits for, nor any while one is pinned to
// this node.
func TestTakesBackNoneForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, pin := range []poolspec.Pin{{Node: "n2", CIDR: "10.0.0.4/30"}, {Node: "n1", CIDR: "10.0.0.8/30"}} {
			a, p := newPerNodeAgent(t, pin)
			putLease(t, a, p, "10.0.0.4/30", protocol.Releasing)
			if block, err := a.blocks.unsettled(p, p.known, assign.Slot{Family: allocator.IPv4}); err != nil || block.IsValid() {
				t.Errorf("with %s pinned to %s it takes back %v, %v; want none", pin.CIDR, pin.Node, block, err)
			}
			want := "10.0.0.4/30 of pool lan is still being given back by node n1"
			if why := a.blocks.noBlock(t.Context(), p, p.known, assign.Slot{Family: allocator.IPv4}).Error(); !strings.Contains(why, want) {
				t.Errorf("it says %q; want %q", why, want)
			}
		}
	})
}

// TestNamedWhileASubnetGoes: an ADD that asks for an address by name waits while the node gives
// another subnet back, and gets none of that one while one is pinned to the node.
func TestNamedWhileASubnetGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newPerNodeAgent(t, poolspec.Pin{Node: "n1", CIDR: "10.0.0.8/30"})
		putLease(t, a, p, "10.0.0.4/30", protocol.Releasing)
		if err := a.blocks.notThisNodes(p.known, netip.MustParseAddr("10.0.0.5"), netip.MustParsePrefix("10.0.0.4/30")); !is[*assign.UnassignableError](err) {
			t.Errorf("in the one that goes: %v; want that it cannot be", err)
		}
		if err := a.blocks.notThisNodes(p.known, netip.MustParseAddr("10.0.0.9"), netip.MustParsePrefix("10.0.0.8/30")); !is[*notReadyError](err) {
			t.Errorf("in the pinned one: %v; want that it waits", err)
		}
	})
}

// TestForgottenSubnet: a subnet whose record has gone since it was chosen is not begun anew: the
// node may have another by then.
func TestForgottenSubnet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newPerNodeAgent(t)
		chosen := netip.MustParsePrefix("10.0.0.4/30")
		putLease(t, a, p, "10.0.0.8/30", protocol.Held)
		if ok, err := a.blocks.claimOwn(p, p.known, chosen); ok || err != nil || !p.acquires.claim(chosen) {
			t.Errorf("it claims %v: %v, %v; want that it does not", chosen, ok, err)
		}
	})
}

// TestNamedSubnetOfAnADDThatEnds: an ADD that asks for an address by name, and ends while the disk
// is slow, goes on to have its subnet: no other acquire leases another one meanwhile.
func TestNamedSubnetOfAnADDThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newPerNodeAgent(t)
		st, hang := newHangingStore(t)
		if err := st.Update(t.Context(), func(tx *store.Tx) error { return tx.PutIdentity(store.Identity{Node: "n1", Term: 3}) }); err != nil {
			t.Fatal(err)
		}
		a.st = st
		goOn := hang(func(tx *store.Tx) error { return tx.PutIdentity(store.Identity{Node: "n1", Term: 3, Machine: "m"}) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.blocks.obtainExact(ctx, p, assign.Slot{Family: allocator.IPv4, Exact: netip.MustParseAddr("10.0.0.9")}); err == nil {
			t.Error("the ADD has the subnet although the disk hangs")
		}
		if block, ok, trying, err := a.blocks.candidate(p, p.known, assign.Slot{Family: allocator.IPv4}, nil); ok || !trying || err != nil {
			t.Errorf("another acquire tries %v (%v), waits %v, %v; want that it waits", block, ok, trying, err)
		}
		goOn()
		synctest.Wait()
		if len(p.acquires.trying) > 0 {
			t.Errorf("it is at %v still", p.acquires.trying)
		}
	})
}

// TestNamedSubnet: an ADD that asks for an address by name leases no second subnet while another
// ADD leases the node's first.
func TestNamedSubnet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newPerNodeAgent(t)
		first, ok, _, err := a.blocks.candidate(p, p.known, assign.Slot{Family: allocator.IPv4}, nil)
		if err != nil || !ok {
			t.Fatalf("no subnet: %v", err)
		}
		named := assign.Slot{Family: allocator.IPv4, Exact: netip.MustParseAddr("10.0.0.9")}
		if first.Contains(named.Exact) {
			named.Exact = netip.MustParseAddr("10.0.0.5")
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
		p.acquires.unclaim(first)
		a.blocks.land(&p.acquires, assign.Slot{Family: allocator.IPv4}, nil)
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

// TestAsksNobody: a node asks the cluster for no address of a pool that gives each node a subnet,
// also not for one by name: it lies in another node's subnet.
func TestAsksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newPerNodeAgent(t)
		for _, exact := range []netip.Addr{{}, netip.MustParseAddr("10.0.0.9")} {
			add := &addCall{}
			add.demand.Slots = []assign.Slot{{Pool: p.name, Family: allocator.IPv4, Exact: exact}}
			held := &HeldError{Addr: exact, Pool: p.name, Holder: protocol.Holder{Node: "n2"}}
			if _, err := a.holdRequested(t.Context(), add, held); !is[*waitingError](err) || err.Error() != held.Error() {
				t.Errorf("for %v: %v; want %v", exact, err, held)
			}
		}
	})
}

// TestSubnetBesideOneThatGoes: a subnet that is being given back does not hide the one that the
// node has: an address of the first is not this node's.
func TestSubnetBesideOneThatGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for phase, want := range map[protocol.Phase]string{protocol.Held: "10.0.0.4/30", protocol.Lost: "10.0.0.0/30"} {
			a, p := newPerNodeAgent(t)
			putLease(t, a, p, "10.0.0.0/30", protocol.Releasing)
			putLease(t, a, p, "10.0.0.4/30", phase)
			if own, err := a.blocks.ownLease(p.known); err != nil || own.Block.String() != want {
				t.Errorf("beside one that goes, and with one that is %s, the node's own is %v, %v; want %s", phase, own.Block, err, want)
			}
		}
	})
}

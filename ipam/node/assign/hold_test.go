package assign

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

func TestHoldRecordsWhatItAnswers(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/29", "fd00::/125")
	a := demand("c1", p.any(allocator.IPv4), p.any(allocator.IPv6))
	got := mustHold(t, st, a)
	want := store.Attachment{
		Key: a.Key, Pod: a.Pod, Netns: a.Netns, NetnsID: a.NetnsID, Boot: "boot", Created: start, Generation: got.Generation,
		Addresses: []store.Address{
			{Addr: netip.MustParseAddr("10.0.0.2"), Bits: 29, Gateway: netip.MustParseAddr("10.0.0.1"), Pool: "p"},
			{Addr: netip.MustParseAddr("fd00::2"), Bits: 125, Gateway: netip.MustParseAddr("fd00::1"), Pool: "p"},
		},
	}
	if d := cmp.Diff(want, got, cmpAddrs); d != "" {
		t.Errorf("answer (-want +got):\n%s", d)
	}
	update(t, st, func(tx *store.Tx) error {
		kept, ok, err := tx.Attachment(a.Key)
		if !ok || err != nil {
			t.Errorf("recorded: %v, %v", ok, err)
		}
		if d := cmp.Diff(got, kept, cmpAddrs); d != "" {
			t.Errorf("record (-answer +record):\n%s", d)
		}
		return nil
	})
}

func TestSlotAnswerDecidesBitsAndGateway(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/24")
	s := p.any(allocator.IPv4)
	s.Answer = func(a netip.Addr, in allocator.Range) (int, netip.Addr) {
		if in.Prefix != netip.MustParsePrefix("10.0.0.0/24") || a != netip.MustParseAddr("10.0.0.2") {
			t.Errorf("asked for %v in %v", a, in.Prefix)
		}
		return 16, netip.MustParseAddr("10.0.255.254")
	}
	got := mustHold(t, st, demand("c1", s)).Addresses[0]
	if got.Bits != 16 || got.Gateway != netip.MustParseAddr("10.0.255.254") {
		t.Errorf("got /%d via %v; want /16 via 10.0.255.254", got.Bits, got.Gateway)
	}
}

func TestLeaseNames(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/28")
	s := p.any(allocator.IPv4)
	s.BlockBits = 28
	a := demand("c1", s)
	const lease = "p.0a000000.28"
	a.Leasing = &Leasing{Term: 1, Open: true}
	putLease(t, st, lease, protocol.Held)
	if got := leaseOf(t, st, a); got != lease {
		t.Errorf("lease %q; want %q", got, lease)
	}
}

// TestUndecidedBlocks: while the size of a pool's blocks is not decided, nobody can say of
// which lease a free address is, and whether that serves: none is given.
func TestUndecidedBlocks(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/28")
	for name, slot := range map[string]Slot{"ordinary": p.any(allocator.IPv4), "by name": p.exact("10.0.0.5")} {
		a := demand("c1", slot)
		a.Leasing = &Leasing{Term: 1, Open: true}
		if _, err := hold(st, a); !is[*NoRoomError](err) {
			t.Errorf("%s: %v; want NoRoomError", name, err)
		}
	}
}

// putLease records a lease of that name, written in term 1.
func putLease(t *testing.T, st *store.Store, name string, phase protocol.Phase) {
	t.Helper()
	pool, block, err := protocol.ParseLeaseName(name)
	if err != nil {
		t.Fatal(err)
	}
	update(t, st, func(tx *store.Tx) error {
		return tx.PutRight(protocol.Right{
			Kind: protocol.RightLease, Name: name, Phase: phase, Asserted: 1, Term: 1, LeaseRight: protocol.LeaseRight{Pool: pool, PoolUID: "u", Block: block},
		})
	})
}

// leaseOf holds without committing.
func leaseOf(t *testing.T, st *store.Store, a Demand) (lease string) {
	t.Helper()
	stop := errors.New("stop")
	err := st.Update(context.Background(), func(tx *store.Tx) error {
		got, err := Hold(tx, a)
		if err != nil {
			return err
		}
		lease = got.Addresses[0].Lease
		return stop
	})
	if !errors.Is(err, stop) {
		t.Fatal(err)
	}
	return lease
}

func TestServesDecidesPerLease(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/29", "10.0.1.0/29", "10.0.2.0/29")
	s := p.any(allocator.IPv4)
	s.BlockBits = 29
	a := demand("c1", s)
	a.Leasing = &Leasing{Term: 1, Open: true}
	putLease(t, st, "p.0a000200.29", protocol.Held)
	if got := leaseOf(t, st, a); got != "p.0a000200.29" {
		t.Errorf("lease %q; want the one that serves", got)
	}
	for name, slot := range map[string]Slot{"ordinary": s, "by name": {Pool: p.name, Shape: p.shape, Exact: netip.MustParseAddr("10.0.0.5"), BlockBits: 29}} {
		a.Slots = []Slot{slot}
		for why, leasing := range map[string]*Leasing{
			"nothing new is given": {Term: 1}, "of an earlier term": {Term: 2, Open: true}, "about to be ceded": {Term: 1, Open: true, Ceding: map[string]bool{"p.0a000200.29": true}},
		} {
			a.Leasing = leasing
			if _, err := hold(st, a); !is[*NoRoomError](err) {
				t.Errorf("%s, %s: %v; want NoRoomError", name, why, err)
			}
		}
	}
}

// TestExact (C9).
func TestExact(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/29")
	if got := addrs(mustHold(t, st, demand("c1", p.exact("10.0.0.5")))); got != "10.0.0.5/29" {
		t.Errorf("got %s; want 10.0.0.5/29", got)
	}
	narrow := p.exact("10.0.0.4")
	narrow.View = viewOf(t, "10.0.0.2-10.0.0.3")
	for _, tt := range []struct {
		name  string
		slots []Slot
		want  string // the type of error, and a part of its text
	}{
		{"taken", []Slot{p.exact("10.0.0.5")}, "*assign.TakenError: address 10.0.0.5 of pool p is held by pod ns/pod-c1, interface net1"},
		{"outside", []Slot{p.exact("10.0.1.5")}, "*assign.UnassignableError: lies in none"},
		{"network address", []Slot{p.exact("10.0.0.0")}, "*assign.UnassignableError: network address"},
		{"broadcast address", []Slot{p.exact("10.0.0.7")}, "*assign.UnassignableError: broadcast address"},
		{"gateway", []Slot{p.exact("10.0.0.1")}, "*assign.UnassignableError: is a gateway"},
		{"outside the view", []Slot{narrow}, "*assign.UnassignableError: outside what this network may take"},
		{"twice", []Slot{p.exact("10.0.0.4"), p.exact("10.0.0.4")}, "*assign.UnassignableError: asked for twice"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := hold(st, demand("c2", tt.slots...))
			kind, text, _ := strings.Cut(tt.want, ": ")
			if got := fmt.Sprintf("%T", unwrapped(err)); got != kind || !strings.Contains(err.Error(), text) {
				t.Errorf("got %s %v; want %s with %q", got, err, kind, text)
			}
		})
	}
}

// unwrapped returns the error of this package inside err.
func unwrapped(err error) error {
	for _, target := range []error{
		find1[*TakenError](err), find1[*UnassignableError](err), find1[*NoRoomError](err), find1[*ConflictError](err), find1[*CheckError](err),
	} {
		if target != nil {
			return target
		}
	}
	return err
}

func find1[E error](err error) error {
	if e, ok := errors.AsType[E](err); ok {
		return e
	}
	return nil
}

// TestExactOutsideOpenBlocks (C9).
func TestExactOutsideOpenBlocks(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/29")
	update(t, st, func(tx *store.Tx) error {
		ceded, block := netip.MustParseAddr("10.0.0.4"), netip.MustParsePrefix("10.0.0.0/29")
		lease := protocol.Right{
			Kind: protocol.RightLease, Name: protocol.LeaseName("p", block), Phase: protocol.Held, LeaseRight: protocol.LeaseRight{Pool: "p", Block: block, Ceded: []netip.Addr{ceded}},
		}
		return errors.Join(tx.PutRight(lease), allocator.NewSpace(tx.Table("p"), p.shape).Bar(ceded, true))
	})
	if _, err := hold(st, demand("c1", p.exact("10.0.0.4"))); !is[*NoRoomError](err) {
		t.Errorf("ceded: %v; want NoRoomError", err)
	}
	wide := p
	wide.shape = shapeOf(t, "10.0.0.0/28")
	if _, err := hold(st, demand("c1", wide.exact("10.0.0.12"))); !is[*NoRoomError](err) {
		t.Errorf("no block: %v; want NoRoomError", err)
	}
}

// TestAllOrNothing: the second slot cannot be had, so nothing is taken, even
// though the caller goes on with the transaction.
func TestAllOrNothing(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/29")
	q := pool{"q", shapeOf(t, "fd00::/120")} // no block is open
	update(t, st, func(tx *store.Tx) error {
		_, err := Hold(tx, demand("c1", p.any(allocator.IPv4), q.any(allocator.IPv6)))
		e, ok := errors.AsType[*NoRoomError](err)
		if !ok || e.Slot.Pool != "q" || e.Slot.Family != allocator.IPv6 {
			t.Errorf("got %v; want NoRoomError of q's slot", err)
		}
		return nil
	})
	update(t, st, func(tx *store.Tx) error {
		c, err := allocator.NewSpace(tx.Table("p"), p.shape).Counts(allocator.IPv4)
		if c.Taken != 0 {
			t.Errorf("%d addresses are taken; want 0", c.Taken)
		}
		return err
	})
}

func TestSeveralSlotsAndInterfacesOfOnePool(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/29")
	first := mustHold(t, st, demand("c1", p.any(allocator.IPv4), p.exact("10.0.0.3"), p.any(allocator.IPv4)))
	if got := addrs(first); got != "10.0.0.2/29 10.0.0.3/29 10.0.0.4/29" {
		t.Errorf("one interface: %s; want .2, .3 and .4", got)
	}
	second := demand("c1", p.any(allocator.IPv4))
	second.Key.IfName = "net2"
	if got := addrs(mustHold(t, st, second)); got != "10.0.0.5/29" {
		t.Errorf("another interface of the pod: %s; want .5", got)
	}
}

// TestRepeatedADD (C10).
func TestRepeatedADD(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/29")
	a := demand("c1", p.any(allocator.IPv4))
	first := mustHold(t, st, a)
	if again := mustHold(t, st, a); !cmp.Equal(again, first, cmpAddrs) {
		t.Errorf("the same ADD: %+v; want %+v", again, first)
	}

	moved := a
	moved.Netns, moved.NetnsID = "/run/netns/other", "4:99"
	again := mustHold(t, st, moved)
	if addrs(again) != addrs(first) || again.Netns != moved.Netns || again.Generation <= first.Generation {
		t.Errorf("in another namespace: %+v; want the same address, the new namespace, a later generation", again)
	}

	edited := a
	edited.Slots = []Slot{pool{"other", shapeOf(t, "10.9.0.0/24")}.any(allocator.IPv4)}
	if got := addrs(mustHold(t, st, edited)); got != addrs(first) {
		t.Errorf("with an edited network: %s; want %s", got, addrs(first))
	}

	other := a
	other.Slots = []Slot{p.exact("10.0.0.6")}
	if _, err := hold(st, other); !is[*ConflictError](err) {
		t.Errorf("asking for another address by name: %v; want ConflictError", err)
	}
	same := a
	same.Slots = []Slot{p.exact(first.Addresses[0].Addr.String())}
	if got := addrs(mustHold(t, st, same)); got != addrs(first) {
		t.Errorf("asking for its own address by name: %s; want %s", got, addrs(first))
	}
}

// TestAnotherPodUnderTheSameKey (C10).
func TestAnotherPodUnderTheSameKey(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/30") // one address
	first := mustHold(t, st, demand("c1", p.any(allocator.IPv4)))
	b := demand("c1", p.any(allocator.IPv4))
	b.Pod = protocol.PodRef{Namespace: "ns", Name: "b", UID: "uid-b"}
	if _, err := hold(st, b); !is[*ConflictError](err) {
		t.Errorf("while the first is there: %v; want ConflictError", err)
	}
	b.Gone = goneNS(first.Netns)
	got := mustHold(t, st, b)
	if addrs(got) != addrs(first) || got.Pod.UID != "uid-b" || got.Generation <= first.Generation {
		t.Errorf("after the first has gone: %+v; want its address, for pod b", got)
	}
}

// TestDeviceOfALaterPod: a ResourceClaim's device has its address again for a later pod, and is
// another generation: what was garbage of the earlier pod is not freed under the later one.
func TestDeviceOfALaterPod(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/29")
	a := demand("claim-uid", p.any(allocator.IPv4))
	a.Netns, a.NetnsID = store.ResourceClaimNetns("nic"), ""
	first := mustHold(t, st, a)
	if again := mustHold(t, st, a); again.Generation != first.Generation {
		t.Errorf("the same pod: generation %d, and was %d", again.Generation, first.Generation)
	}
	a.Pod.Name, a.Pod.UID = "later", "later"
	next := mustHold(t, st, a)
	if next.Pod != a.Pod || next.Addresses[0] != first.Addresses[0] || next.Generation == first.Generation {
		t.Errorf("got %+v; want the addresses of %+v, in another generation", next, first)
	}
}

// TestNewSandbox: a new container ID of the same pod and interface.
func TestNewSandbox(t *testing.T) {
	anew := func(old Demand) Demand {
		b := old
		b.Key.ContainerID, b.Netns, b.NetnsID = "c2", "/run/netns/c2", "4:c2"
		return b
	}
	t.Run("old namespace gone, pool full", func(t *testing.T) {
		st := openStore(t)
		p := openPool(t, st, "p", "10.0.0.0/30")
		a := demand("c1", p.any(allocator.IPv4))
		old := mustHold(t, st, a)
		b := anew(a)
		b.Gone = goneNS(old.Netns)
		got := mustHold(t, st, b)
		if addrs(got) != addrs(old) || got.Generation <= old.Generation {
			t.Errorf("got %+v; want %s in a later generation", got, addrs(old))
		}
		if release(t, st, old.Key) {
			t.Error("the late DEL of the old container frees something; want nothing")
		}
		c := demand("c3", p.any(allocator.IPv4))
		if _, err := hold(st, c); !is[*NoRoomError](err) {
			t.Errorf("a third pod after the late DEL: %v; want NoRoomError", err)
		}
	})
	t.Run("old namespace alive", func(t *testing.T) {
		st := openStore(t)
		p := openPool(t, st, "p", "10.0.0.0/29")
		a := demand("c1", p.any(allocator.IPv4))
		old := mustHold(t, st, a)
		got := mustHold(t, st, anew(a))
		if addrs(got) == addrs(old) {
			t.Errorf("got %s; want another address", addrs(got))
		}
		if !release(t, st, old.Key) || !release(t, st, got.Key) {
			t.Error("both attachments are to be there until their DELs")
		}
	})
	for name, change := range map[string]func(*Demand){
		"no pod UID":        func(b *Demand) { b.Pod.UID = "" },
		"another pod":       func(b *Demand) { b.Pod.UID = "uid-x" },
		"another interface": func(b *Demand) { b.Key.IfName = "net2" },
		"another network":   func(b *Demand) { b.Key.Network = "net-b" },
	} {
		t.Run(name, func(t *testing.T) {
			st := openStore(t)
			p := openPool(t, st, "p", "10.0.0.0/29")
			a := demand("c1", p.any(allocator.IPv4))
			if name == "no pod UID" {
				a.Pod.UID = ""
			}
			old := mustHold(t, st, a)
			b := anew(a)
			b.Gone = goneNS(old.Netns)
			change(&b)
			if got := mustHold(t, st, b); addrs(got) == addrs(old) {
				t.Errorf("got %s; want another address", addrs(got))
			}
		})
	}
	t.Run("only what fits is inherited", func(t *testing.T) {
		st := openStore(t)
		p := openPool(t, st, "p", "10.0.0.0/29", "fd00::/125")
		a := demand("c1", p.any(allocator.IPv4), p.any(allocator.IPv6))
		old := mustHold(t, st, a)
		b := anew(a)
		b.Gone = goneNS(old.Netns)
		b.Slots = []Slot{p.exact("10.0.0.6"), p.any(allocator.IPv6)}
		got := mustHold(t, st, b)
		if got, want := addrs(got), "10.0.0.6/29 fd00::2/125"; got != want {
			t.Errorf("got %s; want %s", got, want)
		}
		if got := addrs(mustHold(t, st, demand("c3", p.exact("10.0.0.2")))); got != "10.0.0.2/29" {
			t.Errorf("the address that was not inherited: %s; want it free", got)
		}
	})
}

// TestLostLease: what was taken from the node is answered to nobody again, neither
// to the same sandbox nor to the next one of the pod.
func TestLostLease(t *testing.T) {
	const first, second = "p.0a000000.30", "p.0a000004.30"
	setup := func(t *testing.T) (st *store.Store, a Demand, old store.Attachment) {
		st = openStore(t)
		p := pool{"p", shapeOf(t, "10.0.0.0/29")}
		update(t, st, func(tx *store.Tx) error {
			for _, name := range []string{first, second} {
				_, block, err := protocol.ParseLeaseName(name)
				if err := errors.Join(err, allocator.NewSpace(tx.Table("p"), p.shape).Open(block)); err != nil {
					return err
				}
			}
			return nil
		})
		slot := p.any(allocator.IPv4)
		slot.BlockBits = 30
		putLease(t, st, first, protocol.Held)
		putLease(t, st, second, protocol.Held)
		a = demand("c1", slot)
		a.Leasing = &Leasing{Term: 1, Open: true}
		old = mustHold(t, st, a)
		if got := old.Addresses[0].Lease; got != first {
			t.Fatalf("the address is of lease %s; want %s", got, first)
		}
		return st, a, old
	}
	anew := func(a Demand, old store.Attachment) Demand {
		a.Key.ContainerID, a.Netns, a.NetnsID, a.Gone = "c2", "/run/netns/c2", "4:c2", goneNS(old.Netns)
		return a
	}
	t.Run("same sandbox", func(t *testing.T) {
		st, a, old := setup(t)
		if got := mustHold(t, st, a); addrs(got) != addrs(old) {
			t.Errorf("before: %s; want %s", addrs(got), addrs(old))
		}
		putLease(t, st, first, protocol.Lost)
		if got, err := hold(st, a); !is[*LostError](err) || !strings.Contains(err.Error(), "pod ns/pod-c1") {
			t.Errorf("%+v, %v; want LostError of the pod", got, err)
		}
	})
	t.Run("device of a ResourceClaim", func(t *testing.T) { // its next sandbox has the same key
		st, a, old := setup(t)
		a.Key.ContainerID, a.Netns, a.NetnsID = "claim-uid", store.ResourceClaimNetns("nic"), ""
		if !release(t, st, old.Key) {
			t.Fatal("what was held is not there")
		}
		if had := mustHold(t, st, a); had.Addresses[0].Lease != first {
			t.Fatalf("the address is of lease %s; want %s", had.Addresses[0].Lease, first)
		}
		putLease(t, st, first, protocol.Lost)
		got := mustHold(t, st, a)
		if got.Addresses[0].Lease != second {
			t.Errorf("got %s of lease %s; want one of %s", addrs(got), got.Addresses[0].Lease, second)
		}
		if again := mustHold(t, st, a); again.Generation != got.Generation || addrs(again) != addrs(got) {
			t.Errorf("asked again: %+v; want %+v", again, got)
		}
		putLease(t, st, second, protocol.Lost) // and the node has to ask the cluster for one
		a.Slots, a.Use = nil, "request"
		a.Granted = []store.Address{{Addr: netip.MustParseAddr("10.0.0.7"), Bits: 29, Pool: "p"}}
		if got := mustHold(t, st, a); addrs(got) != "10.0.0.7/29" {
			t.Errorf("got %s; want what the cluster has granted", addrs(got))
		}
		release(t, st, a.Key) // the store has no record of the request
	})
	t.Run("next sandbox", func(t *testing.T) {
		st, a, old := setup(t)
		putLease(t, st, first, protocol.Lost)
		got := mustHold(t, st, anew(a, old))
		if got.Addresses[0].Lease != second {
			t.Errorf("got %s of lease %s; want one of %s", addrs(got), got.Addresses[0].Lease, second)
		}
		if release(t, st, old.Key) {
			t.Error("the old attachment is still there")
		}
	})
	t.Run("not known yet", func(t *testing.T) {
		st, a, old := setup(t)
		a.Leasing = &Leasing{Term: 2, Open: true}
		for _, b := range []Demand{a, anew(a, old)} {
			if got, err := hold(st, b); !is[*UnconfirmedError](err) {
				t.Errorf("%+v, %v; want UnconfirmedError", got, err)
			}
		}
		if !release(t, st, old.Key) {
			t.Error("what was held is not there any more")
		}
	})
	t.Run("granted", func(t *testing.T) {
		st, a, _ := setup(t)
		putLease(t, st, first, protocol.Lost)
		b := a
		b.Key.ContainerID = "c9"
		b.Slots, b.Use = nil, "use"
		b.Granted = []store.Address{{Addr: netip.MustParseAddr("10.0.0.1"), Bits: 29, Pool: "p", Lease: first}}
		for range 2 { // the use decides about it, not the lease
			mustHold(t, st, b)
		}
		update(t, st, func(tx *store.Tx) error { _, _, err := Release(tx, b.Key); return err })
	})
}

package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/ipam/store"
)

var cmpAddrs = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// openStore opens a store that must be consistent when the test ends.
func openStore(t *testing.T) *store.Store {
	t.Helper()
	st, err := store.Open(filepath.Join(t.TempDir(), "store.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Check(); err != nil {
			t.Errorf("store inconsistent after the test: %v", err)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}

func shapeOf(t *testing.T, cidrs ...string) *allocator.Shape {
	t.Helper()
	var ranges []allocator.Range
	for _, c := range cidrs {
		p := netip.MustParsePrefix(c)
		r := allocator.Range{Prefix: p}
		if !p.IsSingleIP() {
			r.Gateway = p.Addr().Next()
		}
		ranges = append(ranges, r)
	}
	s, err := allocator.NewShape(ranges)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pool is a pool under test: all of its blocks are open, and no leases.
type pool struct {
	name  protocol.PoolName
	shape *allocator.Shape
}

func openPool(t *testing.T, st *store.Store, name protocol.PoolName, cidrs ...string) pool {
	t.Helper()
	p := pool{name, shapeOf(t, cidrs...)}
	update(t, st, func(tx *store.Tx) error {
		sp := allocator.NewSpace(tx.Table(name), p.shape)
		for _, c := range cidrs {
			if err := sp.Open(netip.MustParsePrefix(c)); err != nil {
				return err
			}
		}
		return nil
	})
	return p
}

func (p pool) any(f allocator.Family) Slot { return Slot{Pool: p.name, Shape: p.shape, Family: f} }
func (p pool) exact(a string) Slot {
	return Slot{Pool: p.name, Shape: p.shape, Exact: netip.MustParseAddr(a)}
}

func update(t *testing.T, st *store.Store, fn func(*store.Tx) error) {
	t.Helper()
	if err := st.Update(context.Background(), fn); err != nil {
		t.Fatal(err)
	}
}

// hold is one ADD.
func hold(st *store.Store, a Ask) (got store.Attachment, err error) {
	err = st.Update(context.Background(), func(tx *store.Tx) error {
		got, err = Hold(tx, a)
		return err
	})
	return got, err
}

func mustHold(t *testing.T, st *store.Store, a Ask) store.Attachment {
	t.Helper()
	got, err := hold(st, a)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func release(t *testing.T, st *store.Store, k store.Key) (ok bool) {
	t.Helper()
	update(t, st, func(tx *store.Tx) (err error) {
		_, ok, err = Release(tx, k)
		return err
	})
	return ok
}

func key(container, ifName string) store.Key {
	return store.Key{Network: "net", ContainerID: container, IfName: ifName}
}

// ask is an ADD of one slot by a pod of its own.
func ask(container string, slots ...Slot) Ask {
	return Ask{
		Key: key(container, "net1"), Netns: "/run/netns/" + container, NetnsID: "4:" + container, Boot: "boot", Now: start,
		Pod:   protocol.PodRef{Namespace: "ns", Name: "pod-" + container, UID: protocol.UID("uid-" + container)},
		Slots: slots,
	}
}

func addrs(a store.Attachment) string {
	var s []string
	for _, x := range a.Addresses {
		s = append(s, netip.PrefixFrom(x.Addr, x.Bits).String())
	}
	return strings.Join(s, " ")
}

// goneNS is a Gone that knows which namespaces are gone.
func goneNS(paths ...string) func(store.Attachment) bool {
	return func(a store.Attachment) bool { return slices.Contains(paths, a.Netns) }
}

func viewOf(t *testing.T, ranges ...string) allocator.View {
	t.Helper()
	var b netipx.IPSetBuilder
	for _, r := range ranges {
		b.AddRange(netipx.MustParseIPRange(r))
	}
	set, err := b.IPSet()
	if err != nil {
		t.Fatal(err)
	}
	return allocator.NewView(set)
}

func TestHoldRecordsWhatItAnswers(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/29", "fd00::/125")
	a := ask("c1", p.any(allocator.IPv4), p.any(allocator.IPv6))
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
	got := mustHold(t, st, ask("c1", s)).Addresses[0]
	if got.Bits != 16 || got.Gateway != netip.MustParseAddr("10.0.255.254") {
		t.Errorf("got /%d via %v; want /16 via 10.0.255.254", got.Bits, got.Gateway)
	}
}

func TestLeaseNames(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/28")
	s := p.any(allocator.IPv4)
	s.BlockBits = 28
	a := ask("c1", s)
	a.Serves = func(*store.Tx, string) (bool, error) { return true, nil }
	const lease = "p.0a000000.28"
	if got := leaseOf(t, st, a); got != lease {
		t.Errorf("lease %q; want %q", got, lease)
	}
}

// leaseOf holds without committing, since there is no such right in the store.
func leaseOf(t *testing.T, st *store.Store, a Ask) (lease string) {
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
	a := ask("c1", s)
	a.Serves = func(_ *store.Tx, lease string) (bool, error) { return lease == "p.0a000200.29", nil }
	if got := leaseOf(t, st, a); got != "p.0a000200.29" {
		t.Errorf("lease %q; want the one that serves", got)
	}
	for name, slot := range map[string]Slot{"ordinary": s, "by name": {Pool: p.name, Shape: p.shape, Exact: netip.MustParseAddr("10.0.0.5"), BlockBits: 29}} {
		a.Slots = []Slot{slot}
		a.Serves = func(*store.Tx, string) (bool, error) { return false, nil }
		if _, err := hold(st, a); !is[*NoRoomError](err) {
			t.Errorf("%s, no lease serves: %v; want NoRoomError", name, err)
		}
		broken := errors.New("broken")
		a.Serves = func(*store.Tx, string) (bool, error) { return false, broken }
		if _, err := hold(st, a); !errors.Is(err, broken) {
			t.Errorf("%s, Serves fails: %v; want its error", name, err)
		}
	}
}

func TestC9Exact(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/29")
	if got := addrs(mustHold(t, st, ask("c1", p.exact("10.0.0.5")))); got != "10.0.0.5/29" {
		t.Errorf("got %s; want 10.0.0.5/29", got)
	}
	narrow := p.exact("10.0.0.4")
	narrow.View = viewOf(t, "10.0.0.2-10.0.0.3")
	for _, tt := range []struct {
		name  string
		slots []Slot
		want  string // the type of error, and a part of its text
	}{
		{"taken", []Slot{p.exact("10.0.0.5")}, "*node.TakenError: address 10.0.0.5 of pool p is held by pod ns/pod-c1, interface net1"},
		{"outside", []Slot{p.exact("10.0.1.5")}, "*node.UnassignableError: lies in none"},
		{"network address", []Slot{p.exact("10.0.0.0")}, "*node.UnassignableError: network address"},
		{"broadcast address", []Slot{p.exact("10.0.0.7")}, "*node.UnassignableError: broadcast address"},
		{"gateway", []Slot{p.exact("10.0.0.1")}, "*node.UnassignableError: is a gateway"},
		{"outside the view", []Slot{narrow}, "*node.UnassignableError: outside what this network may take"},
		{"twice", []Slot{p.exact("10.0.0.4"), p.exact("10.0.0.4")}, "*node.UnassignableError: asked for twice"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := hold(st, ask("c2", tt.slots...))
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

func TestC9ExactOutsideOpenBlocks(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/29")
	update(t, st, func(tx *store.Tx) error {
		return allocator.NewSpace(tx.Table("p"), p.shape).Bar(netip.MustParseAddr("10.0.0.4"), true)
	})
	if _, err := hold(st, ask("c1", p.exact("10.0.0.4"))); !is[*NoRoomError](err) {
		t.Errorf("barred: %v; want NoRoomError", err)
	}
	wide := p
	wide.shape = shapeOf(t, "10.0.0.0/28")
	if _, err := hold(st, ask("c1", wide.exact("10.0.0.12"))); !is[*NoRoomError](err) {
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
		_, err := Hold(tx, ask("c1", p.any(allocator.IPv4), q.any(allocator.IPv6)))
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

func TestX1SeveralSlotsAndInterfacesOfOnePool(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/29")
	first := mustHold(t, st, ask("c1", p.any(allocator.IPv4), p.exact("10.0.0.3"), p.any(allocator.IPv4)))
	if got := addrs(first); got != "10.0.0.2/29 10.0.0.3/29 10.0.0.4/29" {
		t.Errorf("one interface: %s; want .2, .3 and .4", got)
	}
	second := ask("c1", p.any(allocator.IPv4))
	second.Key.IfName = "net2"
	if got := addrs(mustHold(t, st, second)); got != "10.0.0.5/29" {
		t.Errorf("another interface of the pod: %s; want .5", got)
	}
}

func TestC10RepeatedADD(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/29")
	a := ask("c1", p.any(allocator.IPv4))
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

func TestC10AnotherPodUnderTheSameKey(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/30") // one address
	first := mustHold(t, st, ask("c1", p.any(allocator.IPv4)))
	b := ask("c1", p.any(allocator.IPv4))
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

// TestX6NewSandbox: a new container ID of the same pod and interface.
func TestX6NewSandbox(t *testing.T) {
	anew := func(old Ask) Ask {
		b := old
		b.Key.ContainerID, b.Netns, b.NetnsID = "c2", "/run/netns/c2", "4:c2"
		return b
	}
	t.Run("old namespace gone, pool full", func(t *testing.T) {
		st := openStore(t)
		p := openPool(t, st, "p", "10.0.0.0/30")
		a := ask("c1", p.any(allocator.IPv4))
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
		c := ask("c3", p.any(allocator.IPv4))
		if _, err := hold(st, c); !is[*NoRoomError](err) {
			t.Errorf("a third pod after the late DEL: %v; want NoRoomError", err)
		}
	})
	t.Run("old namespace alive", func(t *testing.T) {
		st := openStore(t)
		p := openPool(t, st, "p", "10.0.0.0/29")
		a := ask("c1", p.any(allocator.IPv4))
		old := mustHold(t, st, a)
		got := mustHold(t, st, anew(a))
		if addrs(got) == addrs(old) {
			t.Errorf("got %s; want another address", addrs(got))
		}
		if !release(t, st, old.Key) || !release(t, st, got.Key) {
			t.Error("both attachments are to be there until their DELs")
		}
	})
	for name, change := range map[string]func(*Ask){
		"no pod UID":        func(b *Ask) { b.Pod.UID = "" },
		"another pod":       func(b *Ask) { b.Pod.UID = "uid-x" },
		"another interface": func(b *Ask) { b.Key.IfName = "net2" },
		"another network":   func(b *Ask) { b.Key.Network = "net-b" },
	} {
		t.Run(name, func(t *testing.T) {
			st := openStore(t)
			p := openPool(t, st, "p", "10.0.0.0/29")
			a := ask("c1", p.any(allocator.IPv4))
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
		a := ask("c1", p.any(allocator.IPv4), p.any(allocator.IPv6))
		old := mustHold(t, st, a)
		b := anew(a)
		b.Gone = goneNS(old.Netns)
		b.Slots = []Slot{p.exact("10.0.0.6"), p.any(allocator.IPv6)}
		got := mustHold(t, st, b)
		if got, want := addrs(got), "10.0.0.6/29 fd00::2/125"; got != want {
			t.Errorf("got %s; want %s", got, want)
		}
		if got := addrs(mustHold(t, st, ask("c3", p.exact("10.0.0.2")))); got != "10.0.0.2/29" {
			t.Errorf("the address that was not inherited: %s; want it free", got)
		}
	})
}

func TestC11Release(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/29", "fd00::/125")
	a := ask("c1", p.any(allocator.IPv4), p.any(allocator.IPv6))
	if release(t, st, a.Key) {
		t.Error("DEL before ADD: frees something")
	}
	held := mustHold(t, st, a)
	var got store.Attachment
	update(t, st, func(tx *store.Tx) (err error) {
		if _, ok, err := ReleaseIf(tx, a.Key, held.Generation+1); ok || err != nil {
			t.Errorf("ReleaseIf of another generation: %v, %v; want nothing", ok, err)
		}
		got, _, err = ReleaseIf(tx, a.Key, held.Generation)
		return err
	})
	if d := cmp.Diff(held, got, cmpAddrs); d != "" {
		t.Errorf("released (-held +released):\n%s", d)
	}
	for range 2 {
		if release(t, st, a.Key) {
			t.Error("DEL again: frees something")
		}
	}
}

// TestC11ReleaseFreesTheOthers: one family's block is gone, by whatever fault;
// the attachment and its other address go all the same.
func TestC11ReleaseFreesTheOthers(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/30", "fd00::/125")
	a := ask("c1", p.any(allocator.IPv4), p.any(allocator.IPv6))
	mustHold(t, st, a)
	update(t, st, func(tx *store.Tx) error {
		sp := allocator.NewSpace(tx.Table("p"), p.shape)
		if err := sp.Free(netip.MustParseAddr("10.0.0.2")); err != nil {
			return err
		}
		if err := sp.Close(netip.MustParsePrefix("10.0.0.0/30")); err != nil {
			return err
		}
		if _, ok, err := Release(tx, a.Key); !ok || err != nil {
			t.Errorf("Release: %v, %v; want success", ok, err)
		}
		if s, err := sp.State(netip.MustParseAddr("fd00::2")); s != allocator.Free || err != nil {
			t.Errorf("the other address is %v, %v; want Free", s, err)
		}
		return nil
	})
}

func TestC12Check(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/29", "fd00::/125")
	a := ask("c1", p.any(allocator.IPv4), p.any(allocator.IPv6))
	mustHold(t, st, a)
	four, six := netip.MustParsePrefix("10.0.0.2/29"), netip.MustParsePrefix("fd00::2/125")
	for _, tt := range []struct {
		name string
		key  store.Key
		prev []netip.Prefix
		want string
	}{
		{"as it was", a.Key, []netip.Prefix{four, six}, ""},
		{"with another plugin's", a.Key, []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24"), six, four}, ""},
		{"one missing", a.Key, []netip.Prefix{four}, "fd00::2/125"},
		{"another length", a.Key, []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24"), six}, "10.0.0.2/29"},
		{"none", a.Key, nil, "10.0.0.2/29"},
		{"unknown", key("c9", "net1"), []netip.Prefix{four, six}, "no address recorded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := st.View(func(tx *store.Tx) error { return Check(tx, tt.key, tt.prev) })
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("got %v; want success", err)
			case tt.want != "" && (!is[*CheckError](err) || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v; want a CheckError with %q", err, tt.want)
			}
		})
	}
}

func claimAsk(container string, claim protocol.UID) Ask {
	a := ask(container)
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
			Use: &protocol.Use{Claim: protocol.ClaimRef{Namespace: "ns", Name: "vm", UID: claim}, Interface: "net1"},
		})
	})
}

func TestClaimsAddresses(t *testing.T) {
	st := openStore(t)
	putUse(t, st, "u1")
	putUse(t, st, "u2")
	a := claimAsk("c1", "u1")
	first := mustHold(t, st, a)
	if got := addrs(first); got != "10.0.0.5/24" || first.Use != "u1.0" || first.Claim.UID != "u1" {
		t.Errorf("got %s by %q for %v; want the claim's", got, first.Use, first.Claim)
	}
	if again := mustHold(t, st, a); !cmp.Equal(first, again, cmpAddrs) {
		t.Errorf("C10: %+v; want %+v", again, first)
	}
	other := claimAsk("c1", "u2")
	if _, err := hold(st, other); !is[*ConflictError](err) {
		t.Errorf("another claim for the attachment: %v; want ConflictError", err)
	}
	second := claimAsk("c1", "u1")
	second.Key.IfName = "net2"
	if _, err := hold(st, second); !is[*TakenError](err) {
		t.Errorf("another interface of the pod: %v; want TakenError", err)
	}
	stranger := claimAsk("c2", "u1")
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

func TestX6ClaimOfANewSandbox(t *testing.T) {
	st := openStore(t)
	putUse(t, st, "u1")
	a := claimAsk("c1", "u1")
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

func TestAskThatContradictsItself(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/29")
	both := claimAsk("c1", "u1")
	both.Slots = []Slot{p.any(allocator.IPv4)}
	noUse := claimAsk("c1", "u1")
	noUse.Use = ""
	for name, a := range map[string]Ask{
		"nothing": ask("c1"), "both": both, "no right": noUse, "no family": ask("c1", Slot{Pool: "p", Shape: p.shape}),
	} {
		if _, err := hold(st, a); err == nil {
			t.Errorf("%s: success; want an error", name)
		}
	}
}

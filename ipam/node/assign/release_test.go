package assign

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestRelease (C11).
func TestRelease(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/29", "fd00::/125")
	a := demand("c1", p.any(allocator.IPv4), p.any(allocator.IPv6))
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

// TestReleaseFreesTheOthers (C11): one family's block is gone, by whatever fault;
// the attachment and its other address go all the same.
func TestReleaseFreesTheOthers(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/30", "fd00::/125")
	a := demand("c1", p.any(allocator.IPv4), p.any(allocator.IPv6))
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

// TestCededInUse: an address is in use, and its lease says that it is ceded: a person has
// done so, or the store has gone back to before its DEL. The sandbox that lives keeps it;
// after it nobody gets it from this node, not even the pod's next sandbox (I1).
func TestCededInUse(t *testing.T) {
	setup := func(t *testing.T) (*store.Store, Demand, store.Attachment) {
		st := openStore(t)
		p := pool{"p", shapeOf(t, "10.0.0.0/29")}
		name := protocol.LeaseName("p", netip.MustParsePrefix("10.0.0.0/29"))
		put := func(ceded ...netip.Addr) {
			update(t, st, func(tx *store.Tx) error {
				_, block, err := protocol.ParseLeaseName(name)
				return errors.Join(err, tx.PutRight(protocol.Right{
					Kind: protocol.RightLease, Name: name, Phase: protocol.Held, Asserted: 1, Term: 1, LeaseRight: protocol.LeaseRight{Pool: "p", PoolUID: "u", Block: block, Ceded: ceded},
				}))
			})
		}
		put()
		update(t, st, func(tx *store.Tx) error {
			return allocator.NewSpace(tx.Table("p"), p.shape).Open(netip.MustParsePrefix("10.0.0.0/29"))
		})
		slot := p.any(allocator.IPv4)
		slot.BlockBits = 29
		a := demand("c1", slot)
		a.Leasing = &Leasing{Term: 1, Open: true}
		held := mustHold(t, st, a)
		put(held.Addresses[0].Addr)
		return st, a, held
	}
	others := func(t *testing.T, st *store.Store, a Demand, ceded store.Attachment) {
		t.Helper()
		for _, container := range []string{"c3", "c4", "c5", "c6", "c7", "c8", "c9"} { // more than there are addresses
			b := demand(container, a.Slots...)
			if got, err := hold(st, b); err == nil && addrs(got) == addrs(ceded) || err != nil && !is[*NoRoomError](err) {
				t.Errorf("%s: %s, %v; want another address, or none", container, addrs(got), err)
			}
		}
	}
	t.Run("its sandbox lives", func(t *testing.T) {
		st, a, held := setup(t)
		if got := mustHold(t, st, a); addrs(got) != addrs(held) {
			t.Errorf("the ADD again is answered %s; want %s", addrs(got), addrs(held))
		}
		others(t, st, a, held)
		release(t, st, a.Key)
	})
	t.Run("DEL", func(t *testing.T) {
		st, a, held := setup(t)
		if !release(t, st, a.Key) {
			t.Error("DEL frees nothing")
		}
		others(t, st, a, held)
	})
	t.Run("a new sandbox of the pod", func(t *testing.T) {
		st, a, held := setup(t)
		b := a
		b.Key.ContainerID, b.Netns, b.NetnsID, b.Gone = "c2", "/run/netns/c2", "4:c2", goneNS(held.Netns)
		if got := mustHold(t, st, b); addrs(got) == addrs(held) {
			t.Errorf("the pod's next sandbox has %s, which is ceded", addrs(got))
		}
		others(t, st, a, held)
	})
}

// TestCheck (C12).
func TestCheck(t *testing.T) {
	st := openStore(t)
	p := openPool(t, st, "p", "10.0.0.0/29", "fd00::/125")
	a := demand("c1", p.any(allocator.IPv4), p.any(allocator.IPv6))
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

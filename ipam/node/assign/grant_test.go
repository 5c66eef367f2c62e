package assign

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestWants: a request carries what the view and the pool's shape allow.
func TestWants(t *testing.T) {
	p := pool{"p", shapeOf(t, "10.0.0.0/29", "fd00::/126")} // with gateways
	viewed := p.any(allocator.IPv4)
	var b netipx.IPSetBuilder
	b.AddRange(netipx.MustParseIPRange("10.0.0.4-10.0.0.200"))
	set, err := b.IPSet()
	if err != nil {
		t.Fatal(err)
	}
	viewed.View = allocator.NewView(set)
	none := viewed
	none.Family = allocator.IPv6
	for _, tt := range []struct {
		slots []Slot
		want  string
	}{
		{[]Slot{p.any(allocator.IPv4), p.any(allocator.IPv6)}, "[{p [10.0.0.2-10.0.0.6]} {p [fd00::2-fd00::3]}]"},
		{[]Slot{viewed}, "[{p [10.0.0.4-10.0.0.6]}]"},
		{[]Slot{p.exact("10.0.0.3")}, "[{p [10.0.0.3-10.0.0.3]}]"},
		{[]Slot{none}, "[{p []}]"},
	} {
		if got := fmt.Sprint(Wants(tt.slots)); got != tt.want {
			t.Errorf("got %s; want %s", got, tt.want)
		}
	}
}

// TestWantsOfManyRanges: a pool may have more pieces than a request may name. All of its
// addresses are asked for, with what it excludes in between, of which none is granted; not
// what the view excludes. Of a view with more pieces than that the first are.
func TestWantsOfManyRanges(t *testing.T) {
	piece := func(i int) netipx.IPRange {
		a := netip.AddrFrom4([4]byte{10, 0, byte(i / 64), byte(i % 64 * 4)})
		return netipx.IPRangeFrom(a, a)
	}
	var excluded []netipx.IPRange
	var all, many netipx.IPSetBuilder
	all.AddPrefix(netip.MustParsePrefix("10.0.0.0/16"))
	many.AddPrefix(netip.MustParsePrefix("10.0.0.0/16"))
	for i := range 300 {
		excluded = append(excluded, piece(i))
		many.RemoveRange(piece(i))
	}
	all.RemoveRange(piece(200))
	s, err := allocator.NewShape([]allocator.Range{{Prefix: netip.MustParsePrefix("10.0.0.0/16"), Exclude: excluded}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name        string
		view        *netipx.IPSetBuilder // nil is everything
		ranges      int
		first, last string
	}{
		{"of the whole pool", nil, 1, "10.0.0.1-10.0.255.254", "10.0.0.1-10.0.255.254"},
		{"of a view", &all, 2, "10.0.0.1-10.0.3.31", "10.0.3.33-10.0.255.254"},
		{"of a view of many pieces", &many, 256, "10.0.0.1-10.0.0.3", "10.0.3.253-10.0.3.255"},
	} {
		slot := Slot{Pool: "p", Shape: s, Family: allocator.IPv4}
		if tt.view != nil {
			set, err := tt.view.IPSet()
			if err != nil {
				t.Fatal(err)
			}
			slot.View = allocator.NewView(set)
		}
		got := Wants([]Slot{slot})[0].Ranges
		if n := len(got); n != tt.ranges || got[0] != tt.first || got[n-1] != tt.last {
			t.Errorf("%s: %d ranges from %s to %s; want %d, from %s to %s", tt.name, n, got[0], got[n-1], tt.ranges, tt.first, tt.last)
		}
	}
}

func TestGranted(t *testing.T) {
	p := pool{"p", shapeOf(t, "10.0.0.0/29", "fd00::/126")}
	other := pool{"other", p.shape} // another domain, of the same addresses
	dual := []Slot{p.any(allocator.IPv4), p.any(allocator.IPv6)}
	for _, tt := range []struct {
		name  string
		slots []Slot
		addrs []string
		want  string // "" if they do not do
	}{
		{"both families", dual, []string{"10.0.0.3", "fd00::3"}, "10.0.0.3/29 by 10.0.0.1, fd00::3/126 by fd00::1"},
		{"in another order", dual, []string{"fd00::3", "10.0.0.3"}, ""},
		{"too few", dual, []string{"10.0.0.3"}, ""},
		{"too many", dual[:1], []string{"10.0.0.3", "10.0.0.4"}, ""},
		{"outside the pool", dual[:1], []string{"10.0.1.3"}, ""},
		{"its gateway, which was none when it was granted", dual[:1], []string{"10.0.0.1"}, ""},
		{"by name", []Slot{p.exact("10.0.0.3")}, []string{"10.0.0.3"}, "10.0.0.3/29 by 10.0.0.1"},
		{"of another pool than the slot's", []Slot{other.any(allocator.IPv4)}, []string{"10.0.0.3"}, ""},
		{"another one by name", []Slot{p.exact("10.0.0.3")}, []string{"10.0.0.4"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var addrs []netip.Addr
			var wants []protocol.Wanted
			for _, a := range tt.addrs {
				addrs = append(addrs, netip.MustParseAddr(a))
				wants = append(wants, protocol.Wanted{Pool: "p"})
			}
			granted, ok := Granted(tt.slots, wants, addrs)
			got := ""
			for i, g := range granted {
				if i > 0 {
					got += ", "
				}
				got += fmt.Sprintf("%v/%d by %v", g.Addr, g.Bits, g.Gateway)
				if g.Lease != "" || g.Pool != "p" {
					t.Errorf("%v is of lease %q of pool %q; want no lease, and p", g.Addr, g.Lease, g.Pool)
				}
			}
			if got != tt.want || ok != (tt.want != "") {
				t.Errorf("got %q, %v; want %q", got, ok, tt.want)
			}
		})
	}
}

// TestHoldByRequest: what was granted is the attachment's, is no address of this
// node's blocks, and stays with the request when the attachment goes.
func TestHoldByRequest(t *testing.T) {
	st := openStore(t)
	a := demand("c1")
	granted := netip.MustParseAddr("10.0.0.5")
	a.Granted, a.Use = []store.Address{{Addr: granted, Bits: 24, Pool: "p"}}, "request"
	update(t, st, func(tx *store.Tx) error {
		return tx.PutRight(protocol.Right{
			Kind: protocol.RightRequest, Name: "request", Phase: protocol.Held, SubLeaseRight: protocol.SubLeaseRight{Addrs: []netip.Addr{granted}, Request: &protocol.Request{Pod: a.Pod, Interface: a.Key.IfName}},
		})
	})
	first := mustHold(t, st, a)
	if first.Use != "request" || first.Claim != nil || addrs(first) != "10.0.0.5/24" {
		t.Errorf("got %+v; want 10.0.0.5/24 by the request", first)
	}
	again := a
	again.Granted, again.Use, again.Slots = nil, "", []Slot{{Pool: "p", Shape: shapeOf(t, "10.0.0.0/24"), Family: allocator.IPv4}}
	if got := mustHold(t, st, again); addrs(got) != "10.0.0.5/24" {
		t.Errorf("C10: got %s; want it again", addrs(got))
	}
	again.Leasing = &Leasing{Term: 1}
	update(t, st, func(tx *store.Tx) error {
		r, _, err := tx.Right("request")
		r.Phase = protocol.Lost
		return errors.Join(err, tx.PutRight(r))
	})
	if _, err := hold(st, again); !is[*LostError](err) {
		t.Errorf("the request is gone: %v; want LostError", err)
	}
	fresh := a
	fresh.Key.ContainerID, fresh.Netns = "c2", "/run/netns/c2"
	if _, err := hold(st, fresh); !is[*TakenError](err) {
		t.Errorf("old namespace alive: %v; want TakenError", err)
	}
	fresh.Gone = goneNS(first.Netns)
	mustHold(t, st, fresh)
	if release(t, st, first.Key) {
		t.Error("the late DEL of the old container frees something; want nothing")
	}
	if !release(t, st, fresh.Key) {
		t.Error("nothing to release for the new container")
	}
}

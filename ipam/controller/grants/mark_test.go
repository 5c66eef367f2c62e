package grants

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

func leaseOf(h Held) string { return protocol.LeaseName(h.Pool, h.Block) }

// TestMarkOfAnother (0008): a controller marks a grant, changes its claim's status,
// and stands still before it removes the grant. Meanwhile another one removes it,
// grants the address to the claim again, and begins to give that back, too. The
// first one's removal was earned by another mark, so it does nothing: the second
// grant may stand in a status by now (I3).
func TestMarkOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calm()
		first, second := newRig(t, s), newRig(t, s)
		s.setPool(lan(t, "lan", "10.0.0.0/31"))
		a := ask("a", "lan")
		if got := first.settle(a); len(got.Granted) != 1 {
			t.Fatalf("granted %q, problem %+v; want one address", addrs(got), got.Problem)
		}
		marked, err := first.Mark(t.Context(), first.Held(a.To.UID))
		if err != nil || len(marked) != 1 {
			t.Fatalf("marked %+v, %v; want the one grant", marked, err)
		}
		time.Sleep(time.Second)
		second.free(t, second.Held(a.To.UID))
		again := second.settle(Ask{To: a.To, From: a.From, Exactly: []netip.Addr{marked[0].Grant.Addr}})
		if len(again.Granted) != 1 || again.Granted[0].Addr != marked[0].Grant.Addr {
			t.Fatalf("granted %q, problem %+v; want %v again", addrs(again), again.Problem, marked[0].Grant.Addr)
		}
		for _, state := range []string{"granted again", "marked again"} {
			if err := first.Clear(t.Context(), marked); !errors.Is(err, errNotSo) {
				t.Errorf("%s: Clear by the first mark: %v; want %v", state, err, errNotSo)
			}
			if got := second.Held(a.To.UID); len(got) != 1 {
				t.Errorf("%s: %d grants; want the one of the second controller", state, len(got))
			}
			if _, err := second.Mark(t.Context(), second.Held(a.To.UID)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
	})
}

// TestMarkOfStaleBook (0008): a mark that only a watch that is behind shows earns
// nothing, since it is gone.
func TestMarkOfStaleBook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calm()
		r := newRig(t, s)
		s.setPool(lan(t, "lan", "10.0.0.0/31"))
		a := ask("a", "lan")
		r.settle(a)
		if _, err := r.Mark(t.Context(), r.Held(a.To.UID)); err != nil {
			t.Fatal(err)
		}
		name := leaseOf(r.Held(a.To.UID)[0])
		s.unseen(name, func(l *protocol.Lease) bool {
			l.Grants[0].Freeing, l.Grants[0].Mark = false, ""
			return true
		})
		marked, err := r.Mark(t.Context(), r.Held(a.To.UID)) // by the book nothing is to be written
		if err != nil || len(marked) != 1 {
			t.Fatalf("marked %+v, %v; want the grant with the mark that is gone", marked, err)
		}
		if err := r.Clear(t.Context(), marked); !errors.Is(err, errNotSo) {
			t.Errorf("Clear by a mark that is gone: %v; want %v", err, errNotSo)
		}
		if l, _, _ := s.ReadLease(t.Context(), name); len(l.Grants) != 1 {
			t.Errorf("%d grants; want 1", len(l.Grants))
		}
	})
}

// TestVerifyBehindWatch (0008): while the leases of a claim's grants are read live,
// a watch that is behind shows one again as it was before. It is not believed.
func TestVerifyBehindWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calm()
		r := newRig(t, s)
		s.setPool(lan(t, "four", "10.0.0.0/31"))
		s.setPool(lan(t, "six", "fd00::/127"))
		r.settle(ask("a", "four")) // so that its lease is read first
		a := ask("a", "four", "six")
		a.Stamp = "7"
		if got := r.settle(a); len(got.Granted) != 2 {
			t.Fatalf("granted %q, problem %+v; want two addresses", addrs(got), got.Problem)
		}
		old, _, _ := s.ReadLease(t.Context(), leaseOf(r.Held(a.To.UID)[0]))
		s.unseen(old.Name, func(*protocol.Lease) bool { return false })
		behind := false
		s.read = func(name string) {
			if name != old.Name && !behind {
				behind = true
				r.Observe(old)
			}
		}
		got, err := r.Verify(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		if !behind || len(got.Granted) > 0 {
			t.Errorf("granted %q, although %s is gone (a watch showed it: %v)", addrs(got), old.Name, behind)
		}
	})
}

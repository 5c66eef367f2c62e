package agent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// lateLeases applies an update; the answer to the first is later than a call waits for.
type lateLeases struct {
	Leases
	mu         sync.Mutex
	now        protocol.Lease
	heardSince bool // the first answer was
}

func (l *lateLeases) UpdateLease(ctx context.Context, old, next protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old.Revision != l.now.Revision {
		return protocol.Lease{}, protocol.Conflict, errors.New("it has changed")
	}
	next.UID, next.Revision = l.now.UID, l.now.Revision+"1"
	l.now = next
	if l.heardSince {
		return l.now, protocol.Done, nil
	}
	l.heardSince = true
	select {
	case <-time.After(6 * time.Second):
	case <-ctx.Done():
	}
	return protocol.Lease{}, protocol.Unknown, errors.New("no answer")
}

func (l *lateLeases) ReadLease(context.Context, string) (protocol.Lease, protocol.Outcome, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now, protocol.Done, nil
}

// keepLease puts a lease of lan into the store, with its block open, and what becomes of it.
func (a *Agent) keepLease(t *testing.T, p *pool, r protocol.Right, then func(allocator.Space) error) {
	t.Helper()
	lan := Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}
	lan.Text.Ranges = []poolspec.RangeText{{CIDR: "10.0.0.0/24"}}
	err := a.st.Update(t.Context(), func(tx *store.Tx) error {
		text, err := json.Marshal(lan)
		space := allocator.NewSpace(tx.Table("lan"), p.known.shape)
		return errors.Join(err, tx.PutPool("lan", text), tx.PutRight(r), space.Open(r.Block), then(space))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestTakeBackOfAnEndedAdd: an ADD whose time ends while it takes an address back leaves
// nothing that only the hourly list mends.
func TestTakeBackOfAnEndedAdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := netip.MustParseAddr("10.0.0.5")
		leases := &lateLeases{}
		a, p := newRegisteredAgent(t, leases, shutPools{})
		a.reg.registrar.Sent = a.sched.Now()
		a.reg.registrar.Seen.UID = "s"
		a.log = slog.New(slog.DiscardHandler)
		r := leaseRight(p.known.Pool, netip.MustParsePrefix("10.0.0.4/30"))
		r.Phase, r.UID, r.Revision, r.Asserted, r.Term, r.Writes = protocol.Held, "u1", "7", 3, 3, 1
		r.Ceded = []netip.Addr{x}
		leases.now = protocol.Lease{Meta: protocol.Meta{Name: r.Name, UID: "u1", Revision: "7"}, Protocol: protocol.Version, Pool: "lan", PoolUID: r.PoolUID, Block: r.Block,
			Holder: protocol.Holder{Node: "n1"}, Store: a.st.ID(), Term: 3, Writes: 1, Ceded: r.Ceded}
		a.keepLease(t, p, r, func(s allocator.Space) error { return s.Bar(x, true) })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // an ADD's
		defer cancel()
		if a.blocks.takenBack(ctx, p, assign.Slot{Family: allocator.IPv4}) {
			t.Error("taken back, and the API server has not answered")
		}
		for range 20 { // of maintenance
			time.Sleep(dueEvery)
			a.rights.recheckDue(t.Context())
		}
		now, _ := a.right(r.Name)
		leases.mu.Lock()
		defer leases.mu.Unlock()
		if len(now.Taking) > 0 || !slices.Equal(now.Ceded, leases.now.Ceded) || !now.Usable(3) {
			t.Errorf("the lease says %v is ceded, this node %v, taking %v: neither it nor the cluster can give the rest", leases.now.Ceded, now.Ceded, now.Taking)
		}
	})
}

// TestTakesBackWhatIsInUse (I1): after a restore a lease has ceded an address that was taken
// back since, and that a pod has, and one that nobody has. The write that says the lease again
// takes the first back: the cluster might grant it.
func TestTakesBackWhatIsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		used, free := netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("10.0.0.6")
		leases := &lateLeases{heardSince: true}
		a, p := newRegisteredAgent(t, leases, shutPools{})
		a.reg.registrar.Sent = a.sched.Now()
		a.reg.registrar.Seen.UID = "s"
		a.log = slog.New(slog.DiscardHandler)
		r := leaseRight(p.known.Pool, netip.MustParsePrefix("10.0.0.4/30"))
		r.Phase, r.UID, r.Revision, r.Asserted, r.Term, r.Writes = protocol.Held, "u1", "7", 2, 2, 4
		leases.now = protocol.Lease{Meta: protocol.Meta{Name: r.Name, UID: "u1", Revision: "5"}, Protocol: protocol.Version, Pool: "lan", PoolUID: r.PoolUID, Block: r.Block,
			Holder: protocol.Holder{Node: "n1"}, Store: a.st.ID(), Term: 1, Writes: 2, Ceded: []netip.Addr{used, free}}
		a.keepLease(t, p, r, func(s allocator.Space) error { return s.Take(used) })
		for range 20 { // of maintenance
			a.rights.planRechecks(t.Context())
			a.rights.recheckDue(t.Context())
			time.Sleep(dueEvery)
		}
		now, _ := a.right(r.Name)
		if want := []netip.Addr{free}; !slices.Equal(leases.now.Ceded, want) || !slices.Equal(now.Ceded, want) || len(now.Taking) > 0 || !now.Usable(3) {
			t.Errorf("the lease says %v is ceded, this node %v, taking %v, serving %v; want %v, and that it serves", leases.now.Ceded, now.Ceded, now.Taking, now.Usable(3), want)
		}
	})
}

// TestTakesNothingBackOfAClosedPool (I1): what a node has ceded may be another IPAM's while the
// pool is closed. An ADD whose request waits takes nothing back then, and does when the pool is
// open.
func TestTakesNothingBackOfAClosedPool(t *testing.T) {
	for _, open := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			x := netip.MustParseAddr("10.0.0.5")
			leases := &lateLeases{heardSince: true}
			a, p := newRegisteredAgent(t, leases, shutPools{})
			a.reg.registrar.Sent = a.sched.Now()
			p.set(changed(p, func(k *knownPool) { k.Open = open }), false)
			r := leaseRight(p.known.Pool, netip.MustParsePrefix("10.0.0.4/30"))
			r.Phase, r.UID, r.Revision, r.Asserted, r.Term, r.Writes = protocol.Held, "u1", "7", 3, 3, 1
			r.Ceded = []netip.Addr{x}
			leases.now = protocol.Lease{
				Meta: protocol.Meta{Name: r.Name, UID: "u1", Revision: "7"}, Protocol: protocol.Version, Pool: "lan", PoolUID: r.PoolUID, Block: r.Block,
				Holder: protocol.Holder{Node: "n1"}, Store: a.st.ID(), Term: 3, Writes: 1, Ceded: r.Ceded,
			}
			a.keepLease(t, p, r, func(s allocator.Space) error { return s.Bar(x, true) })
			took := a.blocks.takenBack(t.Context(), p, assign.Slot{Family: allocator.IPv4})
			now, _ := a.right(r.Name)
			if took != open || slices.Contains(now.Ceded, x) == open {
				t.Errorf("open %v: takes it back %v, ceded is %v", open, took, now.Ceded)
			}
		})
	}
}

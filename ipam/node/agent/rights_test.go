package agent

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// stoppedClock is always at its start.
type stoppedClock struct{ sched.Clock }

func (stoppedClock) Now() protocol.Instant { return protocol.Instant{} }

// newStore returns an empty store.
func newStore(t *testing.T) *store.Store {
	t.Helper()
	st, err := store.Open(filepath.Join(t.TempDir(), "store"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return st
}

// TestFrozenKeeps: a new sandbox keeps an address of a lease that a lost store left
// only in the boot in which that was lost: if this store is lost as well, the next
// one takes everything of an earlier boot for unused (I1).
func TestFrozenKeeps(t *testing.T) {
	st := newStore(t)
	r := leaseRight(Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}, netip.MustParsePrefix("10.0.0.10/32"))
	r.Phase, r.UID, r.Store = protocol.Frozen, "u1", "lost"
	err := st.Update(context.Background(), func(tx *store.Tx) error {
		return errors.Join(tx.PutRight(r), tx.PutLost(store.Lost{Store: "lost", Boot: "boot1"}))
	})
	if err != nil {
		t.Fatal(err)
	}
	for boot, want := range map[string]bool{"boot1": true, "boot2": false} {
		err := st.View(func(tx *store.Tx) error {
			got, err := assign.Leasing{Term: 3}.Keeps(tx, r.Name, boot)
			if got != want {
				t.Errorf("in %s: kept = %v; want %v", boot, got, want)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestLeaseOverLostBlock: a lease of a block in which pods of this node still use one
// of another size, whose lease was lost, gives nothing: it goes back, and does not
// stand in the way of other blocks.
func TestLeaseOverLostBlock(t *testing.T) {
	st := newStore(t)
	a := assemble(&base{st: st, cfg: Config{Node: "n1"}, sched: sched.Goroutines(stoppedClock{})})
	a.reg.registrar.Term = 3
	pool := Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}
	small, large := netip.MustParsePrefix("10.0.0.10/32"), netip.MustParsePrefix("10.0.0.10/31")
	lost := leaseRight(pool, small)
	lost.Phase, lost.UID = protocol.Lost, "u1"
	noted := leaseRight(pool, large)
	noted.Phase, noted.UID, noted.Revision, noted.Asserted = protocol.Noted, "u2", "7", 3
	update := func(fn func(tx *store.Tx) error) {
		t.Helper()
		if err := st.Update(context.Background(), fn); err != nil {
			t.Fatal(err)
		}
	}
	update(func(tx *store.Tx) error {
		if err := tx.PutIdentity(store.Identity{Node: "n1", Term: 3}); err != nil {
			return err
		}
		space := allocator.NewSpace(tx.Table("lan"), nil)
		if err := space.Open(small); err != nil {
			return err
		}
		if err := space.Take(small.Addr()); err != nil {
			return err
		}
		if err := tx.PutRight(lost); err != nil {
			return err
		}
		return tx.PutRight(noted)
	})
	_, res, err := a.rights.step(context.Background(), noted, func(*store.Tx, protocol.Self, protocol.Right) (protocol.Event, error) {
		return protocol.Event{Kind: protocol.EventAnswer, Call: protocol.CallConfirm, Outcome: protocol.Done}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.Next.Phase != protocol.Releasing || res.Call != protocol.CallDelete {
		t.Errorf("the lease is %s, and the next call %v; want it deleted", res.Next.Phase, res.Call)
	}
	update(func(tx *store.Tx) error {
		r, _, err := tx.Right(noted.Name)
		if err != nil {
			return err
		}
		if r.Phase != protocol.Releasing {
			t.Errorf("the lease is recorded as %s", r.Phase)
		}
		state, err := allocator.NewSpace(tx.Table("lan"), nil).State(small.Addr())
		if state != allocator.Taken {
			t.Errorf("the address of the block that was lost is %v; want it taken", state)
		}
		return err
	})
}

// clockAt is always at one moment.
type clockAt struct {
	sched.Clock
	now protocol.Instant
}

func (c clockAt) Now() protocol.Instant { return c.now }

// TestSilentForFWritesNothing: an agent that was silent for F does not put back a lease
// that it finds gone, in a term that may have ended. Once its registration is forgotten, too,
// and then this store lost, nobody would know whose that lease is (I4).
func TestSilentForFWritesNothing(t *testing.T) {
	for silent, want := range map[time.Duration]protocol.Call{time.Minute: protocol.CallCreate, 16 * time.Minute: protocol.CallNone} {
		a := assemble(&base{st: newStore(t), cfg: Config{Node: "n1"}, sched: sched.Goroutines(clockAt{now: protocol.Instant{Boot: silent}})})
		a.reg.registrar.Term, a.reg.registrar.Fence, a.reg.registrar.Self.Fence = 3, 15*time.Minute, 15*time.Minute
		r := leaseRight(Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}, netip.MustParsePrefix("10.0.0.10/32"))
		r.Phase, r.UID, r.Revision, r.Asserted, r.Term = protocol.Held, "u1", "7", 3, 3
		err := a.st.Update(context.Background(), func(tx *store.Tx) error {
			return errors.Join(tx.PutIdentity(store.Identity{Node: "n1", Term: 3}), tx.PutRight(r))
		})
		if err != nil {
			t.Fatal(err)
		}
		_, res, err := a.rights.step(context.Background(), r, func(*store.Tx, protocol.Self, protocol.Right) (protocol.Event, error) {
			return protocol.Event{Kind: protocol.EventAnswer, Call: protocol.CallRead, Outcome: protocol.NotFound}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if res.Call != want {
			t.Errorf("silent for %v: the next call is %v; want %v", silent, res.Call, want)
		}
	}
}

// TestRecheckWithoutARegistration: a recheck of a create in doubt for which the agent had no
// registration does not count as one of the three: it is made soon after, or what landed late would
// be kept from everybody until the next, half an hour later (I5).
func TestRecheckWithoutARegistration(t *testing.T) {
	for silent, want := range map[time.Duration]time.Duration{time.Minute: 24 * time.Minute, 16 * time.Minute: retryAfter} {
		a := assemble(&base{st: newStore(t), cfg: Config{Node: "n1"}, sched: sched.Goroutines(clockAt{now: protocol.Instant{Boot: silent, Wall: time.Unix(0, 0).Add(6 * time.Minute)}})})
		a.reg.registrar.Term, a.reg.registrar.Fence, a.reg.registrar.Self.Fence = 3, 15*time.Minute, 15*time.Minute
		a.reg.registrar.Sent.Wall = time.Unix(0, 0).Add(5 * time.Minute)
		r := leaseRight(Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}, netip.MustParsePrefix("10.0.0.10/32"))
		r.Phase, r.NotedAt = protocol.Noted, time.Unix(0, 0)
		err := a.st.Update(context.Background(), func(tx *store.Tx) error {
			return errors.Join(tx.PutIdentity(store.Identity{Node: "n1", Term: 3}), tx.PutRight(r))
		})
		if err != nil {
			t.Fatal(err)
		}
		answer := protocol.Event{Kind: protocol.EventAnswer, Call: protocol.CallRead}
		if _, _, err := a.rights.settle(context.Background(), r, a.rights.beginWith(answer)); err != nil {
			t.Fatal(err)
		}
		if got := a.rights.schedule.next[r.Name].at - silent; got != want {
			t.Errorf("silent for %v: the next recheck is %v later; want %v", silent, got, want)
		}
	}
}

// slowRead is an API server that has no lease, and whose answer to that is taken up much
// later: the agent's process stood still.
type slowRead struct {
	Leases
	clock *clockAt
	later time.Duration
}

func (s slowRead) ReadLease(context.Context, string) (protocol.Lease, protocol.Outcome, error) {
	s.clock.now.Boot += s.later
	s.clock.now.Wall = s.clock.now.Wall.Add(s.later)
	return protocol.Lease{}, protocol.NotFound, nil
}

// TestRecheckTakenUpLate: what a recheck has not found may have come since it was asked: it is
// the last one only if it was asked late enough, whenever its answer is taken up (I5).
func TestRecheckTakenUpLate(t *testing.T) {
	for asked, forgotten := range map[time.Duration]bool{time.Minute: false, protocol.LastRecheck: true} {
		noted := time.Unix(0, 0)
		clock := &clockAt{now: protocol.Instant{Boot: asked, Wall: noted.Add(asked)}}
		a := assemble(&base{
			st: newStore(t), cfg: Config{Node: "n1"}, sched: sched.Goroutines(clock), metrics: newMetrics(nil),
			cl: Cluster{Leases: slowRead{clock: clock, later: 35 * time.Minute}},
		})
		a.reg.registrar.Term, a.reg.registrar.Fence, a.reg.registrar.Self.Fence, a.reg.registrar.Sent.Wall = 3, 2*time.Hour, 2*time.Hour, noted
		r := leaseRight(Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}, netip.MustParsePrefix("10.0.0.10/32"))
		r.Phase, r.NotedAt = protocol.Noted, noted
		err := a.st.Update(context.Background(), func(tx *store.Tx) error {
			return errors.Join(tx.PutIdentity(store.Identity{Node: "n1", Term: 3}), tx.PutRight(r))
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := a.rights.settle(context.Background(), r, a.rights.beginWith(protocol.Event{Kind: protocol.EventRecheck})); err != nil {
			t.Fatal(err)
		}
		err = a.st.View(func(tx *store.Tx) error {
			if _, known, err := tx.Right(r.Name); err != nil || known == forgotten {
				t.Errorf("asked %v after it was noted: it is recorded: %v, %v; want %v", asked, known, err, !forgotten)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// doubtedRead is an API server that has a lease, and about which somebody begins to doubt while
// it answers.
type doubtedRead struct {
	Leases
	lease protocol.Lease
	doubt func()
}

func (d doubtedRead) ReadLease(context.Context, string) (protocol.Lease, protocol.Outcome, error) {
	d.doubt()
	return d.lease, protocol.Done, nil
}

// TestSettleKeepsARecheckThatItDoesNotMake: to settle a right makes superfluous the recheck of it
// that was planned before it asked the API server. One that was planned since may be about what
// happened after the answer, and stays. So does any if nothing is asked.
func TestSettleKeepsARecheckThatItDoesNotMake(t *testing.T) {
	for _, tt := range []struct {
		name   string
		event  protocol.EventKind
		during bool
		stays  bool
	}{
		{"a read, and a recheck that was planned before", protocol.EventRecheck, false, false},
		{"a read, and a recheck that was planned during it", protocol.EventRecheck, true, true},
		{"an ADD that needs no call, and a recheck that was planned before", protocol.EventWant, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newRestoredAgent(t)
			a.reg.history.Restored = nil
			r := leaseRight(Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}, netip.MustParsePrefix("10.0.0.10/32"))
			r.Phase, r.UID, r.Revision, r.Asserted, r.Term = protocol.Held, "u1", "7", 3, 3
			a.put(t, r)
			a.cl.Leases = doubtedRead{
				lease: protocol.Lease{
					Meta: protocol.Meta{Name: r.Name, UID: "u1", Revision: "7"}, Protocol: protocol.Version, Pool: "lan", Block: r.Block, Holder: protocol.Holder{Node: "n1"}, Store: a.st.ID(), Term: 3,
				},
				doubt: func() {
					if tt.during {
						a.rights.recheckIn(r.Name, 0)
					}
				},
			}
			a.rights.recheckIn(r.Name, time.Minute)
			_, res, err := a.rights.settle(t.Context(), r, a.rights.beginWith(protocol.Event{Kind: tt.event}))
			if err != nil || res.Verdict != protocol.VerdictUsable {
				t.Fatalf("it ends with %v, %v", res.Verdict, err)
			}
			if got := a.rights.schedule.planned(r.Name) != nil; got != tt.stays {
				t.Errorf("a recheck is planned: %v; want %v", got, tt.stays)
			}
		})
	}
}

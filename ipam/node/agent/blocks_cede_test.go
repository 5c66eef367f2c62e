package agent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestCessions: from before an address comes free until a worker has ceded it, its
// lease gives nothing; what comes free meanwhile makes the worker go round again.
func TestCessions(t *testing.T) {
	var c cessions
	pending := func(when string, want bool) {
		t.Helper()
		if got := c.pending()["l"]; got != want {
			t.Errorf("%s: pending = %v; want %v", when, got, want)
		}
	}
	pending("at first", false)
	c.expect([]string{"l", "m"})
	pending("a release is under way", true)
	if got := c.done([]string{"l", "m"}); !slices.Equal(got, []string{"l", "m"}) {
		t.Errorf("%v want a worker; want l and m", got)
	}
	if !c.next("l") {
		t.Error("nothing to cede after a release")
	}
	c.expect([]string{"l"})
	if got := c.done([]string{"l"}); len(got) > 0 {
		t.Errorf("%v want a second worker", got)
	}
	c.expect([]string{"l"}) // its transaction is not done yet
	if !c.next("l") {
		t.Error("what came free while the worker ceded is not ceded")
	}
	if c.next("l") {
		t.Error("the worker does not end")
	}
	pending("a release is under way again", true)
	if got := c.done([]string{"l"}); !slices.Equal(got, []string{"l"}) {
		t.Errorf("%v want a worker; want l", got)
	}
	if !c.next("l") || c.next("l") {
		t.Error("the second worker cedes not exactly once")
	}
	pending("in the end", false)
}

// TestReleaseThatPanics: while what is to be ceded is freed, its lease gives nothing; but
// not for ever where that ends in a panic, which the server of the node socket contains
// (I5).
func TestReleaseThatPanics(t *testing.T) {
	p := newPool("lan")
	p.known = &knownPool{Pool: Pool{Pressure: allocator.PressureExhausted}}
	a := assemble(&base{st: newStore(t), log: slog.New(slog.DiscardHandler)})
	a.pools.byName = map[protocol.PoolName]*pool{"lan": p}
	a.queue = func(task func(context.Context)) { task(t.Context()) }
	panicked := func() (value any) {
		defer func() { value = recover() }()
		return a.blocks.freeing(func(expect func(store.Attachment)) error {
			return a.st.Update(t.Context(), func(*store.Tx) error {
				expect(store.Attachment{Addresses: []store.Address{{Pool: "lan", Lease: "l"}}})
				if !a.blocks.ceding.pending()["l"] {
					t.Error("the lease gives addresses while one of them is freed that is to be ceded")
				}
				panic("a fault")
			})
		})
	}()
	if _, ok := panicked.(*store.Panic); !ok {
		t.Errorf("freeing ended with %v; want the panic of the Update", panicked)
	}
	if a.blocks.ceding.pending()["l"] {
		t.Error("the lease gives nothing any more")
	}
}

// clockBeaten is always at one moment. A heartbeat of that moment is accepted between
// the first and the second look at it.
type clockBeaten struct {
	sched.Clock
	now   protocol.Instant
	agent *Agent
	looks int
}

func (c *clockBeaten) Now() protocol.Instant {
	if c.looks++; c.looks == 2 {
		c.agent.reg.registrar.Sent = c.now
	}
	return c.now
}

// TestCedesNothingWithoutARegistration: a step that begins after F of silence cedes nothing,
// also where a heartbeat is accepted meanwhile: addresses that were barred then, and not
// recorded as ceded, nobody would give any more (I5). Nor is a recall answered then: the
// controller would believe that nothing is free.
func TestCedesNothingWithoutARegistration(t *testing.T) {
	a := assemble(&base{st: newStore(t), cfg: Config{Node: "n1"}, log: slog.New(slog.DiscardHandler), metrics: newMetrics(nil)})
	a.reg.registrar.Term, a.reg.registrar.Fence, a.reg.registrar.Self.Fence = 3, 15*time.Minute, 15*time.Minute
	a.sched = sched.Goroutines(&clockBeaten{now: protocol.Instant{Boot: 16 * time.Minute}, agent: a})
	pool := Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}
	pool.Text.Ranges = []poolspec.RangeText{{CIDR: "10.0.0.0/24"}}
	r := leaseRight(pool, netip.MustParsePrefix("10.0.0.10/31"))
	r.Phase, r.UID, r.Revision, r.Asserted, r.Term = protocol.Held, "u1", "7", 3, 3
	err := a.st.Update(t.Context(), func(tx *store.Tx) error {
		text, err := json.Marshal(pool)
		return errors.Join(err, tx.PutPool("lan", text), tx.PutIdentity(store.Identity{Node: "n1", Term: 3}), tx.PutRight(r),
			allocator.NewSpace(tx.Table("lan"), nil).Open(r.Block))
	})
	if err != nil {
		t.Fatal(err)
	}
	if a.blocks.cedeOf(t.Context(), r, nil) {
		t.Error("the API server is said to have heard of what is ceded")
	}
	err = a.st.View(func(tx *store.Tx) error {
		r, _, err := tx.Right(r.Name)
		if err != nil {
			return err
		}
		addr := r.Block.Addr()
		state, err := allocator.NewSpace(tx.Table("lan"), nil).State(addr)
		if state != allocator.Free || len(r.Ceded) > 0 {
			t.Errorf("%v is %v, and %v is recorded as ceded; want it free, and nothing ceded", addr, state, r.Ceded)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestCededWithoutAnAnswerOfTheDisk: what is ceded in a commit of which the store does not
// know whether the disk has it is nobody's until the API server has heard of it: the lease
// is rechecked soon.
func TestCededWithoutAnAnswerOfTheDisk(t *testing.T) {
	a := newRestoredAgent(t)
	path := filepath.Join(t.TempDir(), "store")
	st, err := store.Open(path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pool := Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}
	pool.Text.Ranges = []poolspec.RangeText{{CIDR: "10.0.0.0/24"}}
	r := leaseRight(pool, netip.MustParsePrefix("10.0.0.10/31"))
	r.Phase, r.UID, r.Revision, r.Asserted, r.Term = protocol.Held, "u1", "7", 3, 3
	err = st.Update(t.Context(), func(tx *store.Tx) error {
		text, err := json.Marshal(pool)
		return errors.Join(err, tx.PutPool("lan", text), tx.PutIdentity(store.Identity{Node: "n1", Term: 3}), tx.PutRight(r),
			allocator.NewSpace(tx.Table("lan"), nil).Open(r.Block))
	})
	if err := errors.Join(err, st.Close()); err != nil {
		t.Fatal(err)
	}
	// It cannot follow a commit.
	if a.st, err = store.Open(path, store.Options{Witness: store.WitnessFile(filepath.Join(path+".gone", "witness"))}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.st.Close() })
	if a.blocks.cedeOf(t.Context(), r, nil) {
		t.Error("the API server is said to have heard of what is ceded")
	}
	if now, _ := a.right(r.Name); len(now.Ceded) != 2 || a.rights.schedule.planned(r.Name) == nil {
		t.Errorf("the disk has %v as ceded, and a recheck is planned: %v; want two addresses, and a recheck", now.Ceded, a.rights.schedule.planned(r.Name) != nil)
	}
}

// awayLeases is an API server that nothing reaches: each call takes its time, and is not
// answered.
type awayLeases struct{ Leases }

func (awayLeases) ReadLease(context.Context, string) (protocol.Lease, protocol.Outcome, error) {
	time.Sleep(5 * time.Second) // kube.CallTimeout
	return protocol.Lease{}, protocol.Unknown, errors.New("no answer")
}

// TestIdleLeaseWhileTheAPIServerIsAway: a lease that is idle in an exhausted pool cannot
// be handed back while the API server does not answer, and is kept. It serves meanwhile.
func TestIdleLeaseWhileTheAPIServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newRegisteredAgent(t, awayLeases{}, shutPools{})
		a.reg.registrar.Sent, a.reg.registrar.Fence, a.reg.registrar.Self.Fence = a.sched.Now(), 15*time.Minute, 15*time.Minute
		p.known = changed(p, func(k *knownPool) { k.Pressure = allocator.PressureExhausted })
		r := leaseRight(p.known.Pool, netip.MustParsePrefix("10.0.0.4/30"))
		r.Phase, r.UID, r.Revision, r.Asserted, r.Term, r.Writes = protocol.Held, "u1", "7", 3, 3, 1
		err := a.st.Update(t.Context(), func(tx *store.Tx) error {
			return errors.Join(tx.PutRight(r), allocator.NewSpace(tx.Table("lan"), p.known.shape).Open(r.Block))
		})
		if err != nil {
			t.Fatal(err)
		}
		serves, looks := 0, 0
		for range 60 { // a minute of maintenance, and an ADD that tries every 100 ms
			a.blocks.cedeExhausted(t.Context())
			for range 10 {
				time.Sleep(100 * time.Millisecond)
				err := a.st.View(func(tx *store.Tx) error {
					ok, err := assign.Leasing{Term: a.reg.term(), Open: true, Ceding: a.blocks.ceding.pending()}.Serves(tx, r.Name)
					looks++
					if ok {
						serves++
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		now, _ := a.right(r.Name)
		if serves < looks/2 {
			t.Errorf("the lease is %s in term %d, all of it is free, and it gave addresses at %d of %d looks in a minute", now.Phase, now.Term, serves, looks)
		}
	})
}

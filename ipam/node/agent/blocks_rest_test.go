package agent

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestRestingLeaseIsKept: an idle lease is kept while an address of its block rests, unless
// addresses become scarce, or the pool is closed. It counts as nothing of the reserve.
func TestRestingLeaseIsKept(t *testing.T) {
	for _, tt := range []struct {
		name       string
		reuseAfter time.Duration
		change     func(*knownPool)
		after      time.Duration // since the address was freed
		want       int           // leases that go back
		free       int           // addresses that count as free
	}{
		{"without a reuseAfter", 0, nil, 2 * time.Minute, 1, 6},
		{"while it rests", 10 * time.Minute, nil, 9 * time.Minute, 0, 5},
		{"when it has rested", 10 * time.Minute, nil, 11 * time.Minute, 1, 6},
		{"at high pressure", 10 * time.Minute, func(k *knownPool) { k.Pressure = allocator.PressureHigh }, 2 * time.Minute, 1, 6},
		{"in a closed pool", 10 * time.Minute, func(k *knownPool) { k.Open = false }, 2 * time.Minute, 1, 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, p := newBubbleAgent(t)
				p.known.ReuseAfter = tt.reuseAfter
				if tt.change != nil {
					tt.change(p.known)
				}
				a.reg.registrar.Term = 3
				r := leaseRight(p.known.Pool, netip.MustParsePrefix("10.0.0.4/31"))
				r.Phase, r.UID, r.Revision, r.Asserted, r.Term = protocol.Held, "u1", "7", 3, 3
				space := func(tx *store.Tx) allocator.Space { return allocator.NewSpace(tx.Table("lan"), p.known.shape) }
				x := r.Block.Addr()
				err := a.st.Update(t.Context(), func(tx *store.Tx) error {
					err := errors.Join(tx.PutIdentity(store.Identity{Node: "n1", Term: 3}), tx.PutRight(r), space(tx).Open(r.Block), space(tx).Open(netip.MustParsePrefix("10.0.0.8/30")))
					return errors.Join(err, space(tx).Take(x), space(tx).Free(x))
				})
				if err != nil {
					t.Fatal(err)
				}
				a.rights.idle.since(r.Name, a.sched.Now())
				a.blocks.noteFreed(t.Context())
				time.Sleep(tt.after)
				a.blocks.noteFreed(t.Context())
				if got := a.blocks.idleRights([]protocol.Right{r}); len(got) != tt.want {
					t.Errorf("%d leases go back; want %d", len(got), tt.want)
				}
				err = a.st.View(func(tx *store.Tx) error {
					c, err := a.blocks.ready(tx, "lan", allocator.IPv4)
					if c.Free != tt.free {
						t.Errorf("%d addresses count as free; want %d", c.Free, tt.free)
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestNothingSparesWhatRests: an ADD that an address that rests will do for waits for no other
// block where none can be leased, or addresses are scarce; nor for a while after one was not to be
// had, nor longer than a moment.
func TestNothingSparesWhatRests(t *testing.T) {
	for name, change := range map[string]func(*Agent, *pool){
		"high pressure":    func(_ *Agent, p *pool) { p.known.Pressure = allocator.PressureHigh },
		"closed":           func(_ *Agent, p *pool) { p.known.Open = false },
		"in vain just now": func(a *Agent, p *pool) { p.rests.failed(a.sched.Now()) },
		"a second is over": func(*Agent, *pool) { time.Sleep(restWait) },
		"no block is left": func(a *Agent, p *pool) { // as the acquire that it begins finds
			for block := range p.known.around(assign.Slot{Family: allocator.IPv4}, netip.Addr{}) {
				p.acquires.claim(block)
			}
			p.acquires.mu.Lock()
			p.acquires.change(assign.Slot{Family: allocator.IPv4}, a.cfg.Parallel, 0)
			p.acquires.mu.Unlock()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, p := newBubbleAgent(t)
				p.known.ReuseAfter = 10 * time.Minute
				arrived := a.sched.Now()
				change(a, p)
				began := time.Now()
				if a.blocks.spareResting(t.Context(), p, assign.Slot{Family: allocator.IPv4}, arrived, a.blocks.finished.Load()) {
					t.Error("it is to look for room again")
				}
				if took := time.Since(began); took > restWait {
					t.Errorf("it has waited for %v", took)
				}
				if p.rests.spares(a.sched.Now()) == (name == "no block is left" || name == "in vain just now") {
					t.Errorf("whether another may try: %v", p.rests.spares(a.sched.Now()))
				}
				time.Sleep(restRetry)
				if !p.rests.spares(a.sched.Now()) {
					t.Error("nobody may try later")
				}
			})
		})
	}
}

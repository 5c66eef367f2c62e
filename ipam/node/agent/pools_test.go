package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// changed returns p's pool as known, with a change.
func changed(p *pool, change func(*knownPool)) *knownPool {
	known, _, _ := p.now()
	next := *known
	change(&next)
	return &next
}

// TestAwaitsPool: an ADD waits for a pool from which nothing can be leased, until news
// say that something can, but no longer than it may; and then it says why.
func TestAwaitsPool(t *testing.T) {
	shut := func(k *knownPool) { k.Open, k.Waits = false, "it waits for node n2" }
	for _, tt := range []struct {
		name   string
		before func(*knownPool)
		absent bool
		exact  string
		opens  bool
		want   string
	}{
		{name: "closed", before: shut, want: "pool lan is closed: it waits for node n2"},
		{name: "closed, and opened", before: shut, opens: true},
		{name: "closed to one address", before: shut, exact: "10.0.0.5", want: "pool lan is closed: it waits for node n2"},
		{name: "closed to one address, and opened", before: shut, exact: "10.0.0.5", opens: true},
		{name: "closed without a word", before: func(k *knownPool) { k.Open = false }, want: "pool lan is closed: see its condition Ready"},
		{name: "made again", before: func(k *knownPool) {
			k.UID, k.Open, k.Bits4, k.Bits6, k.Waits = "p2", false, 0, 0, "an earlier one has leases"
		},
			want: "pool lan is not open yet: an earlier one has leases"},
		{name: "edited", before: func(k *knownPool) { k.Edited = true }, want: "pool lan was edited, and the controller has not accepted it yet"},
		{name: "edited, and looked at", before: func(k *knownPool) { k.Edited = true }, opens: true},
		{name: "edited, to one address", before: func(k *knownPool) { k.Edited = true }, exact: "10.0.0.5", want: "pool lan was edited"},
		{name: "gone", before: func(*knownPool) {}, absent: true, want: "pool lan does not exist"},
		{name: "gone, and made again", before: func(*knownPool) {}, absent: true, opens: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, p := newBubbleAgent(t)
				slot := assign.Slot{Family: allocator.IPv4}
				if tt.exact != "" {
					slot.Exact = netip.MustParseAddr(tt.exact)
				}
				open := p.known
				p.set(changed(p, tt.before), tt.absent)
				ctx, cancel := context.WithTimeout(t.Context(), a.cfg.Wait)
				defer cancel()
				go func() {
					time.Sleep(time.Second)
					p.set(p.known, tt.absent) // news that change nothing
					time.Sleep(time.Second)
					if tt.opens {
						p.set(open, false)
					}
				}()
				began := time.Now()
				_, err := a.blocks.obtain(ctx, p, slot, 0)
				switch took := time.Since(began); {
				case tt.opens && (err != nil || took != 2*time.Second):
					t.Errorf("%v after %v; want another try after 2s", err, took)
				case !tt.opens && (!is[*notReadyError](err) || !strings.Contains(err.Error(), tt.want) || took != a.cfg.Wait):
					t.Errorf("%v after %v; want %q after %v", err, took, tt.want, a.cfg.Wait)
				}
				if got := a.blocks.finished.Load(); got != 0 {
					t.Errorf("%d acquires; want none", got)
				}
			})
		})
	}
}

// createdLeases creates leases, and deletes them.
type createdLeases struct {
	Leases
	created, deleted int
}

func (c *createdLeases) CreateLease(_ context.Context, l protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	c.created++
	l.UID, l.Revision = "u", "1"
	return l, protocol.Done, nil
}

func (c *createdLeases) ReadLease(context.Context, string) (protocol.Lease, protocol.Outcome, error) {
	return protocol.Lease{}, protocol.NotFound, nil
}

func (c *createdLeases) DeleteLease(context.Context, protocol.Meta) (protocol.Outcome, error) {
	c.deleted++
	return protocol.Done, nil
}

// shutPools shows every pool closed.
type shutPools struct{ Pools }

func (shutPools) ReadPool(_ context.Context, name protocol.PoolName) (protocol.Pool, protocol.Outcome, error) {
	return protocol.Pool{Meta: protocol.Meta{Name: string(name), UID: "p"}, Bits4: 30}, protocol.Done, nil
}

// editedPools shows every pool edited: the controller has not looked at it yet.
type editedPools struct{ Pools }

func (editedPools) ReadPool(_ context.Context, name protocol.PoolName) (protocol.Pool, protocol.Outcome, error) {
	return protocol.Pool{Meta: protocol.Meta{Name: string(name), UID: "p"}, Bits4: 30, Open: true, Edited: true, Generation: 2}, protocol.Done, nil
}

// newRegisteredAgent is newBubbleAgent on leases and pools, in term 3 of its registration.
func newRegisteredAgent(t *testing.T, leases Leases, pools Pools) (*Agent, *pool) {
	t.Helper()
	a, p := newBubbleAgent(t)
	a.cl.Leases, a.cl.Pools, a.metrics = leases, pools, newMetrics(state{a})
	a.reg.registrar.Term = 3
	err := a.st.Update(t.Context(), func(tx *store.Tx) error { return tx.PutIdentity(store.Identity{Node: "n1", Term: 3}) })
	if err != nil {
		t.Fatal(err)
	}
	return a, p
}

// obtains has an ADD without an address wait for one, for wait at most, and returns how
// long it did.
func obtains(t *testing.T, a *Agent, p *pool, exact string, wait time.Duration) (time.Duration, error) {
	t.Helper()
	slot := assign.Slot{Family: allocator.IPv4}
	if exact != "" {
		slot.Exact = netip.MustParseAddr(exact)
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	began := time.Now()
	unmet, err := a.blocks.obtain(ctx, p, slot, a.blocks.finished.Load())
	return time.Since(began), cmp.Or(unmet, err)
}

// TestAwaitsPoolThatWasJustEdited: a pool that the live read after a create finds edited,
// and not looked at by the controller, is waited for. No other block is tried, and the
// cluster is not asked: whoever looks at the pool will tell.
func TestAwaitsPoolThatWasJustEdited(t *testing.T) {
	for _, exact := range []string{"", "10.0.0.5"} {
		synctest.Test(t, func(t *testing.T) {
			leases := &createdLeases{}
			a, p := newRegisteredAgent(t, leases, editedPools{})
			took, err := obtains(t, a, p, exact, time.Second)
			if took != time.Second || !is[*notReadyError](err) || !strings.Contains(err.Error(), "pool lan was edited") || leases.created != 1 {
				t.Errorf("exactly %q: %v after %v and %d creates; want that the pool was edited, after a second and one", exact, err, took, leases.created)
			}
			go func() {
				time.Sleep(time.Second)
				p.set(changed(p, func(k *knownPool) { k.Generation = 2 }), false)
			}()
			if took, err := obtains(t, a, p, exact, time.Minute); took != time.Second || err != nil || leases.deleted != 0 {
				t.Errorf("exactly %q: %v after %v, %d leases deleted; want another try when the controller has looked", exact, err, took, leases.deleted)
			}
		})
	}
}

// TestConfirmsWhatItHasHeard: a lease serves only under the spec that this node has
// heard of, also one that had vanished: by another it might choose what is another pool's.
func TestConfirmsWhatItHasHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newRegisteredAgent(t, &createdLeases{}, editedPools{})
		p.set(changed(p, func(k *knownPool) { k.Generation = 2 }), false)
		block := netip.MustParsePrefix("10.0.0.4/30")
		for generation, want := range map[int64]protocol.Outcome{1: protocol.Unknown, 2: protocol.Done, 3: protocol.Unknown} {
			live := protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}, Bits4: 30, Open: true, Generation: generation, Ranges: []netipx.IPRange{netipx.RangeOfPrefix(block)}}
			for _, phase := range []protocol.Phase{protocol.Noted, protocol.Held} {
				r := protocol.Right{Kind: protocol.RightLease, Phase: phase, LeaseRight: protocol.LeaseRight{Pool: "lan", PoolUID: "p", Block: block}}
				if out, err := a.rights.confirmLease(r, live, protocol.Done); out != want || (err == nil) != (want == protocol.Done) {
					t.Errorf("%s, generation %d read where 2 was heard: %v, %v; want %v", phase, generation, out, err, want)
				}
			}
		}
	})
}

// TestHearsThatAnEditWasLookedAt: that the controller has looked at an edit is news also
// where it has changed nothing that the store keeps of the pool.
func TestHearsThatAnEditWasLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newRegisteredAgent(t, &createdLeases{}, editedPools{})
		known, _, _ := p.now()
		for _, edited := range []bool{true, false, true, false} {
			heard := known.Pool
			heard.Generation, heard.Edited = 7, edited
			heard.Text = poolspec.PoolText{Ranges: []poolspec.RangeText{{CIDR: "10.0.0.0/24"}}}
			if err := a.pools.hear(t.Context(), p, heard, true); err != nil {
				t.Fatal(err)
			}
			if now, _, _ := p.now(); now.Edited != edited {
				t.Errorf("the pool counts as edited: %t; heard was %t", now.Edited, edited)
			}
		}
	})
}

// TestHearsPressure: what is ceded of an exhausted pool is ceded once it is known to be
// exhausted, and once each time that it becomes so.
func TestHearsPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newRegisteredAgent(t, &createdLeases{}, editedPools{})
		var ceding []bool
		a.queue = func(func(context.Context)) { ceding = append(ceding, a.pools.exhausted("lan")) }
		known, _, _ := p.now()
		for _, tt := range []struct {
			pressure allocator.Pressure
			eased    time.Duration
			ceding   []bool // of each time until now whether the pool was known to be exhausted
		}{
			{allocator.PressureExhausted, math.MaxInt64, []bool{true}},
			{allocator.PressureExhausted, math.MaxInt64, []bool{true}},
			{allocator.PressureHigh, 0, []bool{true}},
			{allocator.PressureLow, time.Second, []bool{true}},
			{allocator.PressureExhausted, 2 * time.Second, []bool{true, true}},
		} {
			heard := known.Pool
			heard.Pressure = tt.pressure
			heard.Text = poolspec.PoolText{Ranges: []poolspec.RangeText{{CIDR: "10.0.0.0/24"}}}
			if err := a.pools.hear(t.Context(), p, heard, true); err != nil {
				t.Fatal(err)
			}
			if eased := p.acquires.eased(a.sched.Now()); eased != tt.eased || !slices.Equal(ceding, tt.ceding) {
				t.Errorf("heard that it is %s: eased for %v, ceding %t; want %v, %t", tt.pressure, eased, ceding, tt.eased, tt.ceding)
			}
			if tt.pressure != allocator.PressureExhausted {
				time.Sleep(time.Second)
			}
		}
	})
}

// deniedLeases refuses every create.
type deniedLeases struct {
	createdLeases
	why string
}

func (d *deniedLeases) CreateLease(context.Context, protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	d.created++
	return protocol.Lease{}, protocol.Refused, errors.New(d.why)
}

// TestDeniedCreateIsNotAwaited: an ADD whose lease the API server will not create, by its
// access rules or a policy, says so at once, in the API server's words: nothing would
// tell of a change. It is to be tried again, for somebody may mend it.
func TestDeniedCreateIsNotAwaited(t *testing.T) {
	for _, exact := range []string{"", "10.0.0.5"} {
		synctest.Test(t, func(t *testing.T) {
			leases := &deniedLeases{why: `ipleases.tenure.dev is forbidden: User "system:anonymous" cannot create it`}
			a, p := newRegisteredAgent(t, leases, shutPools{})
			took, err := obtains(t, a, p, exact, time.Minute)
			if took != 0 || err == nil || !strings.Contains(err.Error(), leases.why) || leases.created != 1 {
				t.Errorf("exactly %q: %v after %v and %d creates; want the API server's words at once", exact, err, took, leases.created)
			} else if got := wireError(err).Code; got != agentapi.CodeTryAgainLater {
				t.Errorf("exactly %q: code %d; want %d", exact, got, agentapi.CodeTryAgainLater)
			}
		})
	}
}

// TestAwaitsPoolThatWasJustClosed: a pool that is found closed only by the live read
// after a lease was created is waited for, too: the watch has not told of it yet.
func TestAwaitsPoolThatWasJustClosed(t *testing.T) {
	for _, exact := range []string{"", "10.0.0.5"} {
		synctest.Test(t, func(t *testing.T) {
			leases := &createdLeases{}
			a, p := newRegisteredAgent(t, leases, shutPools{})
			took, err := obtains(t, a, p, exact, time.Second)
			if took != time.Second || !is[*notReadyError](err) || !strings.Contains(err.Error(), "pool lan is closed") {
				t.Errorf("exactly %q: %v after %v; want that the pool is closed, after a second", exact, err, took)
			}
			go func() {
				time.Sleep(time.Second) // the watch is so late
				p.set(changed(p, func(k *knownPool) { k.Open = false }), false)
			}()
			if took, err := obtains(t, a, p, exact, time.Minute); took != time.Second || err != nil {
				t.Errorf("exactly %q: %v after %v; want another try when the watch has told", exact, err, took)
			}
			if leases.created != 2 || leases.deleted != 2 {
				t.Errorf("exactly %q: %d leases created, %d deleted; want 2 of each", exact, leases.created, leases.deleted)
			}
		})
	}
}

// TestAwaitsReopening: after the API server went back an ADD waits for its pool to be
// usable again, also where only another one that is heard of late stands in the way.
func TestAwaitsReopening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newBubbleAgent(t)
		a.reg.history.Restored = &protocol.Restoration{Back: true, Epoch: "1"}
		a.reg.registrar.Seen.Restored = a.reg.history.Restored.String()
		a.reg.history = a.reg.history.FirstHeard("lan")
		other := newPool("other")
		other.known = changed(p, func(k *knownPool) { k.Name, k.Epoch = "other", "1" })
		a.pools.byName["other"] = other
		conf, err := poolspec.ParseConfig([]byte(`{"cniVersion":"1.1.0","name":"lan","type":"bridge","ipam":{"type":"tenure","pool":"lan"}}`), "")
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 2)
		go func() {
			unmet, err := a.blocks.obtain(t.Context(), p, assign.Slot{Family: allocator.IPv4}, 0)
			ended <- cmp.Or(unmet, err)
		}()
		go func() { // of a claim
			_, _, err := a.claimAddresses(t.Context(), protocol.Claim{IPs: []netip.Prefix{netip.MustParsePrefix("10.0.0.5/27")}}, conf, a.pools.ready)
			ended <- err
		}()
		synctest.Wait()
		a.pools.mend(t.Context())
		synctest.Wait()
		if len(ended) > 0 {
			t.Fatalf("%v while the other pool waits", <-ended)
		}
		other.set(changed(other, func(k *knownPool) { k.Epoch = "2" }), false)
		a.pools.mend(t.Context())
		synctest.Wait()
		if len(ended) != 2 {
			t.Fatalf("%d ADDs go on; want both, since all pools are open again", len(ended))
		}
		for range 2 {
			if err := <-ended; err != nil {
				t.Errorf("%v; want that the ADD goes on", err)
			}
		}
	})
}

// TestFull: a pool is full for STATUS where it is exhausted and this node has no address left
// of a family that an ADD needs; not where only a part of it is, which somebody asked for.
func TestFull(t *testing.T) {
	const said = "pool lan is exhausted: 29 of 29 in use"
	for _, tt := range []struct {
		name, said, open string
		families         []allocator.Family
		want             string
	}{
		{name: "not exhausted"},
		{name: "nothing left", said: said, want: said},
		{name: "one family left", said: said, open: "fd00::100/122", want: said},
		{name: "the family left that is needed", said: said, open: "fd00::100/122", families: []allocator.Family{allocator.IPv6}},
		{name: "the other family left", said: said, open: "fd00::100/122", families: []allocator.Family{allocator.IPv4}, want: said},
		{name: "both left", said: said, open: "fd00::100/122 10.0.0.4/30"},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, p := newBubbleAgent(t)
			p.known.Pressure, p.known.Exhausted = allocator.PressureExhausted, tt.said
			err := a.st.Update(t.Context(), func(tx *store.Tx) error {
				for block := range strings.FieldsSeq(tt.open) {
					if err := allocator.NewSpace(tx.Table("lan"), p.known.shape).Open(netip.MustParsePrefix(block)); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if why, err := a.rights.full(t.Context(), poolspec.Source{Pool: "lan", Families: tt.families}); err != nil || why != tt.want {
				t.Errorf("%s: full says %q, %v; want %q", tt.name, why, err, tt.want)
			}
		})
	}
}

// toldOnce tells of a pool once, as a watch does of one that does not change any more.
type toldOnce struct {
	Pools
	pool Pool
}

func (o toldOnce) Follow(ctx context.Context, _ protocol.PoolName, changed func(Pool, bool)) error {
	changed(o.pool, true)
	<-ctx.Done()
	return nil
}

// TestPoolThatCannotBeRead: who waits for a pool whose spec is invalid is told so, in the words of
// its condition where it has one, and not that the API server is silent.
func TestPoolThatCannotBeRead(t *testing.T) {
	for _, tt := range []struct{ waits, want string }{
		{"", `pool lan cannot be used: spec.ranges[0].cidr: "10.0.0.300/24" `},
		{"spec.ranges[0].cidr is none", "pool lan cannot be used: spec.ranges[0].cidr is none"},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, _ := newBubbleAgent(t)
			heard := Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}, Waits: tt.waits}
			heard.Text.Ranges = []poolspec.RangeText{{CIDR: "10.0.0.300/24"}}
			p := newPool("lan")
			a.pools.byName["lan"] = p
			ctx, cancel := context.WithTimeout(t.Context(), a.cfg.Wait)
			defer cancel()
			if a.pools.hear(ctx, p, heard, true) == nil {
				t.Fatal("the pool is taken over")
			}
			_, err := a.pools.ready(ctx, "lan")
			if !is[*notReadyError](err) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v; want %q", err, tt.want)
			}
		})
	}
}

// TestPoolHeardWhileTheStoreFails: a pool that is heard of at the moment at which the
// store cannot take it is taken over later.
func TestPoolHeardWhileTheStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails atomic.Bool
		st, err := store.Open(filepath.Join(t.TempDir(), "store"), store.Options{Fail: func(point string) {
			if point == "before-commit" && fails.CompareAndSwap(true, false) {
				panic(errors.New("the disk fails once"))
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		heard := Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}, Open: true, Bits4: 30}}
		heard.Text.Ranges = []poolspec.RangeText{{CIDR: "10.0.0.0/27"}}
		a := assemble(&base{st: st, sched: sched.Goroutines(bubbleClock{time.Now()}), log: slog.New(slog.DiscardHandler), cl: Cluster{Pools: toldOnce{pool: heard}}})
		p := newPool("lan")
		a.pools.byName["lan"] = p
		ctx, cancel := context.WithCancel(t.Context())
		var following sync.WaitGroup
		a.queue = func(task func(context.Context)) { following.Go(func() { task(ctx) }) }
		fails.Store(true)
		following.Go(func() { _ = a.pools.followPool(ctx, "lan", p) })
		time.Sleep(time.Minute)
		cancel()
		following.Wait()
		known, absent, _ := p.now()
		if why := unready(known, absent); why != "" {
			t.Errorf("a minute later ADDs are told that pool lan %s", why)
		}
	})
}

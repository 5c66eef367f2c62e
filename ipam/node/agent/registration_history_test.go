package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// listOf is a live list of that revision, which is none if the list fails.
type listOf struct {
	Leases
	SubLeases
	rev protocol.Revision
	err error
}

func (l listOf) NodeLeases(context.Context, protocol.NodeName) ([]protocol.Lease, protocol.Revision, error) {
	return []protocol.Lease{{}}, l.rev, l.err
}

func (l listOf) NodeSubLeases(context.Context, protocol.NodeName) ([]protocol.SubLease, protocol.Revision, error) {
	return []protocol.SubLease{{}}, l.rev, l.err
}

// TestListOfAnEarlierState: a list below the highest revision that was seen shows
// that the API server has gone back, and is not relied upon. One at it or above is,
// and counts from then on; one without an answer says nothing.
func TestListOfAnEarlierState(t *testing.T) {
	broken := errors.New("an object cannot be read")
	tests := []struct {
		name  string
		list  listOf
		err   error
		wound bool
		seen  uint64
	}{
		{name: "at the highest", list: listOf{rev: "100"}, seen: 100},
		{name: "above it", list: listOf{rev: "101"}, seen: 101},
		{name: "in part", list: listOf{rev: "101", err: broken}, err: broken, seen: 101},
		{name: "no answer", list: listOf{err: broken}, err: broken, seen: 100},
		{name: "below it", list: listOf{rev: "99"}, err: errRewound, wound: true},
		{name: "below it, in part", list: listOf{rev: "99", err: broken}, err: errRewound, wound: true},
	}
	for _, tt := range tests {
		for kind, list := range map[string]func(*Agent) (int, error){
			"leases of the node": func(a *Agent) (int, error) {
				all, _, err := carefulLeases{tt.list, a.rights}.NodeLeases(t.Context(), "n1")
				return len(all), err
			},
			"sub-leases of the node": func(a *Agent) (int, error) {
				all, _, err := carefulSubLeases{tt.list, a.rights}.NodeSubLeases(t.Context(), "n1")
				return len(all), err
			},
		} {
			t.Run(tt.name+", "+kind, func(t *testing.T) {
				a := assemble(&base{
					st: newStore(t), cfg: Config{Node: "n1"}, log: slog.New(slog.DiscardHandler), metrics: newMetrics(nil),
				})
				a.reg.history = protocol.History{}.SawObject("100")
				n, err := list(a)
				if !errors.Is(err, tt.err) || (n == 0) != tt.wound {
					t.Errorf("%d objects, error %v; want error %v, and objects: %v", n, err, tt.err, !tt.wound)
				}
				if h := a.reg.history; (h.Restored != nil) != tt.wound || h.Objects != tt.seen {
					t.Errorf("history %+v; want revision %d, gone back: %v", h, tt.seen, tt.wound)
				}
			})
		}
	}
}

// shortOf are live reads of objects as they were before the store's records of them.
type shortOf struct {
	Leases
	SubLeases
	store protocol.StoreID
}

func (s shortOf) ReadLease(_ context.Context, name string) (protocol.Lease, protocol.Outcome, error) {
	return protocol.Lease{Meta: protocol.Meta{Name: name, UID: "u", Revision: "50"}, Writes: 2, Store: s.store}, protocol.Done, nil
}

func (shortOf) ReadSubLease(_ context.Context, name string) (protocol.SubLease, protocol.Outcome, error) {
	return protocol.SubLease{Meta: protocol.Meta{Name: name, UID: "u", Revision: "50"}, Writes: 2}, protocol.Done, nil
}

// TestRecordOfALaterState: an object that comes short of its record shows once that
// the API server has gone back. From then on it is what there is, and the node can say
// its right anew: it does not begin again with each recheck.
func TestRecordOfALaterState(t *testing.T) {
	for kind, read := range map[string]func(*Agent) (protocol.Outcome, error){
		"lease": func(a *Agent) (protocol.Outcome, error) {
			_, out, err := carefulLeases{shortOf{store: a.st.ID()}, a.rights}.ReadLease(t.Context(), "x")
			return out, err
		},
		"sub-lease": func(a *Agent) (protocol.Outcome, error) {
			_, out, err := carefulSubLeases{shortOf{}, a.rights}.ReadSubLease(t.Context(), "x")
			return out, err
		},
	} {
		t.Run(kind, func(t *testing.T) {
			a := assemble(&base{
				st: newStore(t), cfg: Config{Node: "n1"}, log: slog.New(slog.DiscardHandler), metrics: newMetrics(nil),
			})
			r := protocol.Right{Kind: protocol.RightUse, Name: "x", Phase: protocol.Releasing, UID: "u", Revision: "70", Writes: 3}
			if err := a.st.Update(t.Context(), func(tx *store.Tx) error { return tx.PutRight(r) }); err != nil {
				t.Fatal(err)
			}
			if out, err := read(a); out != protocol.Unknown || !errors.Is(err, errRewound) || a.reg.history.Restored == nil {
				t.Fatalf("first: %v, %v, history %+v; want that the API server has gone back", out, err, a.reg.history)
			}
			if out, err := read(a); out != protocol.Done || err != nil || a.reg.rewinds != 1 {
				t.Errorf("then: %v, %v, era %d; want the object, in the same era", out, err, a.reg.rewinds)
			}
		})
	}
}

// TestEpochSinceTheHeartbeat: the history is kept with each heartbeat, and a pool as
// soon as it is heard of. An agent that starts again on data of an earlier state must not
// take the epoch that it had heard of last for one that came after.
func TestEpochSinceTheHeartbeat(t *testing.T) {
	a := newRestoredAgent(t)
	lan := Pool{
		Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}, Open: true, Bits4: 32, Epoch: "w2"},
		Text: poolspec.PoolText{Ranges: []poolspec.RangeText{{CIDR: "10.0.0.0/24"}}},
	}
	text, err := json.Marshal(lan)
	if err != nil {
		t.Fatal(err)
	}
	err = a.st.Update(t.Context(), func(tx *store.Tx) error {
		return errors.Join(tx.PutHistory(protocol.History{}.SawObject("100").SawEpoch("w1")), tx.PutPool("lan", text))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.reg.wrote(t.Context(), a.reg.era(), "99"); !errors.Is(err, errRewound) {
		t.Fatalf("%v; want that the API server has gone back", err)
	}
	if err := a.pools.underRestore("lan"); err == nil {
		t.Error("a block may be leased by an epoch of before; want that the pool is waited for")
	}
}

// openPools are pools that were opened by this word.
type openPools struct {
	Pools
	word string
}

func (p openPools) ReadPool(_ context.Context, name protocol.PoolName) (protocol.Pool, protocol.Outcome, error) {
	return protocol.Pool{Meta: protocol.Meta{Name: string(name)}, Open: true, Epoch: p.word}, protocol.Done, nil
}

// TestEpochOfALiveRead: a lease that a live read of its pool has confirmed rests on
// what that showed, also where the watch is behind and the agent ends before its next
// heartbeat.
func TestEpochOfALiveRead(t *testing.T) {
	a := newRestoredAgent(t)
	a.reg.heardEpoch(protocol.Pool{Epoch: "w2"}, false) // the watch has told, and the store does not have it yet
	if _, out, err := (carefulPools{openPools{word: "w2"}, a.rights}).ReadPool(t.Context(), "lan"); out != protocol.Done || err != nil {
		t.Fatalf("%v, %v; want the pool", out, err)
	}
	err := a.st.View(func(tx *store.Tx) error {
		h, err := tx.History()
		if h.Epoch != "w2" {
			t.Errorf("history %+v; want the epoch in it", h)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestFirstHeardOverARestart: a pool of which the node first hears after a restore may show what
// the restored data have. An agent that starts then leases nothing of it either.
func TestFirstHeardOverARestart(t *testing.T) {
	a := newRestoredAgent(t)
	a.reg.history = protocol.History{}.SawEpoch("1").Rewound()
	heard := Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "u"}, Open: true, Bits4: 30, Epoch: "2"}, Text: poolspec.PoolText{Ranges: []poolspec.RangeText{{CIDR: "10.2.0.0/27"}}}}
	if err := a.pools.hear(t.Context(), a.pools.get("lan"), heard, true); err != nil {
		t.Fatal(err)
	}
	b := newRestoredAgent(t)
	b.st = a.st
	if err := b.resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !a.pools.isUnderRestore("lan") || !b.pools.isUnderRestore("lan") {
		t.Errorf("under restore: %v, and after a restart %v; want both", a.pools.isUnderRestore("lan"), b.pools.isUnderRestore("lan"))
	}
	if !b.reg.endRestore(b.reg.era().rewinds) || b.pools.isUnderRestore("lan") {
		t.Error("it is under restore when the others wait no more")
	}
}

// TestStoppedPoolHoldsNothingUp: a pool that is stopped waits for the nodes as others do, and then
// no more: what is idle of it goes back, claims of it are confirmed, and pools that people make
// later are leased from.
func TestStoppedPoolHoldsNothingUp(t *testing.T) {
	a := newRestoredAgent(t)
	hear := func(p Pool) {
		t.Helper()
		p.Text = poolspec.PoolText{Ranges: []poolspec.RangeText{{CIDR: "10.2.0.0/27"}}}
		if err := a.pools.hear(t.Context(), a.pools.get(protocol.PoolName(p.Name)), p, true); err != nil {
			t.Fatal(err)
		}
	}
	old := Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "old", UID: "o"}, Bits4: 30, Epoch: "1"}, Stopped: true}
	hear(old)
	_ = a.reg.read(t.Context(), a.reg.era(), true)
	hear(Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "new", UID: "n"}, Open: true, Bits4: 30, Epoch: "9"}})
	want := func(when, ofOld, ofNew string) {
		t.Helper()
		for name, want := range map[protocol.PoolName]string{"old": ofOld, "new": ofNew} {
			got := ""
			if err := a.pools.underRestore(name); err != nil {
				got = strings.TrimPrefix(err.Error(), "the API server has gone back to an earlier state, and ")
			}
			if got != want {
				t.Errorf("%s: pool %s: %q; want %q", when, name, got, want)
			}
		}
	}
	const waits, besides = "pool old waits until the nodes have put back what they hold", "; until then nothing is leased of pool new either, of which this node has heard since"
	want("nothing is put back", waits, waits+besides)
	a.reg.notePutBack(a.reg.era().rewinds)
	a.reg.registrar.Term, a.reg.registrar.Seen.Restored = 9, a.reg.restored().String()
	want("this node alone has put back what it holds", waits, waits+besides)
	a.pools.get("old").refuse("cannot be used: no ranges")
	want("the pool cannot be read", waits+" (cannot be used: no ranges)", waits+" (cannot be used: no ranges)"+besides)
	a.pools.mend(t.Context())
	if a.reg.restored() == nil {
		t.Error("the restore has ended while a pool waits")
	}
	old.Epoch = "2" // the controller has waited
	old.Text.Ranges = []poolspec.RangeText{{CIDR: "10.2.0.0/99"}}
	if a.pools.hear(t.Context(), a.pools.get("old"), old, true) == nil {
		t.Fatal("a pool without a readable range is taken over")
	}
	want("the nodes have put back what they hold", "", "")
	a.pools.mend(t.Context())
	if a.reg.restored() != nil {
		t.Error("the restore has not ended, although no pool waits")
	}
}

// TestHeardSinceWaitsForThisNode: a pool that is first heard of since waits until this node has put
// back what it holds, and says what that is.
func TestHeardSinceWaitsForThisNode(t *testing.T) {
	a := newRestoredAgent(t)
	_ = a.reg.read(t.Context(), a.reg.era(), true)
	a.reg.history = a.reg.history.FirstHeard("new")
	a.pools.get("new").known = &knownPool{Pool: Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "new"}, Epoch: "9"}}}
	const yet = "this node has yet to put back what it holds, and to say so"
	want := func(what string) {
		t.Helper()
		if err := a.pools.underRestore("new"); err == nil || !strings.Contains(err.Error(), what+"; until then") {
			t.Errorf("%v; want %q", err, what)
		}
	}
	want(yet)
	a.reg.noteDisputed("lan.0a000008.30", true)
	want(yet + " (lan.0a000008.30: another store has it, as the API server has it now)")
	a.reg.noteLate(t.Context(), "lan.0a000004.30", "the API server does not answer")
	want(yet + " (lan.0a000004.30: the API server does not answer)")
	a.reg.notePutBack(a.reg.era().rewinds)
	a.reg.noteDisputed("lan.0a000008.30", false)
	want(yet)
	a.reg.registrar.Term, a.reg.registrar.Seen.Restored = 9, a.reg.restored().String()
	if err := a.pools.underRestore("new"); err != nil {
		t.Error(err)
	}
}

// TestFollowsPoolsOfItsLeases: a lease that a lost store left is taken up without following its
// pool. After a restore the agent waits for that pool, so it follows it.
func TestFollowsPoolsOfItsLeases(t *testing.T) {
	a := newRestoredAgent(t)
	r := leaseRight(Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}, netip.MustParsePrefix("10.0.0.10/32"))
	r.Phase, r.UID = protocol.Held, "u"
	a.put(t, r)
	a.pools.mend(t.Context())
	if a.pools.entry("lan") == nil {
		t.Fatal("it does not follow pool lan")
	}
	heard := Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}, Open: true, Bits4: 30, Epoch: "w0"}, Text: poolspec.PoolText{Ranges: []poolspec.RangeText{{CIDR: "10.0.0.0/27"}}}}
	for epoch, want := range map[string]bool{"w0": true, "w1": true, "w2": false} {
		b := newRestoredAgent(t)
		b.put(t, r)
		heard.Epoch = epoch
		if err := b.pools.hear(t.Context(), b.pools.get("lan"), heard, true); err != nil {
			t.Fatal(err)
		}
		if got := b.pools.isUnderRestore("lan"); got != want {
			t.Errorf("open in epoch %s: under restore %v; want %v", epoch, got, want)
		}
	}
}

// TestRegistrationIsKept: a pool that is first heard of while a registration is being recorded does
// not take that for the one of before the restore.
func TestRegistrationIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newRestoredAgent(t)
		st, hang := newHangingStore(t)
		a.st, a.reg.history = st, protocol.History{}.SawEpoch("1")
		_ = a.reg.read(t.Context(), a.reg.era(), true)
		next := a.reg.current()
		next.Self, next.Term, next.LastTerm, next.Sent = protocol.Identity{Node: "n1", Boot: "b", Store: st.ID()}, next.LastTerm+1, next.LastTerm+1, a.sched.Now()
		goOn := hang(func(tx *store.Tx) error { return tx.PutPool("x", []byte("{}")) })
		go func() { _ = a.reg.accept(t.Context(), 0, a.reg.era().rewinds, next) }()
		synctest.Wait()
		heard := Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "u"}, Epoch: "2"}, Text: poolspec.PoolText{Ranges: []poolspec.RangeText{{CIDR: "10.2.0.0/27"}}}}
		go func() { _ = a.pools.hear(t.Context(), a.pools.get("lan"), heard, true) }()
		synctest.Wait()
		goOn()
		synctest.Wait()
		if err := st.View(func(tx *store.Tx) error {
			id, err := tx.Identity()
			if id.Boot != "b" || id.Term != next.Term {
				t.Errorf("the store has boot %q, term %d; want b, %d", id.Boot, id.Term, next.Term)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// TestPutBackBeforeAnotherRestore: what was put back before the API server went back once more has
// to be put back again.
func TestPutBackBeforeAnotherRestore(t *testing.T) {
	a := newRestoredAgent(t)
	a.reg.history = protocol.History{}.Rewound()
	first := a.reg.era().rewinds
	_ = a.reg.read(t.Context(), a.reg.era(), true)
	if second := a.reg.restored(); a.reg.notePutBack(first) || second.Back {
		t.Error("all is put back, by what was before")
	}
}

// TestHistoryWithoutARegistration: an agent that is killed before it has recorded that the API
// server has gone back, and has recorded a pool's epoch since, does not start with the registration
// of before.
func TestHistoryWithoutARegistration(t *testing.T) {
	a := newRestoredAgent(t)
	if err := a.st.Update(t.Context(), func(tx *store.Tx) error { return tx.PutIdentity(store.Identity{Node: "n1", Boot: "b", Term: 3}) }); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_ = a.reg.read(ended, a.reg.era(), true) // its own record fails
	if err := a.reg.readEpoch(t.Context(), protocol.Pool{Epoch: "2"}); err != nil {
		t.Fatal(err)
	}
	if err := a.st.View(func(tx *store.Tx) error {
		id, err := tx.Identity()
		if id.Boot != "" || id.Term <= 3 {
			t.Errorf("the store has the registration of boot %q, term %d; want none, and a term above 3", id.Boot, id.Term)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// newRestoredAgent returns an agent that has a registration in term 3, and follows no pool.
func newRestoredAgent(t *testing.T) *Agent {
	t.Helper()
	a := assemble(&base{
		st: newStore(t), cfg: Config{Node: "n1", Parallel: 1}, log: slog.New(slog.DiscardHandler), metrics: newMetrics(nil), sched: sched.Goroutines(clockAt{}),
	})
	a.pools.follow = func(protocol.PoolName, *pool) {}
	a.reg.registrar.Term, a.reg.registrar.Seen.UID = 3, "registration"
	if err := a.st.Update(t.Context(), func(tx *store.Tx) error { return tx.PutIdentity(store.Identity{Node: "n1", Term: 3}) }); err != nil {
		t.Fatal(err)
	}
	return a
}

// put records a right, and has the agent know that the API server has gone back since a
// pool was opened.
func (a *Agent) put(t *testing.T, r protocol.Right) {
	t.Helper()
	a.reg.history = protocol.History{}.SawEpoch("w1").Rewound()
	if err := a.st.Update(t.Context(), func(tx *store.Tx) error { return tx.PutRight(r) }); err != nil {
		t.Fatal(err)
	}
}

// shownLease is a lease as it is read, and counts what is asked about it.
type shownLease struct {
	Leases
	lease protocol.Lease
	gone  bool
	reads int
}

func (*shownLease) DeleteLease(context.Context, protocol.Meta) (protocol.Outcome, error) {
	return protocol.Done, nil
}

func (s *shownLease) ReadLease(context.Context, string) (protocol.Lease, protocol.Outcome, error) {
	if s.reads++; s.gone {
		return protocol.Lease{}, protocol.NotFound, nil
	}
	return s.lease, protocol.Done, nil
}

// TestLostGoesBack: while a pool is closed after a restore nothing that is Held is given
// back. What is Lost is: it may stand in the way of whoever puts the block back, or have
// the size that keeps the pool closed (I4). So is a lease that was made again, and that its
// pool has not confirmed.
func TestLostGoesBack(t *testing.T) {
	for _, tt := range []struct {
		phase protocol.Phase
		term  int64
		want  bool
	}{{protocol.Held, 3, true}, {protocol.Held, 0, false}, {protocol.Lost, 3, false}} {
		a := newRestoredAgent(t)
		r := leaseRight(Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}, netip.MustParsePrefix("10.0.0.10/32"))
		r.Phase, r.UID, r.Revision, r.Asserted, r.Term = tt.phase, "u1", "7", 3, tt.term
		a.put(t, r)
		a.cl.Leases = &shownLease{lease: protocol.Lease{Meta: protocol.Meta{Name: r.Name, UID: "u2"}, Store: "another"}}
		a.blocks.giveBack(t.Context())
		// It has been idle since.
		a.sched = sched.Goroutines(clockAt{now: protocol.Instant{Boot: time.Hour, Wall: time.Time{}.Add(time.Hour)}})
		a.blocks.giveBack(t.Context())
		if _, known := a.right(r.Name); known != tt.want {
			t.Errorf("%s, confirmed in term %d: recorded %v; want %v", tt.phase, tt.term, known, tt.want)
		}
	}
}

// TestEarlierPool: while a pool is closed after a restore a lease of an earlier pool of
// its name goes back: the pool waits for that, and would be closed for ever (I4).
func TestEarlierPool(t *testing.T) {
	for uid, kept := range map[protocol.UID]bool{"p": true, "q": false} {
		a := newRestoredAgent(t)
		r := leaseRight(Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}, netip.MustParsePrefix("10.0.0.10/32"))
		r.Phase, r.UID, r.Revision, r.Asserted, r.Term = protocol.Held, "u1", "7", 3, 3
		a.put(t, r)
		a.pools.byName["lan"] = newPool("lan")
		a.pools.byName["lan"].set(&knownPool{Pool: Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: uid}, Epoch: "w1"}}}, false)
		if err := a.pools.keptBack(r); (err != nil) != kept {
			t.Errorf("a lease of pool p while lan is %s: %v; want it kept: %v", uid, err, kept)
		}
	}
}

// TestAnothersLease: a lease that another has leased before he noticed keeps an agent
// from saying that it is back, for he may give it back. Where F is 0 he would be waited for
// for ever: he may keep it as long as the pool is closed.
func TestAnothersLease(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fence time.Duration
		store protocol.StoreID
		gone  bool // it is no longer there when it is read once more
		back  bool
	}{
		{"F is 0", 0, "another", false, true},
		{"F is 0, and the lease is this node's", 0, "", false, false},
		{"F is 0, and the lease has gone", 0, "another", true, false},
		{"F passes", 15 * time.Minute, "another", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newRestoredAgent(t)
			a.cfg.Fence = tt.fence
			r := leaseRight(Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}, netip.MustParsePrefix("10.0.0.10/32"))
			r.Phase, r.UID, r.Revision, r.Asserted, r.Term = protocol.Held, "u1", "7", 2, 2
			a.put(t, r)
			if a.reg.putBack(t.Context(), 3) {
				t.Error("it is back before it has read the lease")
			}
			shown := &shownLease{lease: protocol.Lease{Meta: protocol.Meta{Name: r.Name, UID: "u2"}, Pool: "lan", Store: cmp.Or(tt.store, a.st.ID())}}
			leases := carefulLeases{shown, a.rights}
			_, _, _ = leases.ReadLease(t.Context(), r.Name)
			if shown.gone = tt.gone; tt.gone {
				_, _, _ = leases.ReadLease(t.Context(), r.Name)
			}
			if got := a.reg.putBack(t.Context(), 3); got != tt.back {
				t.Errorf("it is back: %v; want %v", got, tt.back)
			}
		})
	}
}

// TestFenceThatIsNotSent: a fencing write that waits for its pool after a restore has
// not been sent. Nothing is read to find out about it, and it is rechecked soon.
func TestFenceThatIsNotSent(t *testing.T) {
	a := newRestoredAgent(t)
	r := leaseRight(Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}, netip.MustParsePrefix("10.0.0.10/32"))
	r.Phase, r.UID, r.Revision, r.Asserted = protocol.Noted, "u1", "7", 2
	a.put(t, r)
	leases := &shownLease{lease: protocol.Lease{
		Meta: protocol.Meta{Name: r.Name, UID: "u1", Revision: "7"}, Pool: "lan", Block: r.Block, Holder: protocol.Holder{Node: "n1"}, Store: a.st.ID(), Term: 2,
	}}
	a.cl.Leases = carefulLeases{leases, a.rights}
	_, res, err := a.rights.settle(t.Context(), r, a.rights.beginWith(protocol.Event{Kind: protocol.EventRecheck}))
	if err != nil || res.Verdict != protocol.VerdictLater || leases.reads != 1 || a.rights.schedule.next[r.Name].at != retryAfter {
		t.Errorf("%v, %v after %d reads, next recheck in %v; want that of its recheck alone, and another in %v", res.Verdict, err, leases.reads, a.rights.schedule.next[r.Name].at, retryAfter)
	}
}

// unanswered is a request as the restored data have it: there, and without its answer.
type unanswered struct {
	SubLeases
	sub protocol.SubLease
}

func (u *unanswered) ReadSubLease(context.Context, string) (protocol.SubLease, protocol.Outcome, error) {
	return u.sub, protocol.Done, nil
}

func (u *unanswered) UpdateSubLease(_ context.Context, _, next protocol.SubLease) (protocol.SubLease, protocol.Outcome, error) {
	u.sub.Term, u.sub.Writes, u.sub.Revision = next.Term, next.Writes, "9"
	return u.sub, protocol.Done, nil
}

// warned are the events about the node.
type warned struct {
	Events
	said []string
}

func (*warned) WarnPod(protocol.PodRef, string, string) {}

func (w *warned) WarnNode(_ protocol.NodeName, _ protocol.UID, reason, message string) {
	w.said = append(w.said, reason+" "+message)
}

// TestRequestWithoutItsAnswer: a request was in the backup without the answer that it
// had later. Nothing is concluded while the pool is closed: it may be answered as before.
// Once the pool is open its addresses may be others', and people are told; another answer
// says the same.
func TestRequestWithoutItsAnswer(t *testing.T) {
	x, y := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	for _, tt := range []struct {
		name   string
		open   bool
		answer []protocol.Granted
		phase  protocol.Phase
		serves bool
	}{
		{"the pool is closed", false, nil, protocol.Held, false},
		{"the pool is open", true, nil, protocol.Lost, false},
		{"the same answer", true, []protocol.Granted{{Addr: x, Lease: "lan.1"}}, protocol.Held, true},
		{"another answer", true, []protocol.Granted{{Addr: y, Lease: "lan.2"}}, protocol.Lost, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newRestoredAgent(t)
			said := &warned{}
			a.cl.Events = said
			request := &protocol.Request{Pod: protocol.PodRef{Namespace: "ns", Name: "p", UID: "pod"}, Interface: "net1", Wants: []protocol.Wanted{{Pool: "lan"}}}
			r := protocol.Right{
				Kind: protocol.RightRequest, Name: "r", Phase: protocol.Held, UID: "u", Revision: "3", Writes: 1, Asserted: 2, Term: 2, SubLeaseRight: protocol.SubLeaseRight{Request: request, Addrs: []netip.Addr{x}, Leases: []string{protocol.LeaseName("lan", netip.PrefixFrom(x, 32))}},
			}
			a.put(t, r)
			if tt.open {
				a.reg.history.Restored = nil
			}
			a.cl.SubLeases = carefulSubLeases{&unanswered{sub: protocol.SubLease{
				Meta: protocol.Meta{Name: "r", UID: "u", Revision: "3"}, Protocol: protocol.Version, Node: "n1", Store: a.st.ID(), Term: 2, Writes: 1, Request: request, Granted: tt.answer,
			}}, a.rights}
			if _, _, err := a.rights.settle(t.Context(), r, a.rights.beginWith(protocol.Event{Kind: protocol.EventRecheck})); err != nil {
				t.Fatal(err)
			}
			now, _ := a.right("r")
			if now.Phase != tt.phase || now.Usable(3) != tt.serves {
				t.Errorf("the request is %+v; want it %s, serving: %v", now, tt.phase, tt.serves)
			}
			if (len(said.said) == 1) != (tt.phase == protocol.Lost) {
				t.Errorf("people were told %q", said.said)
			}
		})
	}
}

// TestNamesThePoolThatIsReadLive: a pool that the watch shows in a later epoch, and a live read
// does not, is named as the one that is waited for.
func TestNamesThePoolThatIsReadLive(t *testing.T) {
	a := newRestoredAgent(t)
	a.reg.history = protocol.History{}.SawEpoch("1").Rewound()
	p := a.pools.get("lan")
	p.set(&knownPool{Pool: Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan"}, Open: true, Epoch: "2"}}}, false)
	_, _, err := carefulPools{openPools{word: "1"}, a.rights}.ReadPool(t.Context(), "lan")
	if want := "the API server has gone back to an earlier state, and pool lan waits until the nodes have put back what they hold"; err == nil || err.Error() != want {
		t.Errorf("%v; want %q", err, want)
	}
}

package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestReady: an agent that resumes serves at once, and is ready when the API server knows
// what its node holds: whoever restored etcd starts the controller then, which gives
// claims the addresses that no lease covers. What cannot be said is not waited for.
func TestReady(t *testing.T) {
	for _, tt := range []struct {
		name      string
		announced announcement
		said      int64 // the term in which the node's lease was said last
		others    bool  // it is another's
		unseen    bool  // a list has shown that it is not there, and no answer since
		back      bool  // the API server has gone back, and this has yet to be put back
		want      bool
	}{
		{name: "no heartbeat was accepted", announced: announcement{listed: true}, said: 2},
		{name: "nor will one be: the API server is away", announced: announcement{since: -readyTimeout}, said: 2},
		{name: "nothing can be listed", announced: announcement{heard: true, since: -readyTimeout}, said: 2, want: true},
		{name: "nothing was listed", announced: announcement{heard: true}, said: 2},
		{name: "all is said", announced: announcement{heard: true, listed: true}, said: 2, want: true},
		{name: "a recheck is under way", announced: announcement{heard: true, listed: true}, said: 2, unseen: true},
		{name: "a recheck has found another's", announced: announcement{heard: true, listed: true}, said: 2, others: true, unseen: true, want: true},
		{name: "a recheck finds nothing out", announced: announcement{heard: true, listed: true, since: -readyTimeout}, said: 2, unseen: true, want: true},
		{name: "a lease was said in an earlier term", announced: announcement{heard: true, listed: true}, said: 1},
		{name: "a lease is another's", announced: announcement{heard: true, listed: true}, said: 1, others: true, want: true},
		{name: "a lease cannot be said", announced: announcement{heard: true, listed: true, since: -readyTimeout}, said: 1, want: true},
		{name: "a lease cannot be said after a restore", announced: announcement{heard: true, listed: true, since: -readyTimeout}, said: 1, back: true},
		{name: "nothing can be listed after a restore", announced: announcement{heard: true, since: -readyTimeout}, said: 2, back: true},
		{name: "a lease is another's after a restore", announced: announcement{heard: true, listed: true, since: -readyTimeout}, said: 1, others: true, back: true, want: true},
		{name: "it was ready before", announced: announcement{done: true}, said: 1, want: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := assemble(&base{st: newStore(t), cfg: Config{Node: "n1"}, sched: sched.Goroutines(stoppedClock{}), log: slog.New(slog.DiscardHandler)})
			now := a.sched.Now()
			a.reg.registrar = protocol.Registrar{Self: protocol.Identity{Node: "n1"}, Term: 2, Sent: now}
			a.reg.announced = tt.announced
			a.reg.announced.since += now.Boot
			lease := protocol.Right{Kind: protocol.RightLease, Name: "lan.0a000000.26", Phase: protocol.Held, UID: "u", Asserted: tt.said, Term: tt.said}
			if tt.back {
				a.reg.history.Restored = &protocol.Restoration{}
			}
			if tt.others {
				a.reg.noteDisputed(lease.Name, true)
			}
			if tt.unseen {
				a.reg.unseen = map[string]bool{lease.Name: true}
			}
			if err := a.st.Update(t.Context(), func(tx *store.Tx) error { return tx.PutRight(lease) }); err != nil {
				t.Fatal(err)
			}
			if got, why := a.Ready(t.Context()); got != tt.want {
				t.Errorf("ready: %v (%s); want %v", got, why, tt.want)
			}
		})
	}
}

// TestReadyAnewAfterRestore: an agent that was ready, and sees that the API server has gone
// back, is not before what its node holds was said once more: whoever restored etcd waits
// for that.
func TestReadyAnewAfterRestore(t *testing.T) {
	a := newRestoredAgent(t)
	self := protocol.Identity{Node: "n1"}
	a.reg.registrar = protocol.Registrar{Self: self, Term: 3, Sent: a.sched.Now()}
	a.reg.announced.done = true
	ready := func(when string, want bool) {
		t.Helper()
		if got, why := a.Ready(t.Context()); got != want {
			t.Errorf("%s: ready %v (%s); want %v", when, got, why, want)
		}
	}
	ready("before", true)
	before := a.reg.era().rewinds
	if err := a.reg.read(t.Context(), a.reg.era(), true); !errors.Is(err, errRewound) {
		t.Fatalf("an answer of an earlier state: %v; want %v", err, errRewound)
	}
	if err := a.reg.accept(t.Context(), 0, a.reg.era().rewinds, protocol.Registrar{Self: self, Term: 4, Sent: a.sched.Now()}); err != nil {
		t.Fatal(err)
	}
	ready("registered again", false)
	a.reg.compared(before, nil)
	ready("listed before it went back", false)
	a.reg.compared(a.reg.era().rewinds, nil)
	ready("all is said", true)
}

// refusedLeases is an API server that refuses every write of a lease, or, if it is being deleted,
// has it changed meanwhile.
type refusedLeases struct {
	Leases
	lease protocol.Lease
}

func (r refusedLeases) ReadLease(context.Context, string) (protocol.Lease, protocol.Outcome, error) {
	return r.lease, protocol.Done, nil
}

func (r refusedLeases) UpdateLease(context.Context, protocol.Lease, protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	if r.lease.Deleting {
		return protocol.Lease{}, protocol.Conflict, errors.New("it has changed")
	}
	return protocol.Lease{}, protocol.Refused, errors.New("a policy says no")
}

// TestSaysWhyItIsNotReady: an agent that cannot put back what it holds after a restore stays not
// ready, and says what that is, and why. A lease that is another's by the restored data keeps it
// from nothing, and people are not sent to mend it.
func TestSaysWhyItIsNotReady(t *testing.T) {
	for _, tt := range []struct {
		uid      protocol.UID
		store    protocol.StoreID // "": this agent's
		deleting bool
		want     string // "": it is ready
	}{
		{uid: "u", want: "lan.0a00000a.32: a policy says no"},
		{uid: "u", deleting: true, want: "lan.0a00000a.32: lan.0a00000a.32 is being deleted"},
		{uid: "v", store: "another", deleting: true}, // its write meets a conflict
	} {
		a := newRestoredAgent(t)
		var logged bytes.Buffer
		a.log = slog.New(slog.NewTextHandler(&logged, nil))
		r := leaseRight(Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}, netip.MustParsePrefix("10.0.0.10/32"))
		r.Phase, r.UID, r.Revision, r.Asserted, r.Term = protocol.Held, "u", "7", 2, 2
		a.put(t, r)
		shown := protocol.Lease{Meta: protocol.Meta{Name: r.Name, UID: tt.uid, Revision: "5", Deleting: tt.deleting}, Protocol: 1, Pool: "lan", Block: r.Block, Holder: protocol.Holder{Node: "n1"}, Store: cmp.Or(tt.store, a.st.ID()), Term: 2}
		a.cl.Leases = carefulLeases{refusedLeases{lease: shown}, a.rights}
		now := a.sched.Now()
		a.reg.registrar.Sent, a.reg.announced = now, announcement{heard: true, listed: true, since: now.Boot - readyTimeout}
		a.rights.recheckIn(r.Name, 0)
		a.rights.recheckDue(t.Context())
		ok, why := a.Ready(t.Context())
		if ready := tt.want == ""; ok != ready || !strings.HasSuffix(why, tt.want) || strings.Contains(logged.String(), "level=WARN") == ready {
			t.Errorf("ready %v, %q; want that it ends with %q, and a warning if it is not ready; the log:\n%s", ok, why, tt.want, logged.String())
		}
	}
}

// TestNotReadyByWhatWasBefore: the API server is seen to go back while the agent finds out
// whether it is ready, by what it knew before. That makes it ready neither now nor later.
func TestNotReadyByWhatWasBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newRestoredAgent(t)
		st, hang := newHangingStore(t)
		a.st, a.reg.registrar.Sent, a.reg.announced = st, a.sched.Now(), announcement{heard: true, listed: true}
		goOn := hang(func(tx *store.Tx) error {
			return tx.PutRight(protocol.Right{Kind: protocol.RightUse, Name: "c.0", Phase: protocol.Held, UID: "u", Asserted: 3, Term: 3})
		})
		ready := make(chan bool, 1)
		go func() { ok, _ := a.Ready(t.Context()); ready <- ok }()
		synctest.Wait() // it reads the store
		go func() { _ = a.reg.read(t.Context(), a.reg.era(), true) }()
		synctest.Wait() // its memory has it
		goOn()
		if ok := <-ready; ok || a.reg.announced.done {
			t.Errorf("ready %v, for good: %v; want neither, after the API server has gone back", ok, a.reg.announced.done)
		}
	})
}

// forgottenLeases is an API server that has gone back to before this node's leases. It
// answers no read while it is slow.
type forgottenLeases struct {
	createdLeases
	slow bool
}

func (*forgottenLeases) NodeLeases(context.Context, protocol.NodeName) ([]protocol.Lease, protocol.Revision, error) {
	return nil, "1", nil
}

func (f *forgottenLeases) ReadLease(ctx context.Context, name string) (protocol.Lease, protocol.Outcome, error) {
	if f.slow {
		return protocol.Lease{}, protocol.Unknown, errNothing
	}
	return f.createdLeases.ReadLease(ctx, name)
}

// TestReadyWhenWhatIsMissingIsBack: a lease that was said in this term is not in the API
// server any more, which only a list shows: the data went back to just after a heartbeat.
// Until a read has shown so, too, and it has been created again, the controller must not be
// started: it would give a claim the lease's addresses (I1).
func TestReadyWhenWhatIsMissingIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := &forgottenLeases{slow: true}
		a, p := newRegisteredAgent(t, leases, shutPools{})
		a.cl.SubLeases = noSubLeases{}
		a.reg.registrar.Sent, a.reg.announced.heard = a.sched.Now(), true
		r := leaseRight(p.known.Pool, netip.MustParsePrefix("10.0.0.4/30"))
		r.Phase, r.UID, r.Revision, r.Asserted, r.Term = protocol.Held, "before", "7", 3, 3
		if err := a.st.Update(t.Context(), func(tx *store.Tx) error { return tx.PutRight(r) }); err != nil {
			t.Fatal(err)
		}
		if err := a.losses.compareOwn(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			a.rights.recheckDue(t.Context())
			if ok, _ := a.Ready(t.Context()); ok {
				t.Fatalf("ready after %v, with a lease that is missing", a.sched.Now().Boot)
			}
			time.Sleep(retryAfter)
		}
		leases.slow = false
		a.rights.recheckDue(t.Context())
		if ok, why := a.Ready(t.Context()); !ok || leases.created != 1 {
			t.Errorf("%d leases created, ready %v (%s); want it ready with the lease there again", leases.created, ok, why)
		}
	})
}

package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestLeaseOfALostStore: the restored data have a block in the name of a store that this
// node had lost, and it has leased the block again since. It waits for the pool to be opened
// before it says that its lease is lost. But not where the pool was made again: that one may
// wait for just this lease, which the node gives back when it knows that its own is lost (I4).
func TestLeaseOfALostStore(t *testing.T) {
	for uid, want := range map[protocol.UID]protocol.Outcome{"p": protocol.Unknown, "q": protocol.Done} {
		a := newRestoredAgent(t)
		r := leaseRight(Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}, netip.MustParsePrefix("10.0.0.10/32"))
		r.Phase, r.UID, r.Revision, r.Asserted, r.Term = protocol.Held, "u2", "7", 2, 2
		a.put(t, r)
		a.pools.byName["lan"] = newPool("lan")
		a.pools.byName["lan"].set(&knownPool{Pool: Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: uid}, Epoch: "w1"}}}, false)
		leases := carefulLeases{&shownLease{lease: protocol.Lease{Meta: protocol.Meta{Name: r.Name, UID: "u1"}, Pool: "lan", Store: "lost"}}, a.rights}
		if _, out, _ := leases.ReadLease(t.Context(), r.Name); out != want {
			t.Errorf("a lease of pool p while lan is %s is read as %v; want %v", uid, out, want)
		}
	}
}

// TestNothingIsLostBeforeTheRegistrationIsSeen: an agent starts on restored data, and takes
// its registration up as its store has it. Until it has read it, nothing shows that the data have
// gone back: a block that it has leased since the backup names him who had it then, and gives it
// back. It would be others' while pods here have its addresses (I1).
func TestNothingIsLostBeforeTheRegistrationIsSeen(t *testing.T) {
	for _, seen := range []bool{false, true} {
		a := newRestoredAgent(t)
		if !seen {
			a.reg.registrar.Seen = protocol.Registration{}
		}
		a.cl.Events = &warned{}
		r := leaseRight(Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}, netip.MustParsePrefix("10.0.0.10/32"))
		r.Phase, r.UID, r.Revision, r.Asserted, r.Term = protocol.Held, "u2", "7", 3, 3
		if err := a.st.Update(t.Context(), func(tx *store.Tx) error { return tx.PutRight(r) }); err != nil {
			t.Fatal(err)
		}
		a.cl.Leases = carefulLeases{&shownLease{lease: protocol.Lease{Meta: protocol.Meta{Name: r.Name, UID: "u1"}, Pool: "lan", Store: "another"}}, a.rights}
		if _, _, err := a.rights.settle(t.Context(), r, a.rights.beginWith(protocol.Event{Kind: protocol.EventRecheck})); err != nil && !errors.Is(err, errUnanswered) {
			t.Fatal(err)
		}
		if now, _ := a.right(r.Name); (now.Phase == protocol.Lost) != seen {
			t.Errorf("the lease is %s, the registration seen: %v; want it lost if it was", now.Phase, seen)
		}
	}
}

// TestLeaseIsALostStoresAgain: a lease of a lost store's was made the new one's. The data
// went back to before, and the pools wait no more: the lease is lost. It must not
// show for ever anew that the data went back, which would close all pools each time (I4).
func TestLeaseIsALostStoresAgain(t *testing.T) {
	a := newRestoredAgent(t)
	a.cl.Events = &warned{}
	r := leaseRight(Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}, netip.MustParsePrefix("10.0.0.10/32"))
	r.Phase, r.UID, r.Revision, r.Writes, r.Asserted, r.Term = protocol.Held, "u", "38", 3, 2, 2
	if err := a.st.Update(t.Context(), func(tx *store.Tx) error { return tx.PutRight(r) }); err != nil {
		t.Fatal(err)
	}
	shown := &shownLease{lease: protocol.Lease{Meta: protocol.Meta{Name: r.Name, UID: "u", Revision: "31"}, Writes: 2, Pool: "lan", Store: "lost"}}
	if _, out, err := (carefulLeases{shown, a.rights}).ReadLease(t.Context(), r.Name); out != protocol.Done || a.reg.history.Restored != nil {
		t.Errorf("%v, %v, history %+v; want the lease, and no news of the API server", out, err, a.reg.history)
	}
}

// TestLeaseOfWhoHadItBefore: a lease in the place of one that this node holds, and older
// than that, is of an earlier state. The node does not lose its own by it, also where no
// revision and not its registration shows that the API server has gone back.
func TestLeaseOfWhoHadItBefore(t *testing.T) {
	a := assemble(&base{
		st: newStore(t), cfg: Config{Node: "n1"}, log: slog.New(slog.DiscardHandler), metrics: newMetrics(nil),
	})
	a.reg.registrar = protocol.Registrar{Term: 3, Seen: protocol.Registration{Meta: protocol.Meta{UID: "s"}}}
	r := protocol.Right{Kind: protocol.RightLease, Name: "x", Phase: protocol.Held, UID: "mine", Revision: "70", Writes: 1, Asserted: 3, Term: 3}
	if err := a.st.Update(t.Context(), func(tx *store.Tx) error { return tx.PutRight(r) }); err != nil {
		t.Fatal(err)
	}
	if _, out, err := (carefulLeases{shortOf{}, a.rights}).ReadLease(t.Context(), "x"); out != protocol.Unknown || !errors.Is(err, errRewound) || a.reg.history.Restored == nil {
		t.Errorf("%v, %v, history %+v; want that the API server has gone back", out, err, a.reg.history)
	}
}

// goingBack are registrations that take a heartbeat, and an API server that is seen to have gone
// back, by whatever else the agent asks, before the agent has taken up the answer.
type goingBack struct {
	Registrations
	a *Agent
}

func (goingBack) ReadNode(context.Context, protocol.NodeName) (protocol.Node, protocol.Outcome, error) {
	return protocol.Node{}, protocol.NotFound, nil
}

func (g goingBack) UpdateRegistration(ctx context.Context, s protocol.Registration) (protocol.Registration, protocol.Outcome, error) {
	_ = g.a.reg.read(ctx, g.a.reg.era(), true)
	return s, protocol.Done, nil
}

// TestHeartbeatOfBefore: a heartbeat that was accepted before another answer has shown
// that the API server has gone back does not bring its term back: what was said in that
// would pass for put back, and the pools be opened without it (I1).
func TestHeartbeatOfBefore(t *testing.T) {
	a := newRestoredAgent(t)
	a.reg.registrar.Self = protocol.Identity{Node: "n1", Store: a.st.ID(), Boot: "b"}
	a.cl.Registrations = goingBack{a: a}
	if accepted, _, err := a.reg.beat(t.Context()); accepted || err != nil || a.reg.term() != 0 {
		t.Errorf("accepted %v, %v, term %d; want no registration", accepted, err, a.reg.term())
	}
	err := a.st.View(func(tx *store.Tx) error {
		id, err := tx.Identity()
		if id.Boot != "" || id.Term <= 3 {
			t.Errorf("the store has the registration of boot %q, term %d; want none, and a term above 3", id.Boot, id.Term)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestLeasedSinceTheLastHeartbeat: an agent that was stopped soon after it had leased a
// block, before its next heartbeat, starts on data from between the two. Its registration is as it
// was; the record of the lease shows that the data have gone back.
func TestLeasedSinceTheLastHeartbeat(t *testing.T) {
	a := newRestoredAgent(t)
	r := leaseRight(Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}, netip.MustParsePrefix("10.0.0.10/32"))
	r.Phase, r.UID, r.Revision, r.Asserted, r.Term = protocol.Held, "u", "100", 3, 3
	if err := a.st.Update(t.Context(), func(tx *store.Tx) error { return tx.PutRight(r) }); err != nil {
		t.Fatal(err)
	}
	if err := a.resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := (carefulLeases{listOf{rev: "99"}, a.rights}).NodeLeases(t.Context(), "n1"); !errors.Is(err, errRewound) {
		t.Errorf("%v; want that the API server has gone back", err)
	}
}

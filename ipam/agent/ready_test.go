package agent

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/ipam/store"
)

// TestReady: an agent that resumes serves at once, and is ready when the API server knows
// what its node holds: whoever restored etcd starts the controller then, which gives
// claims the addresses that no lease covers. What cannot be said is not waited for.
func TestReady(t *testing.T) {
	for _, tt := range []struct {
		name   string
		told   telling
		said   int64 // the term in which the node's lease was said last
		others bool  // it is another's
		want   bool
	}{
		{"no heartbeat was accepted", telling{listed: true}, 2, false, false},
		{"nor will one be: the API server is away", telling{since: -sayTime}, 2, false, false},
		{"nothing can be listed", telling{heard: true, since: -sayTime}, 2, false, true},
		{"nothing was listed", telling{heard: true}, 2, false, false},
		{"all is said", telling{heard: true, listed: true}, 2, false, true},
		{"a look is under way", telling{heard: true, listed: true, looks: true}, 2, false, false},
		{"the looks were a while ago", telling{heard: true, listed: true, looks: true, since: -lookTime}, 2, false, true},
		{"a lease was said in an earlier term", telling{heard: true, listed: true}, 1, false, false},
		{"a lease is another's", telling{heard: true, listed: true}, 1, true, true},
		{"a lease cannot be said", telling{heard: true, listed: true, since: -sayTime}, 1, false, true},
		{"it was ready before", telling{done: true}, 1, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := &Agent{st: newStore(t), cfg: Config{Node: "n1"}, clock: stoppedClock{}, log: slog.New(slog.DiscardHandler)}
			now := a.clock.Now()
			a.sitting = protocol.Sitting{Self: protocol.Identity{Node: "n1"}, Term: 2, Sent: now}
			a.told = tt.told
			a.told.since += now.Boot
			lease := protocol.Right{Kind: protocol.RightLease, Name: "lan.0a000000.26", Phase: protocol.Held, UID: "u", Said: tt.said, Term: tt.said}
			if tt.others {
				a.shown(lease.Name, true)
			}
			if err := a.st.Update(t.Context(), func(tx *store.Tx) error { return tx.PutRight(lease) }); err != nil {
				t.Fatal(err)
			}
			if got, why := a.Ready(); got != tt.want {
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
	a.sitting = protocol.Sitting{Self: self, Term: 3, Sent: a.clock.Now()}
	a.told.done = true
	ready := func(when string, want bool) {
		t.Helper()
		if got, why := a.Ready(); got != want {
			t.Errorf("%s: ready %v (%s); want %v", when, got, why, want)
		}
	}
	ready("before", true)
	if err := a.read(t.Context(), a.sight(), true); !errors.Is(err, errRewound) {
		t.Fatalf("an answer of an earlier state: %v; want %v", err, errRewound)
	}
	if err := a.accept(t.Context(), 0, a.sight().era, protocol.Sitting{Self: self, Term: 4, Sent: a.clock.Now()}); err != nil {
		t.Fatal(err)
	}
	ready("seated again", false)
	a.compared(0)
	ready("all is said", true)
}

package protocol

import (
	"testing"
	"time"
)

// TestHistory: what lies behind what was seen shows an API server that has gone
// back; what lies at or above it, or cannot be compared, does not.
func TestHistory(t *testing.T) {
	reg := func(uid UID, rev Revision, turn int64) Registration {
		return Registration{Meta: Meta{UID: uid, Revision: rev}, Writes: turn}
	}
	h := History{}.SawObject("100").SawObject("90").SawRegistration(reg("u", "70", 5)).SawEpoch("w2").SawEpoch("w1")
	if h.Objects != 100 || h.Registrations != 70 || h.Writes != 5 || h.Epoch != "w2" {
		t.Fatalf("got %+v", h)
	}
	for rev, want := range map[Revision]bool{"99": true, "100": false, "101": false, "": false, "x": false, "7": true} {
		if got := h.Behind(rev); got != want {
			t.Errorf("revision %q is behind: %v; want %v", rev, got, want)
		}
	}
	for _, tt := range []struct {
		name string
		reg  Registration
		want bool
	}{
		{"as it was", reg("u", "70", 5), false},
		{"another beat", reg("u", "80", 6), false},
		{"an older revision", reg("u", "69", 5), true},
		{"an older turn, where etcd went on counting", reg("u", "80", 4), true},
		{"deleted and made again", reg("v", "80", 1), false},
		{"made again in an older state", reg("v", "60", 1), true},
		{"no number", reg("u", "x", 6), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := h.RegistrationBehind(tt.reg); got != tt.want {
				t.Errorf("behind: %v; want %v", got, tt.want)
			}
		})
	}
	r := h.Rewound()
	if r.Behind("1") || r.RegistrationBehind(reg("u", "1", 1)) {
		t.Error("what the restored API server shows is behind once more")
	}
	if r.Restored == nil || r.Restored.Back || r.Restored.Epoch != "w2" {
		t.Errorf("got %+v; want that it has been seen, and only epochs after w2 count", r.Restored)
	}
	for _, tt := range []struct {
		pool Pool
		want bool
	}{{Pool{Open: true, Epoch: "w2"}, false}, {Pool{Open: true, Epoch: "w1"}, false}, {Pool{Epoch: "w3"}, true}, {Pool{Open: true, Epoch: "w3"}, true}} {
		if got := r.Restored.EndedFor(tt.pool.Epoch); got != tt.want {
			t.Errorf("%+v waits no more: %v; want %v", tt.pool, got, tt.want)
		}
	}
}

// TestRegistrarRewound: whatever the restored API server shows of its registration, the agent
// begins a term that no right was said in.
func TestRegistrarRewound(t *testing.T) {
	self := Identity{Node: "n", Store: "s", Machine: "m", Boot: "b", Fence: time.Minute}
	mine := func(term int64) Registration {
		return Registration{Meta: Meta{UID: "u", Revision: "3"}, Node: "n", Store: "s", Machine: "m", Boot: "b", Term: term, Fence: time.Minute}
	}
	for _, tt := range []struct {
		name string
		read RegistrationEvent
	}{
		{"the same term", RegistrationEvent{Call: RegistrationRead, Outcome: Done, Registration: mine(4)}},
		{"an older term", RegistrationEvent{Call: RegistrationRead, Outcome: Done, Registration: mine(2)}},
		{"no registration", RegistrationEvent{Call: RegistrationRead, Outcome: NotFound}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Resume(self, "b", 4, Instant{}, time.Minute).Rewound()
			if ok, _ := s.Serving(Instant{}); ok {
				t.Error("it serves before it is registered again")
			}
			if res := StepRegistration(s, RegistrationEvent{}); res.Call != RegistrationRead {
				t.Fatalf("it begins with call %v; want a read", res.Call)
			}
			res := StepRegistration(s, tt.read)
			if res.Call != RegistrationCreate && res.Call != RegistrationUpdate || res.Write.Term <= 4 {
				t.Errorf("it goes on with call %v in term %d; want a write in a later term than 4", res.Call, res.Write.Term)
			}
		})
	}
}

func TestRightBehind(t *testing.T) {
	r := Right{UID: "u", Revision: "70", Writes: 3}
	for _, tt := range []struct {
		name string
		m    Meta
		turn int64
		want bool
	}{
		{"as it was", Meta{UID: "u", Revision: "70"}, 3, false},
		{"written since", Meta{UID: "u", Revision: "71"}, 3, false},
		{"an older revision", Meta{UID: "u", Revision: "69"}, 3, true},
		{"an older turn", Meta{UID: "u", Revision: "80"}, 2, true},
		{"another object", Meta{UID: "v", Revision: "60"}, 1, false},
	} {
		if got := r.behind(tt.m, tt.turn); got != tt.want {
			t.Errorf("%s: behind is %v; want %v", tt.name, got, tt.want)
		}
	}
}

// TestRecordBehind: a record says once that the API server has gone back. That of a
// right which is lost says it never: nobody writes the object for it any more, so that
// each look would say it again, and have every pool closed, for as long as a pod uses
// what is lost. Where F is 0 the pools open while the node reads that a lease is another's,
// be it a lost store's again from which it had come: that must not close them once more.
func TestRecordBehind(t *testing.T) {
	older := Meta{UID: "u", Revision: "60"}
	for _, tt := range []struct {
		name   string
		h      History
		phase  Phase
		others bool
		want   bool
	}{
		{"first", History{}, Held, false, true},
		{"when it is known", History{Restored: &Restoration{}}, Held, false, false},
		{"of a right given away", History{}, Releasing, false, true},
		{"of a right that is lost", History{}, Lost, false, false},
		{"of a right that is about to be lost", History{}, Held, true, false},
	} {
		r := Right{Phase: tt.phase, UID: "u", Revision: "70", Writes: 3}
		if got := tt.h.RecordBehind(r, older, 2, tt.others); got != tt.want {
			t.Errorf("%s: behind is %v; want %v", tt.name, got, tt.want)
		}
	}
}

// TestSupplanted: another object of a right's name which was there when the right
// was said is of an earlier state, also where the API server's revisions go on from a later
// one: whoever restores etcd may raise them.
func TestSupplanted(t *testing.T) {
	held := Right{Phase: Held, UID: "u", Revision: "70", Writes: 3, Asserted: 5}
	with := func(change func(*Right)) Right { r := held; change(&r); return r }
	for _, tt := range []struct {
		name     string
		h        History
		r        Right
		revision Revision
		term     int64
		want     bool
	}{
		{"there before", History{}, held, "69", 5, true},
		{"made since", History{}, held, "71", 5, false},
		{"when it is known", History{Restored: &Restoration{}}, held, "69", 5, false},
		{"of no known revision", History{}, held, "", 5, false},
		{"of a right given away", History{}, with(func(r *Right) { r.Phase = Releasing }), "69", 5, false},
		{"of a right that is lost", History{}, with(func(r *Right) { r.Phase = Lost }), "69", 5, false},
		{"of a right that was never there", History{}, with(func(r *Right) { r.UID = "" }), "69", 5, false},
		{"of a right not said in the term", History{}, held, "69", 6, false},
		{"without a registration", History{}, with(func(r *Right) { r.Asserted = 0 }), "69", 0, false},
	} {
		if got := tt.h.Supplanted(tt.r, Meta{UID: "v", Revision: tt.revision}, tt.term); got != tt.want {
			t.Errorf("%s: behind is %v; want %v", tt.name, got, tt.want)
		}
	}
}

func TestPutBackAndUnconfirmed(t *testing.T) {
	for _, tt := range []struct {
		name                 string
		r                    Right
		putBack, unconfirmed bool
	}{
		{"said and confirmed in the term", Right{Phase: Held, UID: "u", Asserted: 5, Term: 5}, true, false},
		{"said in the term, confirmed in an earlier one", Right{Phase: Held, UID: "u", Asserted: 5, Term: 4}, true, true},
		{"created again, and waits for its pool", Right{Phase: Held, UID: "u", Asserted: 5}, true, true},
		{"not said yet", Right{Phase: Held, UID: "u", Asserted: 4, Term: 4}, false, false},
		{"vanished", Right{Phase: Held, Asserted: 4}, false, false},
		{"vanished, said in the term", Right{Phase: Held, Asserted: 5}, false, false},
		{"lost to another", Right{Phase: Lost, UID: "u", Asserted: 4}, true, false},
		{"lost to another, said in the term", Right{Phase: Lost, UID: "u", Asserted: 5}, true, false},
		{"noted", Right{Phase: Noted}, true, false},
	} {
		if got := tt.r.PutBack(5); got != tt.putBack {
			t.Errorf("%s: put back is %v; want %v", tt.name, got, tt.putBack)
		}
		if got := tt.r.Unconfirmed(5); got != tt.unconfirmed {
			t.Errorf("%s: unconfirmed is %v; want %v", tt.name, got, tt.unconfirmed)
		}
	}
}

// TestMayGo: what waits for its pool to open again may be just what the pool waits for.
func TestMayGo(t *testing.T) {
	for _, tt := range []struct {
		name string
		r    Right
		want bool
	}{
		{"a lease that serves", Right{Kind: RightLease, Phase: Held, UID: "u", Asserted: 5, Term: 5}, false},
		{"a lease that had vanished", Right{Kind: RightLease, Phase: Held, UID: "u", Asserted: 5}, true},
		{"a lease that has vanished", Right{Kind: RightLease, Phase: Held, Asserted: 4}, false},
		{"a use", Right{Kind: RightUse, Phase: Held, UID: "u", Asserted: 5, Term: 4}, true},
		{"a use that serves", Right{Kind: RightUse, Phase: Held, UID: "u", Asserted: 5, Term: 5}, true},
		{"a use that has not been said", Right{Kind: RightUse, Phase: Held, UID: "u", Asserted: 4, Term: 4}, false},
		{"a request", Right{Kind: RightRequest, Phase: Held, UID: "u", Asserted: 5, Term: 5}, true},
		{"a request that is noted", Right{Kind: RightRequest, Phase: Noted, UID: "u", Asserted: 5}, false},
	} {
		if got := tt.r.MayGo(5); got != tt.want {
			t.Errorf("%s: may go is %v; want %v", tt.name, got, tt.want)
		}
	}
}

// TestSawRight: an agent that starts knows the revisions of what it leased after its last
// heartbeat. What was not said in its term says nothing: that may have been written before
// the API server went back, and would show it anew, for ever.
func TestSawRight(t *testing.T) {
	for _, tt := range []struct {
		name string
		r    Right
		want uint64
	}{
		{"leased since", Right{Phase: Held, UID: "u", Revision: "70", Asserted: 3}, 70},
		{"older", Right{Phase: Held, UID: "u", Revision: "50", Asserted: 3}, 60},
		{"not said in this term", Right{Phase: Held, UID: "u", Revision: "70", Asserted: 2}, 60},
		{"lost", Right{Phase: Lost, UID: "u", Revision: "70", Asserted: 3}, 60},
		{"given away", Right{Phase: Releasing, UID: "u", Revision: "70", Asserted: 3}, 60},
	} {
		if got := (History{Objects: 60}).SawRight(tt.r, 3).Objects; got != tt.want {
			t.Errorf("%s: %d; want %d", tt.name, got, tt.want)
		}
	}
}

func TestRestorationText(t *testing.T) {
	for _, r := range []Restoration{{}, {Back: true}, {Epoch: "w"}, {Back: true, Epoch: "2026-01-01T12:00:00.000000000Z"}} {
		if got, ok := ParseRestoration(r.String()); !ok || got != r {
			t.Errorf("%q is read as %+v, %v; want %+v", r, got, ok, r)
		}
	}
	for _, text := range []string{"", "seenw", "Back w", " back"} {
		if got, ok := ParseRestoration(text); ok {
			t.Errorf("%q is read as %+v; want nothing", text, got)
		}
	}
}

// TestEpochAfter: each word is greater than all before it, whatever clocks say.
func TestEpochAfter(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	word := EpochAfter(now)
	if want := "2026-01-01T12:00:00.000000000Z"; word != want {
		t.Errorf("the word of noon is %q; want %q", word, want)
	}
	last := ""
	for _, step := range []time.Duration{0, time.Nanosecond, time.Hour, -time.Hour, 0, 999 * time.Millisecond, 24 * time.Hour} {
		next := EpochAfter(now.Add(step), "", last)
		if next <= last || len(next) != len(word) {
			t.Errorf("%v from noon, after %q: %q; want a greater word of as many letters", step, last, next)
		}
		last = next
	}
	if next := EpochAfter(now, "by hand", last); next <= last || len(next) != len(word) {
		t.Errorf("beside a word by hand: %q; want one greater than %q", next, last)
	}
}

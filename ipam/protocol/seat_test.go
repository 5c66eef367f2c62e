package protocol

import (
	"strings"
	"testing"
	"time"
)

// seatNow is one moment of node n1, an hour after its machine booted.
var seatNow = Instant{Boot: time.Hour, Wall: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}

var seatSelf = Identity{Node: "n1", NodeUID: "node", Store: "s1", Machine: "m1", Boot: "b1", Fence: 15 * time.Minute}

func (i Instant) add(d time.Duration) Instant { return Instant{Boot: i.Boot + d, Wall: i.Wall.Add(d)} }

// seatOf is the seat of seatSelf in a term at a turn.
func seatOf(term, turn int64) Seat {
	return Seat{
		Meta: Meta{Name: "n1", UID: "u", Revision: "5"}, Node: "n1", NodeUID: "node", Store: "s1", Machine: "m1", Boot: "b1",
		Term: term, Fence: 15 * time.Minute, Turn: turn, Beat: seatNow.Wall.Add(-4 * time.Minute),
	}
}

// otherSeat is that of an agent of the same node on another machine.
func otherSeat(revision Revision) Seat {
	s := seatOf(7, 3)
	s.Store, s.Machine, s.Boot, s.Revision = "s9", "m9", "b9", revision
	return s
}

// sitting is that of an agent which has sat in term 2 since its last heartbeat, at
// turn 4.
func sitting(change func(*Sitting)) Sitting {
	s := Sitting{Self: seatSelf, Term: 2, LastTerm: 2, Sent: seatNow.add(-4 * time.Minute), Fence: 15 * time.Minute, Seen: seatOf(2, 4)}
	if change != nil {
		change(&s)
	}
	return s
}

func TestStepSeat(t *testing.T) {
	sentAt := seatNow.add(-time.Minute)
	pending := func(s *Sitting) { s.Pending = &Beat{Turn: 5, At: sentAt.Wall, Sent: sentAt} }
	landed := seatOf(2, 5)
	landed.Beat = sentAt.Wall
	recall := seatOf(2, 5)
	recall.Recalls = []Recall{{Lease: "lan"}}
	rebooted, replaced := seatOf(2, 4), seatOf(2, 4)
	rebooted.Boot, replaced.Store = "b0", "s0"
	beats := otherSeat("2")
	beats.Beat = beats.Beat.Add(time.Minute)
	forever := otherSeat("1")
	forever.Fence = 0
	stranger := func(since Instant) func(*Sitting) {
		return func(s *Sitting) { s.Term, s.Stranger = 0, &Watch{heartbeat: heartbeatOf(otherSeat("1")), Since: since} }
	}
	ended := EndTerm(otherSeat("6"), EvidenceTaint)
	off := func(s *Sitting) { s.Off = true }
	jumped := Instant{Boot: seatNow.Boot - time.Minute, Wall: seatNow.Wall.Add(-time.Hour)}
	read := func(seat Seat) SeatEvent { return SeatEvent{Call: SeatRead, Outcome: Done, Seat: seat} }
	wrote := func(o Outcome) SeatEvent { return SeatEvent{Call: SeatUpdate, Outcome: o, Why: "why"} }

	tests := []struct {
		name  string
		start func(*Sitting)
		ev    SeatEvent
		call  SeatCall
		write int64 // the term of the write
		term  int64 // afterwards
		check func(SeatResult) string
	}{
		{"a tick with nothing known reads", func(s *Sitting) { s.Seen = Seat{} }, SeatEvent{}, SeatRead, 0, 2, nil},
		{"a tick beats in the same term", nil, SeatEvent{}, SeatUpdate, 2, 2, beatsOn(4)},
		{"a tick with a heartbeat in doubt reads", pending, SeatEvent{}, SeatRead, 0, 2, nil},
		{"a tick after it was refused the seat reads, and writes no term 0", func(s *Sitting) { s.Term = 0 }, SeatEvent{}, SeatRead, 0, 0, nil},
		{"a tick while another machine sits reads", stranger(seatNow), SeatEvent{}, SeatRead, 0, 0, nil},

		{"nobody sits: create, above every term that was", nil, SeatEvent{Call: SeatRead, Outcome: NotFound}, SeatCreate, 3, 0, createsNew},
		{"mine: beat", nil, read(seatOf(2, 4)), SeatUpdate, 2, 2, beatsOn(4)},
		{"mine, and nothing confirmed yet: beat in its term", func(s *Sitting) { s.Term = 0 }, read(seatOf(2, 4)), SeatUpdate, 2, 0, nil},
		{"mine, by the heartbeat in doubt: accepted from its sending (H10)", pending, read(landed), SeatNone, 0, 2, acceptedAt(sentAt)},
		{"mine, the heartbeat in doubt not there yet: beat", pending, read(seatOf(2, 4)), SeatUpdate, 2, 2, beatsOn(4)},
		{"mine, at the turn of the heartbeat in doubt, but the controller's write: beat", pending, read(recall), SeatUpdate, 2, 2, beatsOn(5)},
		{"mine, and somebody ended the term (H2): serve nothing, beat in the new one", nil, read(seatOf(3, 5)), SeatUpdate, 3, 0, nil},
		{"mine, and gone back (H9): above every term that was", nil, read(seatOf(1, 2)), SeatUpdate, 3, 0, nil},
		{"my machine, another boot (H1): a new term", nil, read(rebooted), SeatUpdate, 3, 0, nil},
		{"my machine, another store (F3): a new term", nil, read(replaced), SeatUpdate, 3, 0, nil},
		{"another machine (F15, X26): wait, and say who", nil, read(otherSeat("1")), SeatNone, 0, 0, saysWho},
		{"another machine, unchanged for less than F/2", stranger(seatNow.add(-7 * time.Minute)), read(otherSeat("1")), SeatNone, 0, 0, saysWho},
		{"another machine, unchanged for F/2: sit down above it", stranger(seatNow.add(-450 * time.Second)), read(otherSeat("1")), SeatUpdate, 8, 0, nil},
		{"another machine that beats: wait anew", stranger(seatNow.add(-450 * time.Second)), read(beats), SeatNone, 0, 0, saysWho},
		{"another machine, and a recall on its seat: sit down", stranger(seatNow.add(-450 * time.Second)), read(otherSeat("2")), SeatUpdate, 8, 0, nil},
		{"another machine, and my wall clock jumps (X23): wait on", stranger(jumped), read(otherSeat("1")), SeatNone, 0, 0, saysWho},
		{"another machine whose F is never: wait for ever", stranger(seatNow.add(-50 * time.Hour)), read(forever), SeatNone, 0, 0, saysWho},
		{"ended, and this Node is vouched to be off: wait for the taint to go", off, read(ended), SeatNone, 0, 0, saysOff},
		{"ended, and the taint is gone: sit down above it", nil, read(ended), SeatUpdate, 9, 0, nil},
		{"the term goes on, whatever the taint says: the controller ends it", off, SeatEvent{}, SeatUpdate, 2, 2, nil},
		{"no answer to a read", nil, SeatEvent{Call: SeatRead, Outcome: Unknown}, SeatNone, 0, 2, nil},

		{"accepted, from its sending, not from the answer (M19)", pending, SeatEvent{Call: SeatUpdate, Outcome: Done, Seat: landed}, SeatNone, 0, 2, acceptedAt(sentAt)},
		{"created: accepted", pending, SeatEvent{Call: SeatCreate, Outcome: Done, Seat: landed}, SeatNone, 0, 2, acceptedAt(sentAt)},
		{"no answer to a heartbeat: it is in doubt", pending, wrote(Unknown), SeatNone, 0, 2, inDoubt(true)},
		{"a conflict: it was not accepted, read", pending, wrote(Conflict), SeatRead, 0, 2, inDoubt(false)},
		{"vanished: read", pending, wrote(NotFound), SeatRead, 0, 2, inDoubt(false)},
		{"a create that met another: read", pending, SeatEvent{Call: SeatCreate, Outcome: Exists}, SeatRead, 0, 2, inDoubt(false)},
		{"refused: it was not accepted", pending, wrote(Refused), SeatNone, 0, 2, inDoubt(false)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.ev.Now = seatNow
			res := StepSeat(sitting(tt.start), tt.ev)
			if res.Call != tt.call || res.Write.Term != tt.write || res.Next.Term != tt.term {
				t.Errorf("got call %v, writing term %d, sitting in %d; want call %v, writing %d, sitting in %d",
					res.Call, res.Write.Term, res.Next.Term, tt.call, tt.write, tt.term)
			}
			if tt.check == nil {
				tt.check = notAccepted
			}
			if why := tt.check(res); why != "" {
				t.Errorf("%s: %+v", why, res)
			}
		})
	}
}

func notAccepted(res SeatResult) string {
	if res.Accepted {
		return "accepted; want not"
	}
	return ""
}

// beatsOn checks a heartbeat upon the seat at turn.
func beatsOn(turn int64) func(SeatResult) string {
	return func(res SeatResult) string {
		w, p := res.Write, res.Next.Pending
		switch {
		case res.Accepted:
			return "accepted before the answer"
		case w.Turn != turn+1 || w.Revision != "5" || w.UID != "u":
			return "it is not the next turn, by compare-and-swap"
		case w.Store != "s1" || w.Machine != "m1" || w.Boot != "b1" || w.NodeUID != "node" || w.Fence != 15*time.Minute:
			return "it does not name this agent"
		case p == nil || p.Sent != seatNow || !p.wrote(w):
			return "it is not known by what was sent when"
		}
		return ""
	}
}

func createsNew(res SeatResult) string {
	if res.Write.Meta != (Meta{}) || res.Write.Store != "s1" {
		return "a create with metadata, or in another's name"
	}
	return notAccepted(res)
}

func acceptedAt(sent Instant) func(SeatResult) string {
	return func(res SeatResult) string {
		if !res.Accepted || res.Next.Sent != sent || res.Next.Pending != nil || res.Next.Fence != 15*time.Minute {
			return "not accepted from its sending"
		}
		return ""
	}
}

func inDoubt(want bool) func(SeatResult) string {
	return func(res SeatResult) string {
		if got := res.Next.Pending != nil; got != want {
			return "a heartbeat is in doubt that should not be, or the reverse"
		}
		return notAccepted(res)
	}
}

func saysOff(res SeatResult) string {
	if ok, why := res.Next.Serving(seatNow); ok || !strings.Contains(why, "taint") || why != res.Why {
		return "it does not say that the taint is to be removed"
	}
	// The next tick reads again.
	if tick := StepSeat(res.Next, SeatEvent{Now: seatNow}); tick.Call != SeatRead {
		return "it does not look again"
	}
	return notAccepted(res)
}

func saysWho(res SeatResult) string {
	if !strings.Contains(res.Why, "s9") || !strings.Contains(res.Why, "m9") || res.Next.Stranger == nil {
		return "it does not say who sits there"
	}
	return notAccepted(res)
}

package protocol

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// regNow is one moment of node n1, an hour after its machine booted.
var regNow = Instant{Boot: time.Hour, Wall: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}

var regSelf = Identity{Node: "n1", NodeUID: "node", Store: "s1", Machine: "m1", Boot: "b1", Fence: 15 * time.Minute}

func (i Instant) add(d time.Duration) Instant { return Instant{Boot: i.Boot + d, Wall: i.Wall.Add(d)} }

// regOf is the registration of regSelf in a term at a turn.
func regOf(term, turn int64) Registration {
	return Registration{
		Meta: Meta{Name: "n1", UID: "u", Revision: "5"}, Node: "n1", NodeUID: "node", Store: "s1", Machine: "m1", Boot: "b1",
		Term: term, Fence: 15 * time.Minute, Writes: turn, Beat: regNow.Wall.Add(-4 * time.Minute),
	}
}

// otherRegistration is that of an agent of the same node on another machine.
func otherRegistration(revision Revision) Registration {
	s := regOf(7, 3)
	s.Store, s.Machine, s.Boot, s.Revision = "s9", "m9", "b9", revision
	return s
}

// registrar is that of an agent which was registered in term 2 since its last heartbeat, at
// turn 4.
func registrar(change func(*Registrar)) Registrar {
	s := Registrar{Self: regSelf, Term: 2, LastTerm: 2, Sent: regNow.add(-4 * time.Minute), Fence: 15 * time.Minute, Seen: regOf(2, 4)}
	if change != nil {
		change(&s)
	}
	return s
}

func TestStepRegistration(t *testing.T) {
	sentAt := regNow.add(-time.Minute)
	pending := func(s *Registrar) { s.Pending = &Beat{Writes: 5, At: sentAt.Wall, Sent: sentAt} }
	landed := regOf(2, 5)
	landed.Beat = sentAt.Wall
	recall := regOf(2, 5)
	recall.Recalls = []Recall{{Lease: "lan"}}
	rebooted, replaced := regOf(2, 4), regOf(2, 4)
	rebooted.Boot, replaced.Store = "b0", "s0"
	beats := otherRegistration("2")
	beats.Beat = beats.Beat.Add(time.Minute)
	forever := otherRegistration("1")
	forever.Fence = 0
	stranger := func(since Instant) func(*Registrar) {
		return func(s *Registrar) {
			s.Term, s.OtherHolder = 0, &Watch{heartbeat: heartbeatOf(otherRegistration("1")), Since: since}
		}
	}
	ended := EndTerm(otherRegistration("6"), EvidenceTaint)
	off := func(s *Registrar) { s.Off = true }
	jumped := Instant{Boot: regNow.Boot - time.Minute, Wall: regNow.Wall.Add(-time.Hour)}
	read := func(reg Registration) RegistrationEvent {
		return RegistrationEvent{Call: RegistrationRead, Outcome: Done, Registration: reg}
	}
	wrote := func(o Outcome) RegistrationEvent {
		return RegistrationEvent{Call: RegistrationUpdate, Outcome: o, Why: "why"}
	}

	tests := []struct {
		name  string
		start func(*Registrar)
		ev    RegistrationEvent
		call  RegistrationCall
		write int64 // the term of the write
		term  int64 // afterwards
		check func(RegistrationResult) string
	}{
		{"a tick with nothing known reads", func(s *Registrar) { s.Seen = Registration{} }, RegistrationEvent{}, RegistrationRead, 0, 2, nil},
		{"a tick beats in the same term", nil, RegistrationEvent{}, RegistrationUpdate, 2, 2, beatsOn(4)},
		{"a tick with a heartbeat in doubt reads", pending, RegistrationEvent{}, RegistrationRead, 0, 2, nil},
		{"a tick after it was refused the registration reads, and writes no term 0", func(s *Registrar) { s.Term = 0 }, RegistrationEvent{}, RegistrationRead, 0, 0, nil},
		{"a tick while another machine is registered reads", stranger(regNow), RegistrationEvent{}, RegistrationRead, 0, 0, nil},

		{"no agent is registered: create, above every term that was", nil, RegistrationEvent{Call: RegistrationRead, Outcome: NotFound}, RegistrationCreate, 3, 0, createsNew},
		{"mine: beat", nil, read(regOf(2, 4)), RegistrationUpdate, 2, 2, beatsOn(4)},
		{"mine, and nothing confirmed yet: beat in its term", func(s *Registrar) { s.Term = 0 }, read(regOf(2, 4)), RegistrationUpdate, 2, 0, nil},
		{"mine, by the heartbeat in doubt: accepted from its sending", pending, read(landed), RegistrationNone, 0, 2, acceptedAt(sentAt)},
		{"mine, the heartbeat in doubt not there yet: beat", pending, read(regOf(2, 4)), RegistrationUpdate, 2, 2, beatsOn(4)},
		{"mine, at the turn of the heartbeat in doubt, but the controller's write: beat", pending, read(recall), RegistrationUpdate, 2, 2, beatsOn(5)},
		{"mine, and somebody ended the term: serve nothing, beat in the new one", nil, read(regOf(3, 5)), RegistrationUpdate, 3, 0, nil},
		{"mine, and gone back: above every term that was", nil, read(regOf(1, 2)), RegistrationUpdate, 3, 0, nil},
		{"my machine, another boot: a new term", nil, read(rebooted), RegistrationUpdate, 3, 0, nil},
		{"my machine, another store: a new term", nil, read(replaced), RegistrationUpdate, 3, 0, nil},
		{"another machine: wait, and say who", nil, read(otherRegistration("1")), RegistrationNone, 0, 0, saysWho},
		{"another machine, unchanged for less than F/2", stranger(regNow.add(-7 * time.Minute)), read(otherRegistration("1")), RegistrationNone, 0, 0, saysWho},
		{"another machine, unchanged for F/2: register above it", stranger(regNow.add(-450 * time.Second)), read(otherRegistration("1")), RegistrationUpdate, 8, 0, nil},
		{"another machine that beats: wait anew", stranger(regNow.add(-450 * time.Second)), read(beats), RegistrationNone, 0, 0, saysWho},
		{"another machine, and a recall on its registration: register", stranger(regNow.add(-450 * time.Second)), read(otherRegistration("2")), RegistrationUpdate, 8, 0, nil},
		{"another machine, and my wall clock jumps: wait on", stranger(jumped), read(otherRegistration("1")), RegistrationNone, 0, 0, saysWho},
		{"another machine whose F is never: wait for ever", stranger(regNow.add(-50 * time.Hour)), read(forever), RegistrationNone, 0, 0, saysWho},
		{"ended, and this Node is vouched to be off: wait for the taint to go", off, read(ended), RegistrationNone, 0, 0, saysOff},
		{"ended, and the taint is gone: register above it", nil, read(ended), RegistrationUpdate, 9, 0, nil},
		{"the term goes on, whatever the taint says: the controller ends it", off, RegistrationEvent{}, RegistrationUpdate, 2, 2, nil},
		{"no answer to a read", nil, RegistrationEvent{Call: RegistrationRead, Outcome: Unknown}, RegistrationNone, 0, 2, nil},

		{"accepted, from its sending, not from the answer", pending, RegistrationEvent{Call: RegistrationUpdate, Outcome: Done, Registration: landed}, RegistrationNone, 0, 2, acceptedAt(sentAt)},
		{"created: accepted", pending, RegistrationEvent{Call: RegistrationCreate, Outcome: Done, Registration: landed}, RegistrationNone, 0, 2, acceptedAt(sentAt)},
		{"no answer to a heartbeat: it is in doubt", pending, wrote(Unknown), RegistrationNone, 0, 2, inDoubt(true)},
		{"a conflict: it was not accepted, read", pending, wrote(Conflict), RegistrationRead, 0, 2, inDoubt(false)},
		{"vanished: read", pending, wrote(NotFound), RegistrationRead, 0, 2, inDoubt(false)},
		{"a create that met another: read", pending, RegistrationEvent{Call: RegistrationCreate, Outcome: Exists}, RegistrationRead, 0, 2, inDoubt(false)},
		{"refused: it was not accepted", pending, wrote(Refused), RegistrationNone, 0, 2, inDoubt(false)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.ev.Now = regNow
			res := StepRegistration(registrar(tt.start), tt.ev)
			if res.Call != tt.call || res.Write.Term != tt.write || res.Next.Term != tt.term {
				t.Errorf("got call %v, writing term %d, registered in %d; want call %v, writing %d, registered in %d",
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

func notAccepted(res RegistrationResult) string {
	if res.Accepted {
		return "accepted; want not"
	}
	return ""
}

// beatsOn checks a heartbeat upon the registration at turn.
func beatsOn(turn int64) func(RegistrationResult) string {
	return func(res RegistrationResult) string {
		w, p := res.Write, res.Next.Pending
		switch {
		case res.Accepted:
			return "accepted before the answer"
		case w.Writes != turn+1 || w.Revision != "5" || w.UID != "u":
			return "it is not the next turn, by compare-and-swap"
		case w.Store != "s1" || w.Machine != "m1" || w.Boot != "b1" || w.NodeUID != "node" || w.Fence != 15*time.Minute:
			return "it does not name this agent"
		case p == nil || p.Sent != regNow || !p.wrote(w):
			return "it is not known by what was sent when"
		}
		return ""
	}
}

func createsNew(res RegistrationResult) string {
	if res.Write.Meta != (Meta{}) || res.Write.Store != "s1" {
		return "a create with metadata, or in another's name"
	}
	return notAccepted(res)
}

func acceptedAt(sent Instant) func(RegistrationResult) string {
	return func(res RegistrationResult) string {
		if !res.Accepted || res.Next.Sent != sent || res.Next.Pending != nil || res.Next.Fence != 15*time.Minute {
			return "not accepted from its sending"
		}
		return ""
	}
}

func inDoubt(want bool) func(RegistrationResult) string {
	return func(res RegistrationResult) string {
		if got := res.Next.Pending != nil; got != want {
			return "a heartbeat is in doubt that should not be, or the reverse"
		}
		return notAccepted(res)
	}
}

func saysOff(res RegistrationResult) string {
	if ok, why := res.Next.Serving(regNow); ok || !strings.Contains(why, "taint") || why != res.Why {
		return "it does not say that the taint is to be removed"
	}
	// The next tick reads again.
	if tick := StepRegistration(res.Next, RegistrationEvent{Now: regNow}); tick.Call != RegistrationRead {
		return "it does not look again"
	}
	return notAccepted(res)
}

func saysWho(res RegistrationResult) string {
	if !strings.Contains(res.Why, "s9") || !strings.Contains(res.Why, "m9") || res.Next.OtherHolder == nil {
		return "it does not say who is registered"
	}
	return notAccepted(res)
}

// TestStrangersFit: as many strangers as a registration has are no longer than the policy admits.
func TestStrangersFit(t *testing.T) {
	long := Stranger{Pool: PoolName(strings.Repeat("x", 63)), Addr: netip.MustParseAddr("2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff"), MAC: "02:00:00:00:00:09", At: regNow.Wall}
	text, err := json.Marshal(slices.Repeat([]Stranger{long}, MaxStrangers))
	if err != nil || len(text) > 4096 {
		t.Errorf("they have %d bytes, %v; want 4096 at most", len(text), err)
	}
}

// TestStrangersOfTwoPools: of an address the last is told, and one who answers for everything on
// the segment of a pool leaves room for those of others.
func TestStrangersOfTwoPools(t *testing.T) {
	at := func(pool PoolName, last byte, ago time.Duration) Stranger {
		return Stranger{Pool: pool, Addr: netip.AddrFrom4([4]byte{10, 0, 0, last}), At: regNow.Wall.Add(-ago)}
	}
	var all []Stranger
	for i := range byte(MaxStrangers) {
		all = append(all, at("a", i, time.Minute))
	}
	got := strangersToTell(all, []Stranger{at("a", 5, 0), at("a", 99, 0), at("b", 1, 0), at("b", 2, 0)}, regNow.Wall)
	if len(got) != MaxStrangers || !slices.Contains(got, at("b", 1, 0)) || !slices.Contains(got, at("b", 2, 0)) ||
		!slices.Contains(got, at("a", 5, 0)) || slices.Contains(got, at("a", 5, time.Minute)) || slices.Contains(got, at("a", 99, 0)) {
		t.Errorf("told are %v", got)
	}
}

// TestStrangersAreTold: a heartbeat tells of strangers that were found lately, also of those that
// the agent had found before it was started anew, each once, and of so many at most.
func TestStrangersAreTold(t *testing.T) {
	at := func(last byte, ago time.Duration) Stranger {
		return Stranger{Pool: "lan", Addr: netip.AddrFrom4([4]byte{10, 0, 0, last}), MAC: "02:00:00:00:00:09", At: regNow.Wall.Add(-ago)}
	}
	told := func(s Registrar) []Stranger {
		return StepRegistration(s, RegistrationEvent{Now: regNow}).Write.Strangers
	}
	s := registrar(func(s *Registrar) {
		s.Seen.Strangers = []Stranger{at(1, time.Minute), at(2, time.Hour)}
		s.Strangers = []Stranger{at(1, time.Minute), at(3, 0), at(4, -time.Hour)}
	})
	if got, want := told(s), []Stranger{at(1, time.Minute), at(3, 0)}; !slices.Equal(got, want) {
		t.Errorf("it tells %v; want %v", got, want)
	}
	for i := range 40 {
		s.Strangers = append(s.Strangers, at(byte(100+i), 0))
	}
	if got := told(s); len(got) != MaxStrangers || got[0] != at(1, time.Minute) {
		t.Errorf("it tells of %d; want %d, those found first", len(got), MaxStrangers)
	}
}

package protocol

import (
	"testing"
	"time"
)

// An agent gives nothing out F after the sending of its last accepted heartbeat.
func TestServing(t *testing.T) {
	const f = 15 * time.Minute
	sent := regNow
	boot, wall := Instant{Boot: f}, Instant{Wall: sent.Wall.Add(f)}
	boot.Boot, boot.Wall = sent.Boot+f, sent.Wall.Add(-2*time.Hour)
	wall.Boot = sent.Boot + time.Second
	fence := func(own, told time.Duration) func(*Registrar) {
		return func(s *Registrar) { s.Self.Fence, s.Fence = own, told }
	}
	tests := []struct {
		name  string
		start func(*Registrar)
		now   Instant
		want  bool
	}{
		{"at once", nil, sent, true},
		{"just before F", nil, sent.add(f - 1), true},
		{"at F", nil, sent.add(f), false},
		{"F by the boot clock, the wall clock gone back", nil, boot, false},
		{"F by the wall clock, the boot clock stopped", nil, wall, false},
		{"no registration", func(s *Registrar) { s.Term = 0 }, sent, false},
		{"another machine is registered", func(s *Registrar) { s.Term, s.OtherHolder = 0, &Watch{} }, sent, false},
		{"F is never", fence(0, 0), sent.add(1000 * time.Hour), true},
		{"F was lengthened, and the cluster does not know yet", fence(time.Hour, f), sent.add(f), false},
		{"F was shortened, and the cluster may know already", fence(5*time.Minute, f), sent.add(5 * time.Minute), false},
		{"F is never from now on, and the cluster does not know yet", fence(0, f), sent.add(f), false},
		{"F was never, and the cluster may know it already", fence(f, 0), sent.add(f), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := registrar(func(s *Registrar) { s.Sent = sent })
			if tt.start != nil {
				tt.start(&s)
			}
			got, why := s.Serving(tt.now)
			if got != tt.want {
				t.Errorf("got serving %v (%s); want %v", got, why, tt.want)
			}
			if !got && why == "" {
				t.Error("no reason")
			}
		})
	}
}

// After a restart an agent serves by what its store has, if that is of this boot.
func TestResume(t *testing.T) {
	const f = 15 * time.Minute
	tests := []struct {
		name string
		boot string
		term int64
		want bool // serves at once
	}{
		{"the same boot: until F from the last heartbeat", "b1", 4, true},
		{"another boot: nothing", "b0", 4, false},
		{"a store that was never registered", "", 0, false},
		{"a term of no boot", "", 4, false},
		{"no term", "b1", 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := Resume(regSelf, tt.boot, tt.term, regNow, f)
			if got, why := s.Serving(regNow.add(f - 1)); got != tt.want {
				t.Errorf("before F: got serving %v (%s); want %v", got, why, tt.want)
			}
			if got, _ := s.Serving(regNow.add(f)); got {
				t.Error("it serves at F")
			}
			if s.LastTerm != tt.term {
				t.Errorf("got last term %d; want %d: a new term must be above it", s.LastTerm, tt.term)
			}
			if res := StepRegistration(s, RegistrationEvent{Now: regNow}); res.Call != RegistrationRead {
				t.Errorf("got call %v first; want a read", res.Call)
			}
		})
	}
	t.Run("an agent without a boot ID resumes nothing", func(t *testing.T) {
		self := regSelf
		self.Boot = ""
		if s := Resume(self, "", 4, regNow, f); s.Term != 0 {
			t.Errorf("got term %d; want 0", s.Term)
		}
	})
}

func TestBeatEvery(t *testing.T) {
	for _, tt := range []struct{ own, told, want time.Duration }{
		{15 * time.Minute, 15 * time.Minute, 225 * time.Second},
		{15 * time.Minute, 4 * time.Minute, time.Minute},
		{15 * time.Minute, 0, 225 * time.Second},
		{0, 0, time.Minute},
	} {
		s := Registrar{Self: Identity{Fence: tt.own}, Fence: tt.told}
		if got := s.BeatEvery(); got != tt.want {
			t.Errorf("F %v, told %v: got %v; want %v", tt.own, tt.told, got, tt.want)
		}
	}
}

// A heartbeat whose answer was lost is accepted when a read tells of it, and F counts
// from when it was sent: the next one must not come F/4 after the read.
func TestBeatAgain(t *testing.T) {
	const f = 15 * time.Minute
	self := regSelf
	self.Fence = f
	for ago, again := range map[time.Duration]bool{0: false, f/2 - time.Second: false, f / 2: true, f - time.Second: true} {
		sent := StepRegistration(Registrar{Self: self, Term: 3, LastTerm: 3, Fence: f, Seen: Registration{Meta: Meta{UID: "u"}}}, RegistrationEvent{Now: regNow})
		now := regNow.add(ago)
		got := StepRegistration(sent.Next, RegistrationEvent{Now: now, Call: RegistrationRead, Outcome: Done, Registration: sent.Write})
		if !got.Accepted || got.Again != again {
			t.Errorf("sent %v ago: accepted %v, the next at once %v; want %v", ago, got.Accepted, got.Again, again)
		}
	}
}

// What the API server keeps of a heartbeat's time is microseconds: one that is
// read back is known all the same.
func TestBeatReadBack(t *testing.T) {
	now := regNow
	now.Wall = now.Wall.Add(123456789 * time.Nanosecond)
	res := StepRegistration(registrar(nil), RegistrationEvent{Now: now})
	kept := res.Write
	kept.Beat = kept.Beat.Truncate(time.Microsecond).In(time.FixedZone("", 3600))
	got := StepRegistration(res.Next, RegistrationEvent{Now: now.add(time.Minute), Call: RegistrationRead, Outcome: Done, Registration: kept})
	if !got.Accepted || got.Next.Sent != now {
		t.Errorf("got accepted %v, sent %v; want accepted, sent %v", got.Accepted, got.Next.Sent, now)
	}
}

func TestNextRecheck(t *testing.T) {
	noted := walkNow
	for _, tt := range []struct {
		after, want time.Duration
		none        bool
	}{
		{after: 0, want: time.Minute},
		{after: time.Minute, want: 5 * time.Minute},
		{after: 5*time.Minute - 1, want: 5 * time.Minute},
		{after: 5 * time.Minute, want: 30 * time.Minute},
		{after: 30 * time.Minute, none: true},
		{after: -3 * time.Hour, want: -3*time.Hour + time.Minute}, // the clock went back
	} {
		at, ok := NextRecheck(noted, noted.Add(tt.after))
		if ok == tt.none || ok && at != noted.Add(tt.want) {
			t.Errorf("%v after: got %v, %v; want %v, %v", tt.after, at.Sub(noted), ok, tt.want, !tt.none)
		}
	}
}

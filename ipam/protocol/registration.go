package protocol

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// An Instant is one moment by the two clocks that a machine has. Since takes the
// longer of both: the boot clock does not jump, the wall clock does not stop.
type Instant struct {
	Boot time.Duration // since boot, suspends included
	Wall time.Time
}

// Since returns how long ago earlier was, by the clock that says longer.
func (i Instant) Since(earlier Instant) time.Duration {
	return max(i.Boot-earlier.Boot, i.Wall.Sub(earlier.Wall))
}

// MaxFence is the longest F that an agent may have, apart from never. Where others have to wait for
// F, a longer one that a registration names counts as this.
const MaxFence = time.Hour

// An Identity is what a registration must name so that the agent may give addresses.
type Identity struct {
	Node    NodeName
	NodeUID UID
	Store   StoreID
	Machine string
	Boot    string
	// Fence is F: without an accepted heartbeat for so long the agent gives out
	// nothing new. 0 means never by time.
	Fence time.Duration
}

// A Registrar is an agent's side of its registration.
type Registrar struct {
	Self Identity
	// Term is the confirmed term, 0 while the agent has no registration.
	Term int64
	// LastTerm is the highest term this agent has had or seen.
	LastTerm int64
	// Sent is when the last accepted heartbeat was sent. Fence is the F that it carried, by which
	// others count.
	Sent  Instant
	Fence time.Duration
	// Seen is the registration as last read or written; its UID is empty where unknown.
	Seen Registration
	// Pending is a heartbeat whose answer is not known.
	Pending *Beat
	// OtherHolder is set while another machine is registered for the node: since when its
	// registration has been seen unchanged.
	OtherHolder *Watch
	// Restored is what the next heartbeats say in [Registration.Restored].
	Restored string
	// Report is what the next heartbeats say in [Registration.Report].
	Report string
	// Strangers are what the next heartbeats say in [Registration.Strangers], beside what stands
	// there.
	Strangers []Stranger
	// Off says that the Node had the out-of-service taint when it was last read:
	// somebody vouches that this machine is off. While it stands the agent does not
	// register: its term would be ended again at once.
	Off bool
}

// A Beat is a heartbeat on its way. The registration that it writes is known by Writes and
// At together: others raise the write counter too, and a heartbeat of an earlier life of
// this agent may have carried the same one.
type Beat struct {
	Writes int64
	At     time.Time // the registration's Beat
	Sent   Instant
}

// wrote reports whether registration is what b writes.
func (b *Beat) wrote(reg Registration) bool {
	return b != nil && reg.Writes == b.Writes && reg.Beat.Equal(b.At)
}

// A Watch is since when a registration has shown one heartbeat. The controller writes recalls
// to a registration, also to that of a machine which is dead.
type Watch struct {
	heartbeat heartbeat
	Since     Instant
}

// Resume returns the registrar of an agent that starts. If its store has a term of this boot, the
// agent goes on in it, with the last heartbeat and the F of the store. Otherwise it has no
// registration.
func Resume(self Identity, boot string, term int64, sent Instant, fence time.Duration) Registrar {
	s := Registrar{Self: self, LastTerm: term}
	if boot == self.Boot && boot != "" && term > 0 {
		s.Term, s.Sent, s.Fence = term, sent, fence
	}
	return s
}

// fence is F for this agent: the shorter of the F that the cluster knows and the F of this agent's
// heartbeats, for a heartbeat may have been accepted although its answer was lost. 0 means never by
// time.
func (s Registrar) fence() time.Duration {
	if s.Fence <= 0 || s.Self.Fence <= 0 {
		return max(s.Fence, s.Self.Fence, 0)
	}
	return min(s.Fence, s.Self.Fence)
}

// Serving reports whether the agent may give out addresses at now; if not, why.
func (s Registrar) Serving(now Instant) (bool, string) {
	switch {
	case s.Term == 0 && s.OtherHolder != nil:
		return false, fmt.Sprintf("the registration of node %s is held by another machine (store %s, machine %s)", s.Self.Node, s.Seen.Store, s.Seen.Machine)
	case s.Term == 0 && s.Off:
		return false, fmt.Sprintf("node %s has the out-of-service taint, and what it held is taken over: remove the taint now that the machine is back", s.Self.Node)
	case s.Term == 0:
		return false, fmt.Sprintf("the registration of node %s is not confirmed yet", s.Self.Node)
	case s.fence() > 0 && now.Since(s.Sent) >= s.fence():
		return false, fmt.Sprintf("no heartbeat of node %s was accepted for %v: the API server does not answer", s.Self.Node, s.fence())
	}
	return true, ""
}

// BeatEvery returns how often to send heartbeats.
func (s Registrar) BeatEvery() time.Duration {
	if f := s.fence(); f > 0 {
		return f / 4
	}
	return time.Minute
}

// RegistrationCall is what to ask of the API server next about the registration.
type RegistrationCall uint8

// The calls.
const (
	RegistrationNone RegistrationCall = iota
	RegistrationRead
	RegistrationCreate
	RegistrationUpdate
)

// RegistrationEvent is what happened to the registration: the zero Call is a tick of the clock,
// any other the outcome of that call.
type RegistrationEvent struct {
	Now          Instant
	Call         RegistrationCall
	Outcome      Outcome
	Registration Registration
	Why          string
}

// RegistrationResult is what a step of the registration leads to.
type RegistrationResult struct {
	Next Registrar
	// Call is sent after Next is taken over; Write is what a create or update
	// carries, by compare-and-swap on its Meta.
	Call  RegistrationCall
	Write Registration
	// Accepted says that a heartbeat was accepted: Next.Term and Next.Sent go to
	// the store.
	Accepted bool
	// Again says that the next heartbeat is due at once: the accepted one was sent F/2 ago or
	// earlier, and F counts from then. A read may show that.
	Again bool
	Why   string
}

// StepRegistration is the life of an agent's side of its registration,
// docs/contributing/protocol.md "The registration".
func StepRegistration(s Registrar, ev RegistrationEvent) RegistrationResult {
	switch ev.Call {
	case RegistrationNone:
		// Without a term it cannot send a heartbeat, and a read comes first.
		if s.Seen.UID == "" || s.Term == 0 || s.Pending != nil || s.OtherHolder != nil {
			return RegistrationResult{Next: s, Call: RegistrationRead}
		}
		return s.beat(ev.Now, s.Term)
	case RegistrationRead:
		return s.read(ev)
	case RegistrationCreate, RegistrationUpdate:
		return s.written(ev)
	}
	panic(fmt.Sprintf("protocol: registration call %d", ev.Call))
}

func (s Registrar) read(ev RegistrationEvent) RegistrationResult {
	switch ev.Outcome {
	case NotFound:
		s.Seen, s.OtherHolder = Registration{}, nil
		return s.register(ev.Now)
	case Done:
	case Unknown, Exists, Conflict, Refused:
		return RegistrationResult{Next: s, Why: ev.Why}
	}
	reg := ev.Registration
	s.Seen, s.LastTerm = reg, max(s.LastTerm, reg.Term)
	switch {
	case s.names(reg):
		s.OtherHolder = nil
		if s.Pending.wrote(reg) {
			res := s.accept(reg, s.Pending.Sent)
			f := res.Next.fence()
			res.Again = f > 0 && ev.Now.Since(res.Next.Sent) >= f/2
			return res
		}
		if reg.Term != s.Term { // somebody ended this agent's term: it must register again
			s.Term = 0
		}
		if reg.Term < s.LastTerm { // the registration has gone back: begin anew above all that was
			return s.register(ev.Now)
		}
		return s.beat(ev.Now, reg.Term)
	case reg.Machine == s.Self.Machine, reg.Ended():
		s.OtherHolder = nil
		return s.register(ev.Now)
	}
	// Another machine is registered. It may be alive, or this machine may replace it. If its
	// registration does not change for half of its F, this machine registers.
	s.Term = 0
	if h := heartbeatOf(reg); s.OtherHolder == nil || s.OtherHolder.heartbeat != h {
		s.OtherHolder = &Watch{heartbeat: h, Since: ev.Now}
	}
	// By the boot clock alone: a wall clock that jumps must not cut this short.
	if f := reg.Fence; f > 0 && ev.Now.Boot-s.OtherHolder.Since.Boot >= f/2 {
		s.OtherHolder = nil
		return s.register(ev.Now)
	}
	_, why := s.Serving(ev.Now)
	return RegistrationResult{Next: s, Why: why}
}

func (s Registrar) written(ev RegistrationEvent) RegistrationResult {
	switch ev.Outcome {
	case Done:
		sent := ev.Now
		if s.Pending != nil {
			sent = s.Pending.Sent
		}
		return s.accept(ev.Registration, sent)
	case Conflict, Exists, NotFound: // this heartbeat was not accepted, and will not be
		s.Seen.UID, s.Pending = "", nil
		return RegistrationResult{Next: s, Call: RegistrationRead, Why: ev.Why}
	case Unknown:
		return RegistrationResult{Next: s, Why: ev.Why}
	case Refused:
		s.Pending = nil
		return RegistrationResult{Next: s, Why: ev.Why}
	}
	panic(fmt.Sprintf("protocol: registration outcome %v", ev.Outcome))
}

func (s Registrar) names(reg Registration) bool {
	return reg.Store == s.Self.Store && reg.Machine == s.Self.Machine && reg.Boot == s.Self.Boot
}

func (s Registrar) accept(reg Registration, sent Instant) RegistrationResult {
	s.Seen, s.Pending, s.OtherHolder = reg, nil, nil
	s.Term, s.LastTerm, s.Sent, s.Fence = reg.Term, max(s.LastTerm, reg.Term), sent, reg.Fence
	return RegistrationResult{Next: s, Accepted: true}
}

// formerMax bounds how many former registrants a registration remembers.
const formerMax = 16

// register begins a new term. The agent of another store, which was registered before, may have
// left leases: it becomes a former one.
func (s Registrar) register(now Instant) RegistrationResult {
	s.Term = 0
	if s.Off {
		s.Seen, s.Pending = Registration{}, nil // the next step reads the registration
		_, why := s.Serving(now)
		return RegistrationResult{Next: s, Why: why}
	}
	former := slices.DeleteFunc(slices.Clone(s.Seen.Former), func(f Former) bool { return f.Store == s.Self.Store || f.Store == s.Seen.Store })
	if !s.Seen.Ended() && s.Seen.Store != s.Self.Store {
		former = append(former, s.Seen.Registrant())
	}
	s.Seen.Former = former[max(0, len(former)-formerMax):]
	return s.beat(now, s.LastTerm+1)
}

// MaxStrangers is how many strangers a registration tells of, and how many addresses of one pool
// are kept from pods because of strangers.
const MaxStrangers = 16

// strangerTold is for how long a registration tells of a stranger: long enough for the next leader
// to read it.
const strangerTold = 10 * time.Minute

// Lately reports whether x was found lately, by the clock of the node that has found it.
func (x Stranger) Lately(now time.Time) bool { return now.Sub(x.At).Abs() < strangerTold }

// strangersToTell returns the strangers that a heartbeat tells of: those that were told, and found
// lately, and those that are new, of each address the last. Where they are too many, a new one
// takes the place of the first of the pool that has most, if its own has fewer.
func strangersToTell(told, found []Stranger, now time.Time) (all []Stranger) {
	of := map[PoolName]int{}
	for _, x := range slices.Concat(told, found) {
		same := slices.IndexFunc(all, func(y Stranger) bool { return y.Pool == x.Pool && y.Addr == x.Addr })
		switch {
		case !x.Lately(now):
			continue
		case same >= 0:
			all[same] = x
			continue
		case len(all) == MaxStrangers:
			most := slices.MaxFunc(all, func(a, b Stranger) int { return cmp.Compare(of[a.Pool], of[b.Pool]) }).Pool
			if of[most] <= of[x.Pool]+1 {
				continue
			}
			first := slices.IndexFunc(all, func(y Stranger) bool { return y.Pool == most })
			all = slices.Delete(all, first, first+1)
			of[most]--
		}
		all = append(all, x)
		of[x.Pool]++
	}
	return all
}

// beat writes the registration in term.
func (s Registrar) beat(now Instant, term int64) RegistrationResult {
	write := s.Seen
	write.Node, write.NodeUID, write.Store = s.Self.Node, s.Self.NodeUID, s.Self.Store
	write.Machine, write.Boot, write.Fence = s.Self.Machine, s.Self.Boot, s.Self.Fence
	write.Restored, write.Report = s.Restored, s.Report
	write.Strangers = strangersToTell(s.Seen.Strangers, s.Strangers, now.Wall)
	// The API keeps microseconds.
	write.Term, write.Writes, write.Beat = term, s.Seen.Writes+1, now.Wall.Truncate(time.Microsecond)
	s.Pending = &Beat{Writes: write.Writes, At: write.Beat, Sent: now}
	call := RegistrationUpdate
	if s.Seen.UID == "" {
		call = RegistrationCreate
		write.Meta = Meta{}
	}
	return RegistrationResult{Next: s, Call: call, Write: write}
}

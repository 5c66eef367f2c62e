package protocol

import (
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

// MaxFence is the longest F that an agent may have, unless it is never: what a seat says
// beyond is not believed where others would have to wait for it.
const MaxFence = time.Hour

// An Identity is what a seat must name for its agent to serve under it.
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

// A Sitting is an agent's side of its seat.
type Sitting struct {
	Self Identity
	// Term is the confirmed term, 0 while the agent has no seat.
	Term int64
	// LastTerm is the highest term this agent has had or seen.
	LastTerm int64
	// Sent is when the last accepted heartbeat was sent, and Fence the F that it
	// told the cluster, by which others count.
	Sent  Instant
	Fence time.Duration
	// Seen is the seat as last read or written; its UID is empty where unknown.
	Seen Seat
	// Pending is a heartbeat whose answer is not known.
	Pending *Beat
	// Stranger is since when another machine's seat has been seen unchanged.
	Stranger *Watch
	// Restored is what the next heartbeats say in [Seat.Restored].
	Restored string
	// Report is what the next heartbeats say in [Seat.Report].
	Report string
	// Off says that the Node had the out-of-service taint when it was last read:
	// somebody vouches that this machine is off. While it stands the agent does not
	// sit down: its term would be ended again at once.
	Off bool
}

// A Beat is a heartbeat on its way. The seat that it writes is known by Turn and
// At together: others raise the turn too, and a heartbeat of an earlier life of
// this agent may have carried the same one.
type Beat struct {
	Turn int64
	At   time.Time // the seat's Beat
	Sent Instant
}

// wrote reports whether seat is what b writes.
func (b *Beat) wrote(seat Seat) bool {
	return b != nil && seat.Turn == b.Turn && seat.Beat.Equal(b.At)
}

// A Watch is since when a seat has shown one heartbeat. The controller writes recalls
// to a seat, also to that of a machine which is dead.
type Watch struct {
	heartbeat heartbeat
	Since     Instant
}

// Resume returns the sitting of an agent that starts: with the term and the last
// heartbeat of its store, and the F that this told, where these are of this very
// boot, else without a seat.
func Resume(self Identity, boot string, term int64, sent Instant, fence time.Duration) Sitting {
	s := Sitting{Self: self, LastTerm: term}
	if boot == self.Boot && boot != "" && term > 0 {
		s.Term, s.Sent, s.Fence = term, sent, fence
	}
	return s
}

// fence is F for this agent: the shorter one of what the cluster knows and what
// this agent's heartbeats tell it, since one of these may have been accepted
// without an answer. 0 means never by time.
func (s Sitting) fence() time.Duration {
	if s.Fence <= 0 || s.Self.Fence <= 0 {
		return max(s.Fence, s.Self.Fence, 0)
	}
	return min(s.Fence, s.Self.Fence)
}

// Serving reports whether the agent may give out addresses at now; if not, why.
func (s Sitting) Serving(now Instant) (bool, string) {
	switch {
	case s.Term == 0 && s.Stranger != nil:
		return false, fmt.Sprintf("the seat of node %s is held by another machine (store %s, machine %s)", s.Self.Node, s.Seen.Store, s.Seen.Machine)
	case s.Term == 0 && s.Off:
		return false, fmt.Sprintf("node %s has the out-of-service taint, and what it held is taken over: remove the taint now that the machine is back", s.Self.Node)
	case s.Term == 0:
		return false, fmt.Sprintf("the seat of node %s is not confirmed yet", s.Self.Node)
	case s.fence() > 0 && now.Since(s.Sent) >= s.fence():
		return false, fmt.Sprintf("no heartbeat of node %s was accepted for %v: the API server does not answer", s.Self.Node, s.fence())
	}
	return true, ""
}

// BeatEvery returns how often to send heartbeats.
func (s Sitting) BeatEvery() time.Duration {
	if f := s.fence(); f > 0 {
		return f / 4
	}
	return time.Minute
}

// SeatCall is what to ask of the API server next about the seat.
type SeatCall uint8

// The calls.
const (
	SeatNone SeatCall = iota
	SeatRead
	SeatCreate
	SeatUpdate
)

// SeatEvent is what happened to the seat: the zero Call is a tick of the clock,
// any other the outcome of that call.
type SeatEvent struct {
	Now     Instant
	Call    SeatCall
	Outcome Outcome
	Seat    Seat
	Why     string
}

// SeatResult is what a step of the seat leads to.
type SeatResult struct {
	Next Sitting
	// Call is sent after Next is taken over; Write is what a create or update
	// carries, by compare-and-swap on its Meta.
	Call  SeatCall
	Write Seat
	// Accepted says that a heartbeat was accepted: Next.Term and Next.Sent go to
	// the store.
	Accepted bool
	// Again says that the heartbeat which was accepted was sent F/2 ago or earlier, as a
	// read may tell, and F counts from then: the next one is due at once.
	Again bool
	Why   string
}

// StepSeat is the life of an agent's side of its seat, docs/contributing/protocol.md "The seat".
func StepSeat(s Sitting, ev SeatEvent) SeatResult {
	switch ev.Call {
	case SeatNone:
		// Without a term there is none to beat in: it did not sit down when it wanted to.
		if s.Seen.UID == "" || s.Term == 0 || s.Pending != nil || s.Stranger != nil {
			return SeatResult{Next: s, Call: SeatRead}
		}
		return s.beat(ev.Now, s.Term)
	case SeatRead:
		return s.read(ev)
	case SeatCreate, SeatUpdate:
		return s.written(ev)
	}
	panic(fmt.Sprintf("protocol: seat call %d", ev.Call))
}

func (s Sitting) read(ev SeatEvent) SeatResult {
	switch ev.Outcome {
	case NotFound:
		s.Seen, s.Stranger = Seat{}, nil
		return s.sitDown(ev.Now)
	case Done:
	case Unknown, Exists, Conflict, Refused:
		return SeatResult{Next: s, Why: ev.Why}
	}
	seat := ev.Seat
	s.Seen, s.LastTerm = seat, max(s.LastTerm, seat.Term)
	switch {
	case s.names(seat):
		s.Stranger = nil
		if s.Pending.wrote(seat) {
			res := s.accept(seat, s.Pending.Sent)
			f := res.Next.fence()
			res.Again = f > 0 && ev.Now.Since(res.Next.Sent) >= f/2
			return res
		}
		if seat.Term != s.Term { // somebody ended this agent's term: it serves again when it sits
			s.Term = 0
		}
		if seat.Term < s.LastTerm { // the seat has gone back: begin anew above all that was
			return s.sitDown(ev.Now)
		}
		return s.beat(ev.Now, seat.Term)
	case seat.Machine == s.Self.Machine, seat.Ended():
		s.Stranger = nil
		return s.sitDown(ev.Now)
	}
	// Another machine sits there. It may be alive, or be the one that this
	// machine replaces: half of its F without a change tells.
	s.Term = 0
	if h := heartbeatOf(seat); s.Stranger == nil || s.Stranger.heartbeat != h {
		s.Stranger = &Watch{heartbeat: h, Since: ev.Now}
	}
	// By the boot clock alone: a wall clock that jumps must not cut this short.
	if f := seat.Fence; f > 0 && ev.Now.Boot-s.Stranger.Since.Boot >= f/2 {
		s.Stranger = nil
		return s.sitDown(ev.Now)
	}
	_, why := s.Serving(ev.Now)
	return SeatResult{Next: s, Why: why}
}

func (s Sitting) written(ev SeatEvent) SeatResult {
	switch ev.Outcome {
	case Done:
		sent := ev.Now
		if s.Pending != nil {
			sent = s.Pending.Sent
		}
		return s.accept(ev.Seat, sent)
	case Conflict, Exists, NotFound: // it was not, and will not be, accepted
		s.Seen.UID, s.Pending = "", nil
		return SeatResult{Next: s, Call: SeatRead, Why: ev.Why}
	case Unknown:
		return SeatResult{Next: s, Why: ev.Why}
	case Refused:
		s.Pending = nil
		return SeatResult{Next: s, Why: ev.Why}
	}
	panic(fmt.Sprintf("protocol: seat outcome %v", ev.Outcome))
}

func (s Sitting) names(seat Seat) bool {
	return seat.Store == s.Self.Store && seat.Machine == s.Self.Machine && seat.Boot == s.Self.Boot
}

func (s Sitting) accept(seat Seat, sent Instant) SeatResult {
	s.Seen, s.Pending, s.Stranger = seat, nil, nil
	s.Term, s.LastTerm, s.Sent, s.Fence = seat.Term, max(s.LastTerm, seat.Term), sent, seat.Fence
	return SeatResult{Next: s, Accepted: true}
}

// formerMax bounds how many former occupants a seat remembers.
const formerMax = 16

// sitDown begins a new term. Whoever sat there with another store may have left
// leases.
func (s Sitting) sitDown(now Instant) SeatResult {
	s.Term = 0
	if s.Off {
		s.Seen, s.Pending = Seat{}, nil // what comes of it, a read tells
		_, why := s.Serving(now)
		return SeatResult{Next: s, Why: why}
	}
	former := slices.DeleteFunc(slices.Clone(s.Seen.Former), func(f Former) bool { return f.Store == s.Self.Store || f.Store == s.Seen.Store })
	if !s.Seen.Ended() && s.Seen.Store != s.Self.Store {
		former = append(former, s.Seen.Occupant())
	}
	s.Seen.Former = former[max(0, len(former)-formerMax):]
	return s.beat(now, s.LastTerm+1)
}

// beat writes the seat in term.
func (s Sitting) beat(now Instant, term int64) SeatResult {
	write := s.Seen
	write.Node, write.NodeUID, write.Store = s.Self.Node, s.Self.NodeUID, s.Self.Store
	write.Machine, write.Boot, write.Fence = s.Self.Machine, s.Self.Boot, s.Self.Fence
	write.Restored, write.Report = s.Restored, s.Report
	write.Term, write.Turn, write.Beat = term, s.Seen.Turn+1, now.Wall.Truncate(time.Microsecond) // what the API keeps of it
	s.Pending = &Beat{Turn: write.Turn, At: write.Beat, Sent: now}
	call := SeatUpdate
	if s.Seen.UID == "" {
		call = SeatCreate
		write.Meta = Meta{}
	}
	return SeatResult{Next: s, Call: call, Write: write}
}

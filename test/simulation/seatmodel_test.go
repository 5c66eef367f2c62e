package simulation

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// seatWorld is one run of the seat's model: agents of one node name, on machines
// that crash, boot, lose their disks and have one clock of two that lies; an API
// server that answers late or not at all; people and a controller that write the
// same object.
type seatWorld struct {
	rng     *choices
	now     time.Duration
	api     *simAPI
	agents  []*sitter
	late    []*seatCall
	landed  map[string]time.Duration       // when the last write of a store, in a boot, was accepted
	boots   map[protocol.StoreID]bootTerms // which boot a store had each term in
	term    int64                          // the seat's, as last seen
	trace   []string
	failure string
}

type bootTerms map[int64]string

// sitter is one machine and its agent's side of the seat.
type sitter struct {
	machine       string
	fence         time.Duration
	boots, stores int
	bootAt        time.Duration
	stopped       time.Duration
	wallOff       time.Duration
	wallLies      bool

	// On disk.
	boot string
	term int64
	sent protocol.Instant
	told time.Duration

	up      bool
	sitting protocol.Sitting
	sending *protocol.SeatResult // a call that is to be sent
	call    *seatCall            // a call that is under way
}

// seatCall is one call; answer is set when it commits.
type seatCall struct {
	kind      protocol.SeatCall
	commit    func(*seatCall)
	committed bool
	answer    protocol.SeatEvent
}

// arrive commits c.
func (c *seatCall) arrive() {
	c.committed = true
	c.commit(c)
}

func (a *sitter) self() protocol.Identity {
	return protocol.Identity{
		Node: "n1", NodeUID: "node", Store: protocol.StoreID(fmt.Sprintf("%s-s%d", a.machine, a.stores)),
		Machine: a.machine, Boot: fmt.Sprintf("%s-b%d", a.machine, a.boots), Fence: a.fence,
	}
}

func (a *sitter) now(w *seatWorld) protocol.Instant {
	return protocol.Instant{Boot: w.now - a.bootAt - a.stopped, Wall: epoch.Add(w.now + a.wallOff)}
}

func (w *seatWorld) logf(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%9.1fs ", w.now.Seconds())+fmt.Sprintf(format, args...))
}

// step steps the seat, and keeps what is accepted before it is believed.
func (w *seatWorld) step(a *sitter, ev protocol.SeatEvent) {
	ev.Now = a.now(w)
	res := protocol.StepSeat(a.sitting, ev)
	w.logf("%s: call %d %v -> call %d, term %d, turn %d, accepted %v, sits in %d", a.machine, ev.Call, ev.Outcome, res.Call, res.Write.Term, res.Write.Turn, res.Accepted, res.Next.Term)
	a.sitting, a.call = res.Next, nil
	if res.Accepted {
		a.boot, a.term, a.sent, a.told = res.Next.Self.Boot, res.Next.Term, res.Next.Sent, res.Next.Self.Fence
		return
	}
	if res.Call != protocol.SeatNone {
		a.sending = &res
	}
}

// send puts a call on its way.
func (w *seatWorld) send(a *sitter) {
	res := *a.sending
	a.sending = nil
	self, life := a.self(), a.self().Boot+"/"+string(a.self().Store)
	a.call = &seatCall{kind: res.Call, commit: func(c *seatCall) {
		ev := protocol.SeatEvent{Call: res.Call}
		switch res.Call {
		case protocol.SeatRead:
			ev.Seat, ev.Outcome = w.api.seats.read("n1")
		case protocol.SeatCreate:
			res.Write.Name = "n1"
			ev.Seat, ev.Outcome = w.api.seats.create(res.Write)
		case protocol.SeatUpdate:
			ev.Seat, ev.Outcome = w.api.seats.update(res.Write.Meta, func(s *protocol.Seat) { *s = res.Write })
		case protocol.SeatNone:
		}
		w.logf("server: %s's call %d, term %d, turn %d: %v", self.Machine, res.Call, res.Write.Term, res.Write.Turn, ev.Outcome)
		if ev.Outcome == protocol.Done && res.Call != protocol.SeatRead {
			w.land(self, life, ev.Seat)
		}
		c.answer = ev
	}}
}

// land notes an accepted write.
func (w *seatWorld) land(self protocol.Identity, life string, seat protocol.Seat) {
	w.landed[life] = w.now
	terms := w.boots[self.Store]
	if terms == nil {
		terms = bootTerms{}
		w.boots[self.Store] = terms
	}
	if boot, ok := terms[seat.Term]; ok && boot != self.Boot {
		w.failure = fmt.Sprintf("store %s has term %d in boots %s and %s", self.Store, seat.Term, boot, self.Boot)
	}
	terms[seat.Term] = self.Boot
}

// act lets one thing happen.
func (w *seatWorld) act() {
	w.now += time.Duration(w.rng.Int64N(int64(10 * time.Second)))
	if w.rng.IntN(12) == 0 {
		w.now += time.Duration(w.rng.Int64N(int64(6 * time.Minute)))
	}
	a := w.agents[w.rng.IntN(len(w.agents))]
	switch w.rng.IntN(24) {
	case 0:
		w.restart(a, w.rng.IntN(3))
	case 1:
		if len(w.late) > 0 {
			i := w.rng.IntN(len(w.late))
			c := w.late[i]
			w.late = slices.Delete(w.late, i, i+1)
			c.arrive()
		}
	case 2:
		w.meddle()
	case 3:
		d := time.Duration(w.rng.Int64N(int64(30 * time.Minute)))
		if a.wallLies {
			a.wallOff += 2*d - 30*time.Minute
		} else { // the machine was paused, and its boot clock with it
			w.now += d
			a.stopped += d
		}
	default:
		w.progress(a)
	}
	w.check()
}

// progress goes on with what an agent is at.
func (w *seatWorld) progress(a *sitter) {
	lost := w.rng.IntN(6) == 0
	switch {
	case !a.up:
		w.restart(a, 0)
	case a.sending != nil:
		w.send(a)
	case a.call == nil:
		w.step(a, protocol.SeatEvent{})
	case a.call.kind != protocol.SeatRead && !a.call.committed && w.rng.IntN(20) == 0: // by a policy, or for want of rights
		w.logf("%s: is refused", a.machine)
		w.step(a, protocol.SeatEvent{Call: a.call.kind, Outcome: protocol.Refused})
	case lost: // gives up
		w.abandon(a)
		w.step(a, protocol.SeatEvent{Call: a.call.kind, Outcome: protocol.Unknown})
	case !a.call.committed:
		a.call.arrive()
	default:
		w.step(a, a.call.answer)
	}
}

// abandon leaves an agent's call to itself: it may commit all the same.
func (w *seatWorld) abandon(a *sitter) {
	if a.call != nil && !a.call.committed {
		w.late = append(w.late, a.call)
	}
}

// restart stops an agent and starts it: in the same boot, in another, or with an
// empty disk in another.
func (w *seatWorld) restart(a *sitter, how int) {
	w.abandon(a)
	a.sending, a.call = nil, nil
	if how > 0 {
		a.boots++
		a.bootAt, a.stopped, a.wallOff, a.wallLies = w.now, 0, 0, w.rng.IntN(2) == 0
	}
	if how > 1 {
		a.stores++
		a.boot, a.term, a.sent, a.told = "", 0, protocol.Instant{}, 0
	}
	a.fence = []time.Duration{10 * time.Minute, 15 * time.Minute, 30 * time.Minute}[w.rng.IntN(3)]
	a.up, a.sitting = true, protocol.Resume(a.self(), a.boot, a.term, a.sent, a.told)
	w.logf("%s: starts, boot %s, F %v, sits in %d", a.machine, a.self().Boot, a.fence, a.sitting.Term)
}

// meddle is what others do to the seat: a recall, the end of a term.
func (w *seatWorld) meddle() {
	seat, out := w.api.seats.read("n1")
	if out != protocol.Done {
		return
	}
	ends := w.rng.IntN(3) == 0
	w.logf("controller: writes the seat, ends the term: %v", ends)
	w.api.seats.update(seat.Meta, func(s *protocol.Seat) {
		s.Turn++
		if ends {
			s.Term++
		}
	})
}

// check holds that whoever serves has been seen by the others less than F ago, by
// the F that they know, and in a term that is its own; and that terms never fall.
func (w *seatWorld) check() {
	if seat, out := w.api.seats.read("n1"); out == protocol.Done {
		if seat.Term < max(w.term, 1) {
			w.failure = fmt.Sprintf("the seat's term is %d, after %d", seat.Term, w.term)
		}
		w.term = seat.Term
	}
	for _, a := range w.agents {
		if ok, _ := a.sitting.Serving(a.now(w)); !a.up || !ok {
			continue
		}
		life := a.self().Boot + "/" + string(a.self().Store)
		at, ok := w.landed[life]
		if !ok {
			w.failure = a.machine + " serves in a boot in which no heartbeat was accepted"
		} else if w.now-at >= a.sitting.Fence {
			w.failure = fmt.Sprintf("%s serves %v after its last heartbeat, with an F of %v", a.machine, w.now-at, a.sitting.Fence)
		}
	}
}

// rest lets one agent be, and holds that it comes to serve.
func (w *seatWorld) rest() {
	a := w.agents[0]
	for _, c := range w.late {
		c.arrive()
	}
	w.late = nil
	for range 30 {
		w.now += time.Minute
		for range 12 {
			switch {
			case !a.up:
				w.restart(a, 0)
			case a.sending != nil:
				w.send(a)
			case a.call != nil && !a.call.committed:
				a.call.arrive()
			case a.call != nil:
				w.step(a, a.call.answer)
			}
		}
		if ok, _ := a.sitting.Serving(a.now(w)); ok {
			return
		}
		w.step(a, protocol.SeatEvent{})
	}
	_, why := a.sitting.Serving(a.now(w))
	w.failure = "never serves: " + why
}

// TestSeatModel plays the seat against crashes, boots, lost disks, late and lost
// answers, lying clocks, other writers and a second machine (F15, F23, H1, H10,
// M19, M44, M51, X23, X26).
func TestSeatModel(t *testing.T) {
	for seed := range uint64(1500) {
		w := &seatWorld{
			rng: newChoices(seed, false), now: 24 * time.Hour, api: newSimAPI(),
			landed: map[string]time.Duration{}, boots: map[protocol.StoreID]bootTerms{},
		}
		for i := range 1 + w.rng.IntN(2) {
			w.agents = append(w.agents, &sitter{machine: fmt.Sprintf("m%d", i)})
		}
		for range 150 {
			if w.act(); w.failure != "" {
				break
			}
		}
		if w.failure == "" {
			w.rest()
		}
		if w.failure != "" {
			t.Fatalf("seed %d: %s\n%s", seed, w.failure, strings.Join(w.trace[max(0, len(w.trace)-80):], "\n"))
		}
	}
}

package protocol

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// regWorld is one run of the registration's model: agents of one node name, on machines
// that crash, boot, lose their disks and have one clock of two that lies; an API
// server that answers late or not at all; people and a controller that write the
// same object.
type regWorld struct {
	rng     *rand.Rand
	now     time.Duration
	api     regServer
	agents  []*regMachine
	late    []*regCall
	landed  map[string]time.Duration // when the last write of a store, in a boot, was accepted
	boots   map[StoreID]bootTerms    // which boot a store had each term in
	term    int64                    // the registration's, as last seen
	trace   []string
	failure string
}

type bootTerms map[int64]string

// regMachine is one machine and its agent's side of the registration.
type regMachine struct {
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
	sent Instant
	told time.Duration

	up        bool
	registrar Registrar
	sending   *RegistrationResult // a call that is to be sent
	call      *regCall            // a call that is under way
}

// regCall is one call; answer is set when it commits.
type regCall struct {
	kind      RegistrationCall
	commit    func(*regCall)
	committed bool
	answer    RegistrationEvent
}

// arrive commits c.
func (c *regCall) arrive() {
	c.committed = true
	c.commit(c)
}

func (a *regMachine) self() Identity {
	return Identity{
		Node: "n1", NodeUID: "node", Store: StoreID(fmt.Sprintf("%s-s%d", a.machine, a.stores)),
		Machine: a.machine, Boot: fmt.Sprintf("%s-b%d", a.machine, a.boots), Fence: a.fence,
	}
}

func (a *regMachine) now(w *regWorld) Instant {
	return Instant{Boot: w.now - a.bootAt - a.stopped, Wall: walkNow.Add(w.now + a.wallOff)}
}

func (w *regWorld) logf(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%9.1fs ", w.now.Seconds())+fmt.Sprintf(format, args...))
}

// step steps the registration, and keeps what is accepted before it is believed.
func (w *regWorld) step(a *regMachine, ev RegistrationEvent) {
	ev.Now = a.now(w)
	res := StepRegistration(a.registrar, ev)
	w.logf("%s: call %d %v -> call %d, term %d, turn %d, accepted %v, registered in %d", a.machine, ev.Call, ev.Outcome, res.Call, res.Write.Term, res.Write.Writes, res.Accepted, res.Next.Term)
	a.registrar, a.call = res.Next, nil
	if res.Accepted {
		a.boot, a.term, a.sent, a.told = res.Next.Self.Boot, res.Next.Term, res.Next.Sent, res.Next.Self.Fence
		return
	}
	if res.Call != RegistrationNone {
		a.sending = &res
	}
}

// send puts a call on its way.
func (w *regWorld) send(a *regMachine) {
	res := *a.sending
	a.sending = nil
	self, life := a.self(), a.self().Boot+"/"+string(a.self().Store)
	a.call = &regCall{kind: res.Call, commit: func(c *regCall) {
		ev := RegistrationEvent{Call: res.Call}
		switch res.Call {
		case RegistrationRead:
			ev.Registration, ev.Outcome = w.api.read()
		case RegistrationCreate:
			ev.Registration, ev.Outcome = w.api.create(res.Write)
		case RegistrationUpdate:
			ev.Registration, ev.Outcome = w.api.update(res.Write.Meta, res.Write)
		case RegistrationNone:
		}
		w.logf("server: %s's call %d, term %d, turn %d: %v", self.Machine, res.Call, res.Write.Term, res.Write.Writes, ev.Outcome)
		if ev.Outcome == Done && res.Call != RegistrationRead {
			w.land(self, life, ev.Registration)
		}
		c.answer = ev
	}}
}

// land notes an accepted write.
func (w *regWorld) land(self Identity, life string, reg Registration) {
	w.landed[life] = w.now
	terms := w.boots[self.Store]
	if terms == nil {
		terms = bootTerms{}
		w.boots[self.Store] = terms
	}
	if boot, ok := terms[reg.Term]; ok && boot != self.Boot {
		w.failure = fmt.Sprintf("store %s has term %d in boots %s and %s", self.Store, reg.Term, boot, self.Boot)
	}
	terms[reg.Term] = self.Boot
}

// regServer is an API server with the registration of node n1.
type regServer struct {
	reg            *Registration // nil: there is none
	uids, revision int
}

func (s *regServer) read() (Registration, Outcome) {
	if s.reg == nil {
		return Registration{}, NotFound
	}
	return *s.reg, Done
}

func (s *regServer) create(reg Registration) (Registration, Outcome) {
	if s.reg != nil {
		return Registration{}, Exists
	}
	s.uids++
	return s.put(reg, UID(fmt.Sprintf("u%d", s.uids))), Done
}

// update writes reg in place of what pre names. An update that changes nothing is dropped.
func (s *regServer) update(pre Meta, reg Registration) (Registration, Outcome) {
	switch {
	case s.reg == nil:
		return Registration{}, NotFound
	case pre.UID != s.reg.UID || pre.Revision != s.reg.Revision:
		return Registration{}, Conflict
	}
	if reg.Meta = s.reg.Meta; reflect.DeepEqual(reg, *s.reg) {
		return reg, Done
	}
	return s.put(reg, s.reg.UID), Done
}

func (s *regServer) put(reg Registration, uid UID) Registration {
	s.revision++
	reg.Meta = Meta{Name: "n1", UID: uid, Revision: Revision(strconv.Itoa(s.revision))}
	s.reg = &reg
	return reg
}

// act lets one thing happen.
func (w *regWorld) act() {
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
func (w *regWorld) progress(a *regMachine) {
	lost := w.rng.IntN(6) == 0
	switch {
	case !a.up:
		w.restart(a, 0)
	case a.sending != nil:
		w.send(a)
	case a.call == nil:
		w.step(a, RegistrationEvent{})
	// By a policy, or for want of rights.
	case a.call.kind != RegistrationRead && !a.call.committed && w.rng.IntN(20) == 0:
		w.logf("%s: is refused", a.machine)
		w.step(a, RegistrationEvent{Call: a.call.kind, Outcome: Refused})
	case lost: // gives up
		w.abandon(a)
		w.step(a, RegistrationEvent{Call: a.call.kind, Outcome: Unknown})
	case !a.call.committed:
		a.call.arrive()
	default:
		w.step(a, a.call.answer)
	}
}

// abandon leaves an agent's call to itself: it may commit all the same.
func (w *regWorld) abandon(a *regMachine) {
	if a.call != nil && !a.call.committed {
		w.late = append(w.late, a.call)
	}
}

// restart stops an agent and starts it: in the same boot, in another, or with an
// empty disk in another.
func (w *regWorld) restart(a *regMachine, how int) {
	w.abandon(a)
	a.sending, a.call = nil, nil
	if how > 0 {
		a.boots++
		a.bootAt, a.stopped, a.wallOff, a.wallLies = w.now, 0, 0, w.rng.IntN(2) == 0
	}
	if how > 1 {
		a.stores++
		a.boot, a.term, a.sent, a.told = "", 0, Instant{}, 0
	}
	a.fence = []time.Duration{10 * time.Minute, 15 * time.Minute, 30 * time.Minute}[w.rng.IntN(3)]
	a.up, a.registrar = true, Resume(a.self(), a.boot, a.term, a.sent, a.told)
	w.logf("%s: starts, boot %s, F %v, registered in %d", a.machine, a.self().Boot, a.fence, a.registrar.Term)
}

// meddle is what others do to the registration: a recall, the end of a term.
func (w *regWorld) meddle() {
	reg, out := w.api.read()
	if out != Done {
		return
	}
	ends := w.rng.IntN(3) == 0
	w.logf("controller: writes the registration, ends the term: %v", ends)
	reg.Writes++
	if ends {
		reg.Term++
	}
	w.api.update(reg.Meta, reg)
}

// check holds that whoever serves has been seen by the others less than F ago, by
// the F that they know, and in a term that is its own; and that terms never fall.
func (w *regWorld) check() {
	if reg, out := w.api.read(); out == Done {
		if reg.Term < max(w.term, 1) {
			w.failure = fmt.Sprintf("the registration's term is %d, after %d", reg.Term, w.term)
		}
		w.term = reg.Term
	}
	for _, a := range w.agents {
		if ok, _ := a.registrar.Serving(a.now(w)); !a.up || !ok {
			continue
		}
		life := a.self().Boot + "/" + string(a.self().Store)
		at, ok := w.landed[life]
		if !ok {
			w.failure = a.machine + " serves in a boot in which no heartbeat was accepted"
		} else if w.now-at >= a.registrar.Fence {
			w.failure = fmt.Sprintf("%s serves %v after its last heartbeat, with an F of %v", a.machine, w.now-at, a.registrar.Fence)
		}
	}
}

// rest lets one agent be, and holds that it comes to serve.
func (w *regWorld) rest() {
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
		if ok, _ := a.registrar.Serving(a.now(w)); ok {
			return
		}
		w.step(a, RegistrationEvent{})
	}
	_, why := a.registrar.Serving(a.now(w))
	w.failure = "never serves: " + why
}

// TestRegistrationModel plays the registration against crashes, boots, lost disks, late and lost
// answers, lying clocks, other writers and a second machine. It finds an F that counts from a
// heartbeat's answer, which the simulation does not (M19 of docs/contributing/simulation.md).
func TestRegistrationModel(t *testing.T) {
	for seed := range uint64(1500) {
		w := &regWorld{
			rng: rand.New(rand.NewPCG(seed, 0)), now: 24 * time.Hour,
			landed: map[string]time.Duration{}, boots: map[StoreID]bootTerms{},
		}
		for i := range 1 + w.rng.IntN(2) {
			w.agents = append(w.agents, &regMachine{machine: fmt.Sprintf("m%d", i)})
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

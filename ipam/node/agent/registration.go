package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// regRetry is how soon a heartbeat that was not accepted is tried again, give or
// take a half, so that agents do not come all at once after an outage.
const regRetry = 4 * time.Second

// resumeRegistration takes up the registration of an agent that starts, as the store has it, and
// what it knows of the API server's history.
func (a *Agent) resumeRegistration(id store.Identity, history protocol.History) {
	self := protocol.Identity{Node: a.cfg.Node, Store: a.st.ID(), Machine: a.cfg.Machine, Boot: a.cfg.Boot, Fence: a.cfg.Fence}
	sent := protocol.Instant{Boot: id.BeatSentBoot, Wall: id.BeatSentWall}
	boot := id.Boot
	if id.Machine != a.cfg.Machine {
		boot = "" // another machine's store: its registration proves nothing here
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.registrar = protocol.Resume(self, boot, id.Term, sent, id.Fence)
	a.reading = a.registrar.Term != 0 && id.Unread // in another boot nothing of that time runs
	a.history = history
}

// current returns the agent's side of the registration.
func (a *Agent) current() protocol.Registrar {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.registrar
}

// runRegistration keeps the node's registration until ctx ends.
func (a *Agent) runRegistration(ctx context.Context) error {
	var quiet silence
	for {
		accepted, again, err := a.beat(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		a.saySilence(&quiet, accepted)
		pause := a.jittered(regRetry)
		if accepted {
			pause = a.current().BeatEvery()
			pause -= sched.N(a.sched, pause/8+1) // agents that began at once must not go on so
		}
		if again {
			continue
		}
		if !a.pause(ctx, pause) {
			return nil
		}
	}
}

// pause waits until d has passed by the machine's clock, until a heartbeat is wanted
// at once, or until ctx ends; it reports whether it was not the last. This process's
// timers stand still while the machine sleeps, and do not see a clock that is set:
// an agent that finds F passed must not wait F/4 more before it says that it is
// there.
func (a *Agent) pause(ctx context.Context, d time.Duration) bool {
	began := a.sched.Now()
	for left := d; left > 0; left = d - a.sched.Now().Since(began) {
		switch a.sched.Wait(ctx, min(left, regRetry), a.beatNow) {
		case 0:
			return true
		case sched.Ended:
			return false
		}
	}
	return true
}

// beat sends one heartbeat, with whatever reads and writes that takes. Again says that
// what was accepted was sent long ago. Its error means that the store cannot be written:
// an agent that cannot record what it was told must not go on.
func (a *Agent) beat(ctx context.Context) (accepted, again bool, err error) {
	a.learnNode(ctx)
	ev, rewinds := protocol.RegistrationEvent{Now: a.sched.Now()}, a.epoch().rewinds
	for range maxSteps {
		a.mu.Lock()
		// The answer is of before: its term would pass for one in which all has been said again.
		if a.rewinds != rewinds {
			a.mu.Unlock()
			return false, false, nil // the next heartbeat is due at once
		}
		a.registrar.Restored, a.registrar.Report = "", a.sightings.Answer()
		if r := a.history.Restored; r != nil {
			a.registrar.Restored = r.String()
		}
		res := protocol.StepRegistration(a.registrar, ev)
		had := a.registrar.Term
		if !res.Accepted {
			a.registrar = res.Next
		}
		a.mu.Unlock()
		if res.Accepted {
			a.heardRegistration(res.Next.Seen) // where the watch is behind
			return true, res.Again, a.accept(ctx, had, rewinds, res.Next)
		}
		if had != 0 && res.Next.Term == 0 {
			a.sayRegistrationLost(ctx, had, res)
		}
		if res.Call == protocol.RegistrationNone {
			if res.Why != "" {
				a.log.WarnContext(ctx, "heartbeat not accepted", "node", a.cfg.Node, "error", res.Why)
			}
			return false, false, nil
		}
		ev = a.callRegistration(ctx, res)
	}
	return false, false, nil
}

func (a *Agent) callRegistration(ctx context.Context, res protocol.RegistrationResult) protocol.RegistrationEvent {
	ev := protocol.RegistrationEvent{Call: res.Call}
	var err error
	switch res.Call {
	case protocol.RegistrationRead:
		ev.Registration, ev.Outcome, err = a.cl.Registrations.ReadRegistration(ctx, a.cfg.Node)
	case protocol.RegistrationCreate:
		ev.Registration, ev.Outcome, err = a.cl.Registrations.CreateRegistration(ctx, res.Write)
	case protocol.RegistrationUpdate:
		ev.Registration, ev.Outcome, err = a.cl.Registrations.UpdateRegistration(ctx, res.Write)
	case protocol.RegistrationNone:
	}
	if err != nil {
		ev.Why = err.Error()
	}
	ev.Now = a.sched.Now()
	return ev
}

// accept takes over a heartbeat that the API server has accepted: first on disk,
// then in memory. In a new term no right serves until it has been said again. An
// acceptance of an era that has ended is none.
func (a *Agent) accept(ctx context.Context, had int64, rewinds int, next protocol.Registrar) error {
	var again []string
	err := a.st.Update(ctx, func(tx *store.Tx) error {
		again = again[:0]
		if a.epoch().rewinds != rewinds {
			return errRewound
		}
		err := tx.PutIdentity(store.Identity{
			Node: next.Self.Node, Machine: next.Self.Machine, Boot: next.Self.Boot, Term: next.Term,
			BeatSentWall: next.Sent.Wall, BeatSentBoot: next.Sent.Boot, Fence: next.Fence,
			Unread: a.unread(had, next.Seen),
		})
		if err == nil {
			err = tx.PutHistory(a.epoch().history)
		}
		if err != nil || next.Term == had {
			return err
		}
		for r, err := range tx.Rights() {
			if err != nil {
				return err
			}
			if !r.Serves(next.Term) {
				again = append(again, r.Name)
			}
			a.follows(protocol.Self{Term: next.Term}, protocol.Result{Next: r})
		}
		return nil
	})
	switch {
	case errors.Is(err, errRewound):
		return nil
	case err != nil:
		return fmt.Errorf("record the registration: %w", err)
	}
	a.mu.Lock()
	if a.rewinds != rewinds {
		a.mu.Unlock()
		return nil
	}
	a.registrar = next
	if !a.announced.heard {
		a.announced.heard, a.announced.since = true, a.sched.Now().Boot
	}
	a.reading = a.unreadLocked(had, next.Seen) // until listOwn has found what it left
	a.mu.Unlock()
	if next.Term != had {
		a.log.InfoContext(ctx, "registration taken", "node", a.cfg.Node, "term", next.Term, "rights", len(again))
		a.sayAgain(again)
	}
	return nil
}

// How fast a node says its rights again in a new term: some at once, the others over
// a while, so that nodes which all begin a term at once, as after an outage, do not
// send everything at once. A right that an ADD needs is not waited for: it is said
// when it is needed.
const (
	sayPace  = 50 * time.Millisecond // for each right
	sayWhile = 10 * time.Second      // at most for all
)

// sayAgain plans to say rights again in a new term.
func (a *Agent) sayAgain(names []string) {
	over := min(time.Duration(len(names))*sayPace, sayWhile)
	for i, name := range names {
		if i < a.cfg.Parallel {
			a.lookIn(name, 0)
		} else {
			a.lookIn(name, sched.N(a.sched, over))
		}
	}
}

// learnNode reads the Node before each heartbeat: its UID goes into the identity,
// for a Node that was deleted and made again has another one, and its taint keeps
// the agent from registering. An agent outside a cluster's nodes, as in a test, has
// none, and says so.
func (a *Agent) learnNode(ctx context.Context) {
	node, out, err := a.cl.Registrations.ReadNode(ctx, a.cfg.Node)
	switch {
	case out == protocol.NotFound:
		a.log.WarnContext(ctx, "there is no such node: the registration names none", "node", a.cfg.Node)
	case out != protocol.Done:
		a.log.DebugContext(ctx, "node not read", "node", a.cfg.Node, "error", err)
		return
	}
	a.mu.Lock()
	a.registrar.Self.NodeUID, a.registrar.Off = node.UID, node.Off
	a.mu.Unlock()
}

package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// registration is the node's registration, and how far the API server was seen to come: by both the
// agent knows whether it may give out addresses.
type registration struct {
	*base
	// answer is what the registration is to say of the node's pods, react begins to do what it
	// asks for.
	answer func() string
	react  func(protocol.Registration)
	// newTerm keeps what memory has of rights with a new term, and returns those to confirm in it;
	// onTerm plans that.
	newTerm func(tx *store.Tx, term int64) (unconfirmed []string, err error)
	onTerm  func(unconfirmed []string)

	beatNow chan struct{} // a heartbeat is due before its time
	listNow chan struct{} // so is a list of what is there in the node's name

	mu        sync.Mutex // guards what follows
	registrar protocol.Registrar
	strangers []protocol.Stranger // found since the agent started, the last ones
	announced announcement
	reading   bool                      // a store was lost in this boot, and is not read back yet
	readFor   map[protocol.StoreID]bool // lost stores whose attachments were looked for; true: all of them
	history   protocol.History          // how far the API server was seen to come
	rewinds   int                       // how often it was seen to go back
	// recorded is after how many rewinds the registration was accepted that the store has; -1 if it
	// has none since the agent started.
	recorded int
	// recordedEpoch is the greatest epoch that the store is known to have.
	recordedEpoch string
	// disputed are rights that the store has as Held, and that the last read since the API server
	// went back showed with another holder.
	disputed map[string]bool
	// unseen are rights that a list has shown otherwise than the store has them, and of which no
	// answer has come since.
	unseen map[string]bool
	// late says, of rights that could not be settled when they were rechecked last, why.
	late map[string]string
}

// resume takes up the registration of an agent that starts, as the store has it, and
// what it knows of the API server's history.
func (reg *registration) resume(id store.Identity, history protocol.History) {
	self := protocol.Identity{Node: reg.cfg.Node, Store: reg.st.ID(), Machine: reg.cfg.Machine, Boot: reg.cfg.Boot, Fence: reg.cfg.Fence}
	sent := protocol.Instant{Boot: id.BeatSentBoot, Wall: id.BeatSentWall}
	boot := id.Boot
	if id.Machine != reg.cfg.Machine {
		boot = "" // another machine's store: its registration proves nothing here
	}
	reg.mu.Lock()
	defer reg.mu.Unlock()
	reg.registrar = protocol.Resume(self, boot, id.Term, sent, id.Fence)
	reg.reading = reg.registrar.Term != 0 && id.Unread // in another boot nothing of that time runs
	reg.history, reg.recorded = history, -1
}

// current returns the agent's side of the registration.
func (reg *registration) current() protocol.Registrar {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	return reg.registrar
}

func (reg *registration) term() int64 { return reg.current().Term }

// isSeen reports whether the agent has seen its registration since it started.
func (reg *registration) isSeen() bool { return reg.current().Seen.UID != "" }

// ours reports whether a registration names this agent.
func (reg *registration) ours(s protocol.Registration) bool {
	return s.Store == reg.st.ID() && s.Machine == reg.cfg.Machine && s.Boot == reg.cfg.Boot
}

// registered reports whether the agent may write in its registration's term: one that was silent
// for F may have been taken over, and its registration be forgotten. What it made then in a
// term that has ended nobody would give back if this store were lost, too.
func (reg *registration) registered() bool {
	ok, _ := reg.current().Serving(reg.sched.Now())
	return ok
}

// serving reports whether the agent may give out addresses now; if not, why.
func (reg *registration) serving() (bool, string) {
	now := reg.sched.Now()
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if ok, why := reg.registrar.Serving(now); !ok {
		return false, why
	}
	if reg.reading {
		return false, "a store of this node was lost, and what its pods have is being read back"
	}
	return true, ""
}

// await waits until the agent has a registration, or ctx ends.
func (reg *registration) await(ctx context.Context) bool {
	for !reg.registered() {
		if !reg.wait(ctx, dueEvery) {
			return false
		}
	}
	return true
}

// tellStranger has the next heartbeats, of which one is due at once, tell of a stranger. Of those
// that were told the registration keeps what is to be told for longer.
func (reg *registration) tellStranger(x protocol.Stranger) {
	reg.mu.Lock()
	reg.strangers = append(reg.strangers[max(0, len(reg.strangers)+1-protocol.MaxStrangers):], x)
	reg.mu.Unlock()
	reg.beatSoon()
}

// isStrange reports whether a stranger was lately found to have an address. The controller keeps it
// from everybody when it hears of that; until then this node does not take it back.
func (reg *registration) isStrange(pool protocol.PoolName, addr netip.Addr) bool {
	now := reg.sched.Now().Wall
	reg.mu.Lock()
	defer reg.mu.Unlock()
	return slices.ContainsFunc(slices.Concat(reg.strangers, reg.registrar.Seen.Strangers), func(x protocol.Stranger) bool {
		return x.Pool == pool && x.Addr == addr && x.Lately(now)
	})
}

// follow answers the recalls on this node's registration until ctx ends, and learns at
// once that somebody else has registered there, or ended the term.
func (reg *registration) follow(ctx context.Context) error {
	return reg.cl.Registrations.FollowRegistration(ctx, reg.cfg.Node, func(s protocol.Registration) {
		if reg.term() != 0 && !reg.ours(s) {
			reg.beatSoon() // a watch decides nothing: the heartbeat tells
		}
		reg.reactTo(s)
	})
}

// reactTo begins to do what the node's registration asks for, if it is this agent's.
func (reg *registration) reactTo(s protocol.Registration) {
	if reg.ours(s) {
		reg.react(s)
	}
}

// regRetry is how soon a heartbeat that was not accepted is tried again, give or
// take a half, so that agents do not come all at once after an outage.
const regRetry = 4 * time.Second

// run keeps the node's registration until ctx ends.
func (reg *registration) run(ctx context.Context) error {
	var quiet silence
	for {
		accepted, again, err := reg.beat(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		reg.warnSilence(&quiet, accepted)
		pause := reg.jittered(regRetry)
		if accepted {
			pause = reg.current().BeatEvery()
			pause -= sched.N(reg.sched, pause/8+1) // agents that began at once must not go on so
		}
		if again {
			continue
		}
		if !reg.pause(ctx, pause) {
			return nil
		}
	}
}

// pause waits until d has passed by the machine's clock, until a heartbeat is wanted
// at once, or until ctx ends; it reports whether it was not the last. This process's
// timers stand still while the machine sleeps, and do not see a clock that is set:
// an agent that finds F passed must not wait F/4 more before it says that it is
// there.
func (reg *registration) pause(ctx context.Context, d time.Duration) bool {
	began := reg.sched.Now()
	for left := d; left > 0; left = d - reg.sched.Now().Since(began) {
		switch reg.sched.Wait(ctx, min(left, regRetry), reg.beatNow) {
		case 0:
			return true
		case sched.Ended:
			return false
		}
	}
	return true
}

// beatSoon has the next heartbeat sent now, and with it what the node says of itself.
func (reg *registration) beatSoon() {
	sched.Signal(reg.beatNow)
}

// beat sends one heartbeat, with whatever reads and writes that takes. Again says that
// what was accepted was sent long ago. Its error means that the store cannot be written:
// an agent that cannot record what it was told must not go on.
func (reg *registration) beat(ctx context.Context) (accepted, again bool, err error) {
	reg.learnNode(ctx)
	ev, rewinds := protocol.RegistrationEvent{Now: reg.sched.Now()}, reg.era().rewinds
	for range maxSteps {
		reg.mu.Lock()
		// The answer is of before: its term would pass for one in which all has been confirmed.
		if reg.rewinds != rewinds {
			reg.mu.Unlock()
			return false, false, nil // the next heartbeat is due at once
		}
		reg.registrar.Restored, reg.registrar.Report, reg.registrar.Strangers = "", reg.answer(), slices.Clone(reg.strangers)
		if r := reg.history.Restored; r != nil {
			reg.registrar.Restored = r.String()
		}
		res := protocol.StepRegistration(reg.registrar, ev)
		had := reg.registrar.Term
		if !res.Accepted {
			reg.registrar = res.Next
		}
		reg.mu.Unlock()
		if res.Accepted {
			reg.reactTo(res.Next.Seen) // where the watch is behind
			return true, res.Again, reg.accept(ctx, had, rewinds, res.Next)
		}
		if had != 0 && res.Next.Term == 0 {
			reg.warnRegistrationLost(ctx, had, res)
		}
		if res.Call == protocol.RegistrationNone {
			if res.Why != "" {
				reg.log.WarnContext(ctx, "heartbeat not accepted", "node", reg.cfg.Node, "error", res.Why)
			}
			return false, false, nil
		}
		ev = reg.call(ctx, res)
	}
	return false, false, nil
}

func (reg *registration) call(ctx context.Context, res protocol.RegistrationResult) protocol.RegistrationEvent {
	ev := protocol.RegistrationEvent{Call: res.Call}
	var err error
	switch res.Call {
	case protocol.RegistrationRead:
		ev.Registration, ev.Outcome, err = reg.cl.Registrations.ReadRegistration(ctx, reg.cfg.Node)
	case protocol.RegistrationCreate:
		ev.Registration, ev.Outcome, err = reg.cl.Registrations.CreateRegistration(ctx, res.Write)
	case protocol.RegistrationUpdate:
		ev.Registration, ev.Outcome, err = reg.cl.Registrations.UpdateRegistration(ctx, res.Write)
	case protocol.RegistrationNone:
	}
	if err != nil {
		ev.Why = err.Error()
	}
	ev.Now = reg.sched.Now()
	return ev
}

// accept takes over a heartbeat that the API server has accepted: first on disk,
// then in memory. In a new term no right serves until it has been confirmed. An
// acceptance of an era that has ended is none.
func (reg *registration) accept(ctx context.Context, had int64, rewinds int, next protocol.Registrar) error {
	var again []string
	err := reg.st.Update(ctx, func(tx *store.Tx) error {
		again = nil
		now := reg.era()
		if now.rewinds != rewinds { // below nothing is taken over either
			return nil
		}
		err := tx.PutIdentity(store.Identity{
			Node: next.Self.Node, Machine: next.Self.Machine, Boot: next.Self.Boot, Term: next.Term,
			BeatSentWall: next.Sent.Wall, BeatSentBoot: next.Sent.Boot, Fence: next.Fence,
			Unread: reg.unread(had, next.Seen),
		})
		if err == nil {
			reg.noteRecorded(rewinds) // before who comes between this and memory records anything
			err = tx.PutHistory(now.history)
		}
		if err != nil || next.Term == had {
			return err
		}
		again, err = reg.newTerm(tx, next.Term)
		return err
	})
	if err != nil {
		reg.noteRecorded(-1)
		return fmt.Errorf("record the registration: %w", err)
	}
	reg.mu.Lock()
	if reg.rewinds != rewinds {
		reg.mu.Unlock()
		return nil
	}
	reg.registrar = next
	if !reg.announced.heard {
		reg.announced.heard, reg.announced.since = true, reg.sched.Now().Boot
	}
	reg.reading = reg.unreadLocked(had, next.Seen) // until listOwn has found what it left
	reg.mu.Unlock()
	if next.Term != had {
		reg.log.InfoContext(ctx, "registration taken", "node", reg.cfg.Node, "term", next.Term, "rights", len(again))
		reg.onTerm(again)
	}
	return nil
}

// learnNode reads the Node before each heartbeat: its UID goes into the identity,
// for a Node that was deleted and made again has another one, and its taint keeps
// the agent from registering. An agent outside a cluster's nodes, as in a test, has
// none, and says so.
func (reg *registration) learnNode(ctx context.Context) {
	node, out, err := reg.cl.Registrations.ReadNode(ctx, reg.cfg.Node)
	switch {
	case out == protocol.NotFound:
		reg.log.WarnContext(ctx, "there is no such node: the registration names none", "node", reg.cfg.Node)
	case out != protocol.Done:
		reg.log.DebugContext(ctx, "node not read", "node", reg.cfg.Node, "error", err)
		return
	}
	reg.mu.Lock()
	reg.registrar.Self.NodeUID, reg.registrar.Off = node.UID, node.Off
	reg.mu.Unlock()
}

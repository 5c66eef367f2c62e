package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// schedule is when to recheck which right, by the time since boot: the wall clock may go back. The
// zero value is ready.
type schedule struct {
	mu   sync.Mutex
	next map[string]*plannedRecheck // guarded by mu
}

// A plannedRecheck is what one call of [schedule.at] has planned.
type plannedRecheck struct{ at time.Duration }

// at plans a recheck of name, at t or when one is planned already, whichever is earlier.
func (s *schedule) at(name string, t time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = map[string]*plannedRecheck{}
	}
	if old := s.next[name]; old != nil {
		t = min(t, old.at)
	}
	s.next[name] = &plannedRecheck{t}
}

// planned returns the recheck of name that is planned, or nil.
func (s *schedule) planned(name string) *plannedRecheck {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next[name]
}

// drop forgets the recheck p of name. One that was planned since p stays.
func (s *schedule) drop(name string, p *plannedRecheck) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next[name] == p {
		delete(s.next, name)
	}
}

// due returns, and forgets, the names to recheck by now.
func (s *schedule) due(now time.Duration) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name, p := range s.next {
		if p.at <= now {
			names = append(names, name)
			delete(s.next, name)
		}
	}
	slices.Sort(names)
	return names
}

// retryAfter is when a right that could not be settled is rechecked.
const retryAfter = 5 * time.Second

// frozenRecheck is how often a frozen right is rechecked: somebody may have deleted it, or taken it
// over.
const frozenRecheck = 10 * time.Minute

// recheckIn plans a recheck of a right in d.
func (rs *rights) recheckIn(name string, d time.Duration) {
	rs.schedule.at(name, rs.sched.Now().Boot+d)
}

// retryLater is retryAfter, or up to half of it sooner: an API server that comes back
// answers all agents at once, and must not have them back all at once.
func (rs *rights) retryLater() time.Duration { return retryAfter - sched.N(rs.sched, retryAfter/2) }

// planNext plans the next recheck of a right, whose last step self made. Before is the one that was
// planned before the first call: a right that is settled needs it no more.
func (rs *rights) planNext(self protocol.Self, res protocol.Result, before *plannedRecheck) {
	r, now := res.Next, rs.sched.Now().Wall
	switch {
	case res.Forget || res.Verdict == protocol.VerdictUsable:
		rs.schedule.drop(r.Name, before)
	case res.Verdict == protocol.VerdictRefused && r.Phase == protocol.Held:
		rs.schedule.drop(r.Name, before) // a renewal was refused; what rests on it goes on
	case r.Kind == protocol.RightUse && r.Usable(self.Term):
		rs.recheckIn(r.Name, time.Minute) // a renewal has to wait; likewise
	case r.Kind == protocol.RightRequest && r.Phase == protocol.Noted && r.UID != "":
		rs.schedule.drop(r.Name, before) // it waits for the controller: its ADD watches it
	case r.Phase == protocol.Noted && r.UID != "":
		rs.recheckIn(r.Name, retryAfter) // it is there, and only waits to be confirmed
	case r.Phase == protocol.Noted && self.Term == 0:
		rs.recheckIn(r.Name, retryAfter) // nothing could be asked: that was no recheck
	case r.Phase == protocol.Noted:
		if at, ok := protocol.NextRecheck(r.NotedAt, now); ok {
			rs.recheckIn(r.Name, at.Sub(now))
		} else {
			rs.recheckIn(r.Name, time.Minute)
		}
	case r.Phase == protocol.Lost:
		rs.recheckIn(r.Name, time.Minute)
	case r.Phase == protocol.Frozen: // it waits for pods to end, not for the API server
		rs.recheckIn(r.Name, frozenRecheck)
	default:
		rs.recheckIn(r.Name, rs.retryLater())
	}
	if taken := res.Verdict == protocol.VerdictTaken || res.Verdict == protocol.VerdictRefused; taken && r.Phase == protocol.Lost && !cededWhole(r) {
		rs.warnLost(r, res.Why)
	}
}

// recheckDue rechecks the rights whose time has come, a few at once.
func (rs *rights) recheckDue(ctx context.Context) {
	names := rs.schedule.due(rs.sched.Now().Boot)
	sched.Each(ctx, rs.sched, rs.cfg.Parallel, names, func(name string) {
		r, ok := rs.right(name)
		if !ok {
			return
		}
		if rs.pools.waitsForPool(r) { // nothing is to be written to find that out
			rs.recheckIn(name, rs.retryLater())
			return
		}
		ev := protocol.Event{Kind: protocol.EventRecheck}
		if r.Phase == protocol.Noted && (r.Kind == protocol.RightUse || r.Kind == protocol.RightLease && rs.pools.isUnderRestore(r.Pool)) {
			// The ADD that wanted the use is gone, or asks again. A lease that was
			// created when the API server had gone back may be another's.
			ev.Kind = protocol.EventLetGo
		}
		_, res, err := rs.settle(ctx, r, rs.beginWith(ev))
		if ctx.Err() != nil {
			return
		}
		why := "" // not of a right that need not be put back
		switch {
		case err != nil:
			rs.recheckIn(name, rs.retryLater())
			rs.log.DebugContext(ctx, "recheck put off", "right", name, "error", err, "verdict", res.Verdict)
			why = err.Error()
		case res.Verdict == protocol.VerdictLater:
			why = res.Why
		}
		if now, ok := rs.right(name); !ok || now.PutBack(rs.reg.term()) && !rs.reg.isUnseen(name) {
			why = ""
		}
		rs.reg.noteLate(ctx, name, why)
	})
}

// planRechecks plans a recheck of every right that does not serve and has none planned: none may be
// forgotten, whatever kept it from being planned.
func (rs *rights) planRechecks(ctx context.Context) {
	term := rs.reg.term()
	forgotten, err := rs.rightsThat(func(r protocol.Right) bool { return !r.Usable(term) && rs.schedule.planned(r.Name) == nil })
	if err != nil {
		rs.log.ErrorContext(ctx, "store not read", "error", err)
		return
	}
	for _, r := range forgotten {
		rs.recheckIn(r.Name, 0)
	}
}

// How fast a node confirms its rights in a new term: some at once, the others over
// a while, so that nodes which all begin a term at once, as after an outage, do not
// send everything at once. A right that an ADD needs is not waited for: it is confirmed
// when it is needed.
const (
	confirmPace  = 50 * time.Millisecond // for each right
	confirmWhile = 10 * time.Second      // at most for all
)

// confirmAgain plans to confirm rights in a new term.
func (rs *rights) confirmAgain(names []string) {
	over := min(time.Duration(len(names))*confirmPace, confirmWhile)
	for i, name := range names {
		if i < rs.cfg.Parallel {
			rs.recheckIn(name, 0)
		} else {
			rs.recheckIn(name, sched.N(rs.sched, over))
		}
	}
}

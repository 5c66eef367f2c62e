package agent

import (
	"slices"
	"sync"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/sched"
)

// schedule is when to look at which right again, by the time since boot: the wall
// clock may go back. The zero value is ready.
type schedule struct {
	mu   sync.Mutex
	next map[string]*plannedLook // guarded by mu
}

// A plannedLook is what one call of [schedule.at] has planned.
type plannedLook struct{ at time.Duration }

// at plans a look at name, at t or when one is planned already, whichever is earlier.
func (s *schedule) at(name string, t time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = map[string]*plannedLook{}
	}
	if old := s.next[name]; old != nil {
		t = min(t, old.at)
	}
	s.next[name] = &plannedLook{t}
}

// jittered returns d, give or take a half: agents must not come all at once.
func (a *Agent) jittered(d time.Duration) time.Duration { return d/2 + sched.N(a.sched, d) }

// spread is jittered for what is done seldom: after an outage, or a roll-out, all
// agents begin at once, and must not go on so.
func (a *Agent) spread(every time.Duration) time.Duration {
	if every < time.Minute {
		return every
	}
	return every - sched.N(a.sched, every/4)
}

// planned returns the look that is planned at name, or nil.
func (s *schedule) planned(name string) *plannedLook {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next[name]
}

// drop forgets the look p at name. One that was planned since p stays.
func (s *schedule) drop(name string, p *plannedLook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next[name] == p {
		delete(s.next, name)
	}
}

// due returns, and forgets, the names to look at by now.
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

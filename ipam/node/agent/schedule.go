package agent

import (
	"math/rand/v2"
	"sync"
	"time"
)

// schedule is when to look at which right again, by the time since boot: the wall
// clock may go back. The zero value is ready.
type schedule struct {
	mu   sync.Mutex
	next map[string]time.Duration // guarded by mu
}

// at plans a look at name; an earlier plan stands.
func (s *schedule) at(name string, t time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = map[string]time.Duration{}
	}
	if old, ok := s.next[name]; !ok || t < old {
		s.next[name] = t
	}
}

// jittered returns d, give or take a half: agents must not come all at once.
func jittered(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// spread is jittered for what is done seldom: after an outage, or a roll-out, all
// agents begin at once, and must not go on so.
func spread(every time.Duration) time.Duration {
	if every < time.Minute {
		return every
	}
	return every - rand.N(every/4)
}

// planned reports whether there is a plan for name.
func (s *schedule) planned(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.next[name]
	return ok
}

// drop forgets the plan for name.
func (s *schedule) drop(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.next, name)
}

// due returns, and forgets, the names to look at by now.
func (s *schedule) due(now time.Duration) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name, t := range s.next {
		if t <= now {
			names = append(names, name)
			delete(s.next, name)
		}
	}
	return names
}

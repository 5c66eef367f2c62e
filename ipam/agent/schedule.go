package agent

import (
	"sync"
	"time"
)

// schedule is when to look at which right again. The zero value is ready.
type schedule struct {
	mu   sync.Mutex
	next map[string]time.Time // guarded by mu
}

// at plans a look at name; an earlier plan stands.
func (s *schedule) at(name string, t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = map[string]time.Time{}
	}
	if old, ok := s.next[name]; !ok || t.Before(old) {
		s.next[name] = t
	}
}

// drop forgets the plan for name.
func (s *schedule) drop(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.next, name)
}

// due returns, and forgets, the names to look at by now.
func (s *schedule) due(now time.Time) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name, t := range s.next {
		if !t.After(now) {
			names = append(names, name)
			delete(s.next, name)
		}
	}
	return names
}

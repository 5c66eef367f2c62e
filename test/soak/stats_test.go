package soak_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// stats counts what happened.
type stats struct {
	mu     sync.Mutex
	adds   []time.Duration // guarded by mu; of ADDs without a claim that were answered
	claims []time.Duration // guarded by mu; of those with one
	free   []time.Duration // guarded by mu; from a DEL in a full pool to another node's ADD
	counts map[string]int  // guarded by mu
	faults map[string]int  // guarded by mu
}

func newStats() *stats { return &stats{counts: map[string]int{}, faults: map[string]int{}} }

func (s *stats) took(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.adds = append(s.adds, d)
}

func (s *stats) tookClaim(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims = append(s.claims, d)
}

func (s *stats) freed(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, d)
}

func (s *stats) count(what string) { s.add(what, 1) }

func (s *stats) add(what string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what] += n
}

func (s *stats) fault(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[what]++
}

// summary says in a few lines what happened.
func (s *stats) summary(answers int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%d ADDs answered\n", answers)
	for _, x := range []struct {
		what string
		all  []time.Duration
	}{{"ADD", s.adds}, {"ADD with a claim", s.claims}, {"freed in a full pool to served elsewhere", s.free}} {
		slices.Sort(x.all)
		fmt.Fprintf(&b, "%s: %d, p50 %v, p99 %v, most %v\n", x.what, len(x.all), quantile(x.all, 0.5), quantile(x.all, 0.99), quantile(x.all, 1))
	}
	for _, x := range []struct {
		title  string
		counts map[string]int
	}{{"calls", s.counts}, {"faults", s.faults}} {
		fmt.Fprintf(&b, "%s:\n", x.title)
		for _, what := range slices.Sorted(maps.Keys(x.counts)) {
			fmt.Fprintf(&b, "  %6d %s\n", x.counts[what], what)
		}
	}
	return b.String()
}

// quantile returns the q-quantile of what is sorted, 0 of nothing.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))].Round(10 * time.Microsecond)
}

package simulation

import (
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// testSeeds is how many runs a test of the simulation plays.
const testSeeds = 5000

// each calls run for the seeds below n, on every processor, until one returns
// false.
func each(n uint64, run func(seed uint64) bool) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // worlds are small and short-lived
	var wg sync.WaitGroup
	var next atomic.Uint64
	var stop atomic.Bool
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for seed := next.Add(1) - 1; seed < n && !stop.Load(); seed = next.Add(1) - 1 {
				if !run(seed) {
					stop.Store(true)
				}
			}
		})
	}
	wg.Wait()
}

// TestSimulation plays many runs of nodes, controller and people against a
// simulated API server, with crashes, lost answers, late writes, lying clocks and
// take-overs between any two steps, and holds the invariants against each.
func TestSimulation(t *testing.T) {
	seeds := uint64(testSeeds)
	if testing.Short() {
		seeds /= 10
	}
	each(seeds, func(seed uint64) bool {
		out := Run(seed, NoFault)
		if out.Failure != nil {
			t.Errorf("seed %d: %v\n%s", seed, out.Failure, traceOf(seed, NoFault))
		}
		return out.Failure == nil
	})
}

// traceOf plays a seed that fails again, shrinks it, and returns the end of the
// trace.
func traceOf(seed uint64, bug Fault) string {
	short, _ := Shrink(Trace(seed, bug).Schedule, bug)
	trace := PlayTrace(short, bug).Trace
	return strings.Join(trace[max(0, len(trace)-150):], "\n")
}

// TestSeedDeterminesRun holds that a seed is all there is to a run, and that its
// schedule is, too: one that fails can be played again.
func TestSeedDeterminesRun(t *testing.T) {
	for seed := range uint64(20) {
		first, second := Trace(seed, NoFault), Trace(seed, NoFault)
		sameTrace(t, seed, first.Trace, second.Trace)
		text := first.Schedule.String()
		schedule, err := ParseSchedule(text)
		if err != nil {
			t.Fatal(err)
		}
		sameTrace(t, seed, first.Trace, PlayTrace(schedule, NoFault).Trace)
	}
}

func sameTrace(t *testing.T, seed uint64, first, second []string) {
	t.Helper()
	for i := range min(len(first), len(second)) {
		if first[i] != second[i] {
			t.Fatalf("seed %d: got first %q, then %q", seed, first[i], second[i])
		}
	}
	if len(first) != len(second) {
		t.Fatalf("seed %d: got %d lines, then %d", seed, len(first), len(second))
	}
}

package simulation

import (
	"slices"
	"sync/atomic"
	"testing"
)

// TestFaults switches one bug on at a time. A simulation that a bug passes proves
// nothing: each must be found within so many seeds, by the invariant that it
// breaks. What it breaks else on the way, such as that something comes to rest, is no
// proof, and none of the contrary.
func TestFaults(t *testing.T) {
	for _, bug := range Bugs() {
		t.Run(string(bug.Fault)+" "+bug.What, func(t *testing.T) {
			finds := func(seed uint64) bool {
				if bug.In != nil && !bug.In(kindOf(seed)) {
					return false
				}
				out := Run(seed, bug.Fault)
				if out.Failure == nil {
					return false
				}
				t.Logf("seed %d: %v", seed, out.Failure)
				return slices.Contains(bug.Breaks, out.Failure.Invariant)
			}
			if seed, ok := finders[bug.Fault]; ok && finds(seed) {
				return
			}
			var found atomic.Bool
			each(bug.Within, func(seed uint64) bool {
				if !finds(seed) {
					return true
				}
				t.Logf("it is found by seed %d: say so in finders", seed)
				found.Store(true)
				return false
			})
			if !found.Load() {
				t.Errorf("not found within %d seeds", bug.Within)
			}
		})
	}
}

// TestShrink holds that a shrunk run is short and breaks the same invariant.
func TestShrink(t *testing.T) {
	bug := nodeBugs()[0]
	for seed := range bug.Within {
		long := Trace(seed, bug.Fault)
		if long.Failure == nil {
			continue
		}
		short, tries := Shrink(long.Schedule, bug.Fault)
		out := PlayTrace(short, bug.Fault)
		if out.Failure == nil || out.Failure.Invariant != long.Failure.Invariant {
			t.Fatalf("seed %d breaks %v, and shrunk %v", seed, long.Failure, out.Failure)
		}
		t.Logf("seed %d: %d acts shrunk to %d in %d runs, %d lines: %v", seed, long.Acts, out.Acts, tries, len(out.Trace), out.Failure)
		if out.Acts > long.Acts/2 {
			t.Errorf("seed %d: %d acts were shrunk to %d only", seed, long.Acts, out.Acts)
		}
		return
	}
	t.Fatal("no seed fails")
}

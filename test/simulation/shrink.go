package simulation

import "slices"

// shrinkRuns bounds how many runs a shrinking plays.
const shrinkRuns = 20_000

// Shrink returns the shortest schedule it can find that breaks the same invariant
// as s does, by leaving out acts, and then choices. tries is how many runs it has
// played.
func Shrink(s Schedule, bug Fault) (short Schedule, tries int) {
	first := Play(s, bug)
	if first.Failure == nil {
		return s, 1
	}
	sh := &shrinker{bug: bug, invariant: first.Failure.Invariant, best: s.clone(), left: shrinkRuns}
	sh.cut(first)
	for before := -1; before != len(sh.best.Steps); {
		before = len(sh.best.Steps)
		sh.dropActs()
	}
	sh.calmDown()
	sh.dropActs()
	return sh.best, shrinkRuns - sh.left
}

type shrinker struct {
	bug       Fault
	invariant Invariant
	best      Schedule
	left      int
}

// try takes s over if it still breaks the invariant.
func (sh *shrinker) try(s Schedule) bool {
	if sh.left == 0 {
		return false
	}
	sh.left--
	out := Play(s, sh.bug)
	if out.Failure == nil || out.Failure.Invariant != sh.invariant {
		return false
	}
	sh.best = s
	sh.cut(out)
	return true
}

// cut drops the acts that come after the failure.
func (sh *shrinker) cut(out Outcome) {
	if out.Acts < sh.best.Acts {
		sh.best.Steps = sh.best.Steps[:1+out.Acts]
		sh.best.Acts = out.Acts
	}
}

// dropActs leaves out acts, in chunks of half of them, then a quarter, down to
// single ones.
func (sh *shrinker) dropActs() {
	for size := (sh.best.Acts + 1) / 2; size > 0; size /= 2 {
		for at := 1; at <= sh.best.Acts; {
			n := min(size, sh.best.Acts+1-at)
			s := Schedule{Steps: slices.Concat(sh.best.Steps[:at], sh.best.Steps[at+n:]), Acts: sh.best.Acts - n}
			if !sh.try(s) {
				at += n
			}
		}
	}
}

// calmDown makes single choices the harmless ones.
func (sh *shrinker) calmDown() {
	for i := range sh.best.Steps {
		for j := 0; i < len(sh.best.Steps) && j < len(sh.best.Steps[i]); j++ {
			if sh.best.Steps[i][j] == 0 {
				continue
			}
			s := sh.best.clone()
			s.Steps[i][j] = 0
			sh.try(s)
		}
	}
}

package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// A Schedule is every choice that a run made, step by step: the first step sets
// the world up, the next Acts are one act of somebody each, and the others belong
// to the quiet time at the end. A choice is a number below the count of what there
// was to choose from; 0 is the harmless one wherever there is one.
//
// What a step does not find in its list it takes for 0, and what it does not need
// it leaves. So any list of lists is a schedule, and taking a step out moves no
// choice of the others.
type Schedule struct {
	Steps [][]uint64
	Acts  int
}

// String returns the schedule in a form that [ParseSchedule] reads.
func (s Schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d", s.Acts)
	for _, step := range s.Steps {
		b.WriteByte('/')
		for i, v := range step {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(strconv.FormatUint(v, 36))
		}
	}
	return b.String()
}

// ParseSchedule is the inverse of [Schedule.String].
func ParseSchedule(text string) (Schedule, error) {
	head, rest, _ := strings.Cut(text, "/")
	acts, err := strconv.Atoi(head)
	if err != nil {
		return Schedule{}, fmt.Errorf("schedule: number of acts: %w", err)
	}
	s := Schedule{Acts: acts}
	for step := range strings.SplitSeq(rest, "/") {
		var list []uint64
		for v := range strings.SplitSeq(step, ",") {
			if v == "" {
				continue
			}
			n, err := strconv.ParseUint(v, 36, 64)
			if err != nil {
				return Schedule{}, fmt.Errorf("schedule: step %d: %w", len(s.Steps), err)
			}
			list = append(list, n)
		}
		s.Steps = append(s.Steps, list)
	}
	if acts < 0 || acts >= len(s.Steps) {
		return Schedule{}, fmt.Errorf("schedule: %d acts in %d steps", acts, len(s.Steps))
	}
	return s, nil
}

func (s Schedule) clone() Schedule {
	steps := make([][]uint64, len(s.Steps))
	for i, step := range s.Steps {
		steps[i] = slices.Clone(step)
	}
	return Schedule{Steps: steps, Acts: s.Acts}
}

// choices is the one source of chance of a run: numbers from a seed, or from a
// schedule.
type choices struct {
	rng    *rand.PCG // nil: the schedule decides
	script Schedule
	step   []uint64 // of script, what is left of the step under way
	next   int      // of script

	recording bool
	record    Schedule
}

// newChoices returns the choices that seed makes; recording keeps them.
func newChoices(seed uint64, recording bool) *choices {
	return &choices{rng: rand.NewPCG(seed, 0), recording: recording}
}

// begin begins the next step.
func (c *choices) begin() {
	if c.recording {
		c.record.Steps = append(c.record.Steps, nil)
	}
	if c.rng != nil {
		return
	}
	c.step = nil
	if c.next < len(c.script.Steps) {
		c.step = c.script.Steps[c.next]
	}
	c.next++
}

// uint64N returns a number below n, which is positive.
func (c *choices) uint64N(n uint64) uint64 {
	var v uint64
	switch {
	case n < 2:
		return 0
	case c.rng != nil:
		v = c.rng.Uint64() % n // as good as unbiased, for so small an n
	case len(c.step) > 0:
		v, c.step = c.step[0]%n, c.step[1:]
	}
	if c.recording {
		last := len(c.record.Steps) - 1
		c.record.Steps[last] = append(c.record.Steps[last], v)
	}
	return v
}

// IntN returns a number in [0, n).
func (c *choices) IntN(n int) int { return int(c.uint64N(uint64(n))) }

// Int64N returns a number in [0, n).
func (c *choices) Int64N(n int64) int64 { return int64(c.uint64N(uint64(n))) }

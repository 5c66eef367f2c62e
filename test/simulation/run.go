package simulation

import "fmt"

// An Invariant is one of the rules that may never break: I1 to I5.
type Invariant string

// The invariants.
const (
	// I1: in one pool, an address has at most one owner at any time.
	I1 Invariant = "I1"
	// I2: what was answered is durable.
	I2 Invariant = "I2"
	// I3: a claim's address is not freed or changed while the claim exists, nor
	// while a pod that uses it runs.
	I3 Invariant = "I3"
	// I4: what nobody owns any more comes back by itself.
	I4 Invariant = "I4"
	// I5: no address is stranded.
	I5 Invariant = "I5"
	// Rest: no address is given within its pool's reuseAfter while the node has another.
	Rest Invariant = "Rest"
	// Place: no address of a range that is for other nodes is given anew.
	Place Invariant = "Place"
	// Subnet: where each node has a subnet of a pool, it has one, which it keeps.
	Subnet Invariant = "Subnet"
)

// A Failure is an invariant that a run has broken, and how.
type Failure struct {
	Invariant Invariant
	Text      string
}

func (f *Failure) String() string { return fmt.Sprintf("%s: %s", f.Invariant, f.Text) }

// An Outcome is what became of a run.
type Outcome struct {
	Failure *Failure // nil: the invariants held
	// Acts is how many acts were played.
	Acts int
	// Stats counts what happened.
	Stats map[string]int
	// Trace and Schedule are kept by [Trace] alone.
	Trace    []string
	Schedule Schedule
}

// Acts is how many acts a run from a seed has.
const Acts = 900

// Run plays the run of a seed, with the fault bug switched on.
func Run(seed uint64, bug Fault) Outcome { return play(newChoices(seed, false), Acts, bug, false) }

// Trace is [Run], and keeps what happened and what was chosen.
func Trace(seed uint64, bug Fault) Outcome { return play(newChoices(seed, true), Acts, bug, true) }

// Play plays a schedule.
func Play(s Schedule, bug Fault) Outcome { return play(&choices{script: s}, s.Acts, bug, false) }

// PlayTrace is [Play], and keeps what happened.
func PlayTrace(s Schedule, bug Fault) Outcome { return play(&choices{script: s}, s.Acts, bug, true) }

func play(c *choices, acts int, bug Fault, tracing bool) Outcome {
	c.begin()
	w := newWorld(c, bug, tracing)
	defer w.end()
	played := 0
	for played < acts && w.failure == nil {
		played++
		c.begin()
		w.act()
	}
	c.record.Acts = played
	if w.failure == nil {
		w.settle()
	}
	return Outcome{Failure: w.failure, Acts: played, Stats: w.stats, Trace: w.trace, Schedule: c.record}
}

package protocol

import "time"

// A Certainty is whether a node's store has a record of every lease that may be in its
// name. It mostly has: a name is noted before its lease is created. What it may lack is
// a create in doubt that came, or comes, when its record was forgotten. Times are of
// the boot clock. The zero Certainty is that of an agent that has just started: it
// knows nothing.
//
// It saves reads, and nothing else rests on it: what it has wrong, the next hourly list
// of the node's own leases sets right.
type Certainty struct {
	listed  bool          // the node's own leases have been listed, and those without a record taken up
	doubted bool          // a create has had no answer
	doubt   time.Duration // when the last such was known
}

// Doubted returns c after a create that had no answer by now: it may come for as long as
// it is looked for.
func (c Certainty) Doubted(now time.Duration) Certainty {
	c.doubted, c.doubt = true, now
	return c
}

// Listed returns c after a live list, begun at began, of the node's own leases, each of
// which has a record by now.
func (c Certainty) Listed(began time.Duration) Certainty {
	c.listed = true
	if c.doubted && began-c.doubt >= LooksLast {
		c.doubted = false
	}
	return c
}

// Sure reports whether a lease that the store has no record of is another's.
func (c Certainty) Sure() bool { return c.listed && !c.doubted }

package protocol

import "fmt"

// Outcome is what is known of an API call after it returned. A caller that
// treats Unknown as a failure breaks invariant I1: the write may still happen.
type Outcome uint8

// The outcomes.
const (
	// Unknown: no answer, or one that does not say whether the call took
	// effect. A write may still happen.
	Unknown Outcome = iota
	// Done: the call took effect; the object in the answer is current.
	Done
	// NotFound: no object of that name, or not of that UID.
	NotFound
	// Exists: a create met an object of that name.
	Exists
	// Conflict: UID or resourceVersion did not match; nothing was changed.
	Conflict
	// Refused: the API server said no for good (invalid, forbidden); nothing
	// was changed.
	Refused
)

func (o Outcome) String() string {
	names := [...]string{"Unknown", "Done", "NotFound", "Exists", "Conflict", "Refused"}
	if int(o) >= len(names) {
		return fmt.Sprintf("Outcome(%d)", uint8(o))
	}
	return names[o]
}

package protocol

import "fmt"

// Verdict says how a step left the right, for whoever waits for it.
type Verdict uint8

// The verdicts.
const (
	// VerdictNone: a call is under way; the next answer tells.
	VerdictNone Verdict = iota
	// VerdictUsable: Held in the registration's term.
	VerdictUsable
	// VerdictTaken: the object is another's.
	VerdictTaken
	// VerdictRefused: the confirmation says that the right must not be used; Result.Why says why.
	VerdictRefused
	// VerdictDenied: the API server will not create it, by its access rules, a policy
	// or its validation; Result.Why has its words.
	VerdictDenied
	// VerdictLater: nothing can be decided or done now; check again later.
	VerdictLater
	// VerdictGone: the record has been forgotten, rightly.
	VerdictGone
)

func (v Verdict) String() string {
	names := [...]string{"None", "Usable", "Taken", "Refused", "Denied", "Later", "Gone"}
	if int(v) >= len(names) {
		return fmt.Sprintf("Verdict(%d)", uint8(v))
	}
	return names[v]
}

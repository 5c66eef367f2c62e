package protocol

import (
	"strings"
	"time"
)

// A Restoration is what a seat says while its agent knows that the API server has
// gone back to an earlier state, as after a restore of etcd. An agent says it from
// the heartbeat after it has seen that, and until each pool that it uses has been
// opened by a later word than Opening, or is gone. Between the two it leases
// nothing, and gives nothing back but what a pool may wait for ([Right.MayGo]).
type Restoration struct {
	// Back says that the agent has put back what it holds, and that its node's
	// other rights can be told again; until then it has only seen it.
	Back bool
	// Opening is the greatest word by which a pool was opened (IPPool's
	// status.opening) that this agent has ever heard. What was opened by it, or
	// before, was opened before the API server went back.
	Opening string
}

// The words of a [Restoration] on a seat, before that of the opening.
const (
	restoredSeen = "seen"
	restoredBack = "back"
)

// String returns r as [Seat.Restored] has it: "seen OPENING" or "back OPENING".
func (r Restoration) String() string {
	word := restoredSeen
	if r.Back {
		word = restoredBack
	}
	return strings.TrimSpace(word + " " + r.Opening)
}

// ParseRestoration is the inverse of [Restoration.String]; ok is false for a seat
// that says nothing.
func ParseRestoration(text string) (r Restoration, ok bool) {
	word, opening, _ := strings.Cut(text, " ")
	if word != restoredSeen && word != restoredBack {
		return Restoration{}, false
	}
	return Restoration{Back: word == restoredBack, Opening: opening}, true
}

// openingForm is a time of which later ones compare greater as text.
const openingForm = "2006-01-02T15:04:05.000000000Z"

// OpeningAfter returns the word of an opening at now. It is greater than every
// word in before that came from here, also where the clock was ahead then.
func OpeningAfter(now time.Time, before ...string) string {
	next := now.UTC().Format(openingForm)
	for _, word := range before {
		if word < next {
			continue
		}
		last, err := time.Parse(openingForm, word)
		if err != nil {
			continue // no controller wrote it
		}
		next = last.Add(time.Nanosecond).Format(openingForm)
	}
	return next
}

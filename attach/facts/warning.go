package facts

import (
	"fmt"
	"unicode/utf8"
)

// Bounds of what a pod is warned of: a misspelt annotation may have thousands of faults,
// and all that they come to stands in a journal, in a message to the agent, and in an
// annotation of the pod.
const (
	maxWarnings = 16
	maxMessage  = 1000 // bytes; an event's has 1024
)

// Limit returns the first of the warnings, each cut to what an event takes, and one that
// says how many more there are.
func Limit(all []Warning) []Warning {
	var out []Warning
	for i, w := range all {
		if i == maxWarnings {
			return append(out, Warning{Reason: w.Reason, Message: fmt.Sprintf("and %d more", len(all)-i)})
		}
		w.Message = Cut(w.Message)
		out = append(out, w)
	}
	return out
}

// Cut returns text, and of a long one the beginning, with whole characters.
func Cut(text string) string {
	const more = "…"
	if len(text) <= maxMessage {
		return text
	}
	end := maxMessage - len(more)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + more
}

package workload

import (
	"fmt"
	"strings"
)

// A Policy says what becomes of a claim.
type Policy uint8

// The policies.
const (
	// Retain keeps the claim, and its addresses.
	Retain Policy = iota
	// Delete deletes the claim.
	Delete
)

// Retention is [AnnotationRetention]. Its zero value is the default: all is kept.
type Retention struct {
	// WhenDeleted is for the claims of a set that is deleted, WhenScaled for those of the
	// ordinals that a set has no more.
	WhenDeleted, WhenScaled Policy
}

// parseRetention reads "whenDeleted=Retain, whenScaled=Delete". What it does not name is
// kept.
func parseRetention(text string) (Retention, error) {
	var r Retention
	if strings.TrimSpace(text) == "" {
		return r, nil
	}
	fields := map[string]*Policy{"whenDeleted": &r.WhenDeleted, "whenScaled": &r.WhenScaled}
	for item := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(item), "=")
		field, ok := fields[key]
		if !ok {
			return Retention{}, fmt.Errorf("%.80q is neither whenDeleted nor whenScaled, or is there twice; want whenDeleted=Retain, whenScaled=Delete", key)
		}
		delete(fields, key)
		switch value {
		case "Retain":
		case "Delete":
			*field = Delete
		default:
			return Retention{}, fmt.Errorf("%s is %.80q; want Retain or Delete", key, value)
		}
	}
	return r, nil
}

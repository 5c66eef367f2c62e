package protocol

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go4.org/netipx"
)

// A Recall asks a holder to cede the free addresses of a lease that lie in Ranges.
type Recall struct {
	// ID is new for each recall. The holder publishes it in the lease's status
	// when it has done what it can.
	ID     string   `json:"id"`
	Lease  string   `json:"lease"`
	Ranges []string `json:"ranges"` // "first-last", inclusive
}

// ParseRanges reads ranges of the form "first-last", inclusive.
func ParseRanges(ranges []string) (*netipx.IPSet, error) {
	var b netipx.IPSetBuilder
	for _, text := range ranges {
		r, err := netipx.ParseIPRange(text)
		if err != nil {
			return nil, fmt.Errorf("range %q: %w", text, err)
		}
		b.AddRange(r)
	}
	return b.IPSet()
}

// RecallID returns the ID of the nth recall that a maker makes.
func RecallID(at time.Time, maker string, n uint64) string {
	return fmt.Sprintf("%x.%s.%x", at.UnixMilli(), maker, n)
}

// Made returns when a recall was made, by its maker's clock, as its ID says. ok is false for a
// recall that was made by hand.
func (r Recall) Made() (at time.Time, ok bool) {
	text, _, _ := strings.Cut(r.ID, ".")
	ms, err := strconv.ParseInt(text, 16, 64)
	return time.UnixMilli(ms), err == nil
}

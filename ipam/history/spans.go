package history

import (
	"cmp"
	"slices"
	"time"
)

// A Span is a holding from when to when.
type Span struct {
	Holding
	// From is zero where the holding began before the first line that there is.
	From time.Time `json:"from,omitzero"`
	// To is zero where it has not ended.
	To time.Time `json:"to,omitzero"`
	// Late says that the end was not seen: it was at To at the latest.
	Late bool `json:"late,omitempty"`
}

// Overlaps reports whether the holding was there at a time from from to to; both may be the same.
func (s Span) Overlaps(from, to time.Time) bool {
	return !s.From.After(to) && (s.To.IsZero() || s.To.After(from))
}

// Spans makes spans of events, in the order of their lines. The zero Spans has none.
type Spans struct {
	all  []Span
	last map[key]int // the latest span of a holding
}

// Add takes the next event. One that says what is known already changes nothing.
func (s *Spans) Add(e Event) {
	i, known := s.last[e.key()]
	open := known && s.all[i].To.IsZero()
	switch {
	case e.What == Given && known && s.all[i].Late && !e.Time.After(s.all[i].To):
		// Its end was taken for granted, as when a store was lost; then it was found to go on.
		s.all[i].To, s.all[i].Late = time.Time{}, false
	case e.What == Given && !open:
		s.begin(Span{Holding: e.Holding, From: e.Time})
	case e.What == Freed && open:
		s.all[i].To, s.all[i].Late = latest(e.Time, s.all[i].From), e.Late // a clock may go back
	case e.What == Freed && !known: // its beginning was in a line that is damaged
		s.begin(Span{Holding: e.Holding, To: e.Time, Late: e.Late})
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (s *Spans) begin(span Span) {
	if s.last == nil {
		s.last = map[key]int{}
	}
	s.last[span.key()] = len(s.all)
	s.all = append(s.all, span)
}

// All returns the spans, sorted as [Sort] does.
func (s *Spans) All() []Span {
	all := slices.Clone(s.all)
	Sort(all)
	return all
}

// Sort sorts spans by when they began, then by pool, node and interface.
func Sort(all []Span) {
	slices.SortStableFunc(all, func(a, b Span) int {
		return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Interface, b.Interface))
	})
}

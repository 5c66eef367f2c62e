package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A figure is one thing that was measured.
type figure struct {
	Name string `json:"figure"`
	// Title says to people what a figure with an aim is.
	Title string `json:"title,omitempty"`
	Unit  string `json:"unit"`
	// Value is the median of the rounds' values; Low and High are the least
	// and the greatest of them.
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	// Aim is what the value should be; nil for what is only reported.
	Aim *aim  `json:"aim,omitempty"`
	Met *bool `json:"met,omitempty"`
}

// An aim is the bound of a figure: what it is to be at most, or at least.
type aim struct {
	AtMost  float64 `json:"atMost,omitempty"`
	AtLeast float64 `json:"atLeast,omitempty"`
}

func atMost(v float64) aim  { return aim{AtMost: v} }
func atLeast(v float64) aim { return aim{AtLeast: v} }

func (a aim) String() string {
	if a.AtLeast != 0 {
		return fmt.Sprintf("≥ %v", a.AtLeast)
	}
	return fmt.Sprintf("≤ %v", a.AtMost)
}

func (a aim) met(v float64) bool {
	if a.AtLeast != 0 {
		return v >= a.AtLeast
	}
	return v <= a.AtMost
}

// newFigure returns the figure of the rounds' values, of which there is at least
// one.
func newFigure(name, unit string, rounds []float64) figure {
	return figure{Name: name, Unit: unit, Value: median(rounds), Low: slices.Min(rounds), High: slices.Max(rounds)}
}

// aimed returns f with its aim, under a title.
func (f figure) aimed(title string, a aim) figure {
	met := a.met(f.Value)
	f.Title, f.Aim, f.Met = title, &a, &met
	return f
}

// ratios returns the quotients of two candidates' values, round by round: what
// slowed a round down, slowed both.
func ratios(of, to []float64) []float64 {
	r := make([]float64, len(of))
	for i := range of {
		r[i] = of[i] / to[i]
	}
	return r
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// percentile returns the value that p per cent of v do not exceed.
func percentile[T cmp.Ordered](v []T, p int) T {
	s := slices.Sorted(slices.Values(v))
	return s[max(0, (len(s)*p+99)/100-1)]
}

func millis(d time.Duration) float64 { return d.Seconds() * 1e3 }

// number formats v with three digits that matter, for people.
func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

package protocol

import (
	"testing"
	"time"
)

func TestRestorationText(t *testing.T) {
	for _, r := range []Restoration{{}, {Back: true}, {Opening: "w"}, {Back: true, Opening: "2026-01-01T12:00:00.000000000Z"}} {
		if got, ok := ParseRestoration(r.String()); !ok || got != r {
			t.Errorf("%q is read as %+v, %v; want %+v", r, got, ok, r)
		}
	}
	for _, text := range []string{"", "seenw", "Back w", " back"} {
		if got, ok := ParseRestoration(text); ok {
			t.Errorf("%q is read as %+v; want nothing", text, got)
		}
	}
}

// TestOpeningAfter: each word is greater than all before it, whatever clocks say.
func TestOpeningAfter(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	word := OpeningAfter(now)
	if want := "2026-01-01T12:00:00.000000000Z"; word != want {
		t.Errorf("the word of noon is %q; want %q", word, want)
	}
	last := ""
	for _, step := range []time.Duration{0, time.Nanosecond, time.Hour, -time.Hour, 0, 999 * time.Millisecond, 24 * time.Hour} {
		next := OpeningAfter(now.Add(step), "", last)
		if next <= last || len(next) != len(word) {
			t.Errorf("%v from noon, after %q: %q; want a greater word of as many letters", step, last, next)
		}
		last = next
	}
	if next := OpeningAfter(now, "by hand", last); next <= last || len(next) != len(word) {
		t.Errorf("beside a word by hand: %q; want one greater than %q", next, last)
	}
}

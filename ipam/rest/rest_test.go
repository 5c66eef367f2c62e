package rest

import (
	"testing"
	"time"
)

// TestRested: an address counts as rested once a note of it is old enough, never earlier, and later
// by a 32nd at most, however seldom or often the notes are made.
func TestRested(t *testing.T) {
	const d = 10 * time.Minute
	for _, every := range []time.Duration{time.Second, 7 * time.Second, time.Minute, time.Hour} {
		var r Notes
		freedAt := []time.Duration{-1} // by number
		freed, rested := uint64(0), uint64(0)
		for now := time.Duration(0); now < 5*time.Hour; now += every {
			if now < 2*time.Hour { // one address a note, and then none
				freed++
				freedAt = append(freedAt, now)
			}
			r.Note(freed, now, d)
			rested = r.Rested(now, d)
			if rested > 0 && now-freedAt[rested] < d {
				t.Fatalf("noted every %v: at %v the address freed at %v has rested", every, now, freedAt[rested])
			}
			if next := rested + 1; next <= freed && now-freedAt[next] > d+d/notesIn+2*every {
				t.Fatalf("noted every %v: at %v the address freed at %v rests still", every, now, freedAt[next])
			}
			if len(r.notes) > notesIn+2 {
				t.Fatalf("noted every %v: %d notes", every, len(r.notes))
			}
		}
		if rested != freed {
			t.Errorf("noted every %v: %d of %d addresses have rested hours after the last was freed", every, rested, freed)
		}
	}
}

// TestRestBeginsAnew: before the first note everything rests, so also after a restart; and where
// a Space counts from the beginning again, what was noted of the other is forgotten.
func TestRestBeginsAnew(t *testing.T) {
	var r Notes
	if got := r.Rested(time.Hour, time.Minute); got != 0 {
		t.Errorf("%d addresses have rested before anything was noted; want none", got)
	}
	r.Note(7, time.Hour, time.Minute)
	if got := r.Rested(time.Hour+time.Minute-1, time.Minute); got != 0 {
		t.Errorf("%d addresses have rested for less than a minute; want none", got)
	}
	if got := r.Rested(time.Hour+time.Minute, time.Minute); got != 7 {
		t.Errorf("%d addresses have rested for a minute; want 7", got)
	}
	r.Note(3, 2*time.Hour, time.Minute)
	if got := r.Rested(2*time.Hour, time.Minute); got != 0 {
		t.Errorf("%d addresses of a new Space have rested; want none", got)
	}
}

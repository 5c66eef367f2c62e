// Package rest tells which addresses were freed a while ago. An [allocator.Space] keeps the order
// in which it has freed them, and no times: so it is noted how far that had come at which time.
//
// [allocator.Space]: github.com/tenure-ipam/tenure/allocator.Space
package rest

import "time"

// Notes are of the addresses of one family that one Space has freed. The zero Notes have noted
// nothing: every address that was freed rests still.
//
// Times are on a clock that does not jump, as durations since some moment.
type Notes struct {
	notes []note
}

// A note says that the first freed addresses had been freed by at.
type note struct {
	freed uint64
	at    time.Duration
}

// notesIn is into how many parts Notes divide the time that addresses are to rest. One
// may rest longer by such a part.
const notesIn = 32

// Note notes that the Space has freed so many addresses by now, which are to rest for d. An
// address is known to have been freed only since the next Note: whoever calls it once a second is
// late by a second.
func (r *Notes) Note(freed uint64, now, d time.Duration) {
	for len(r.notes) > 1 && now-r.notes[1].at >= d {
		r.notes = r.notes[1:]
	}
	if n := len(r.notes); n > 0 {
		switch last := r.notes[n-1]; {
		case freed < last.freed: // the Space is another one
			r.notes = nil
		case freed == last.freed || now-last.at < d/notesIn:
			return
		}
	}
	r.notes = append(r.notes, note{freed, now})
}

// Rested returns how many of the addresses that were freed first have rested for d by now.
func (r *Notes) Rested(now, d time.Duration) (freed uint64) {
	for _, n := range r.notes {
		if now-n.at < d {
			break
		}
		freed = n.freed
	}
	return freed
}

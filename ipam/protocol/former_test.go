package protocol

import (
	"testing"
	"time"
)

// Who sat on a seat is remembered by it, until that store sits again (H7, F15).
func TestSeatRemembersFormerOccupants(t *testing.T) {
	now := Instant{Boot: time.Hour, Wall: walkNow}
	sit := func(self Identity, seat Seat) Seat {
		t.Helper()
		s := Sitting{Self: self}
		res := StepSeat(s, SeatEvent{Now: now, Call: SeatRead, Outcome: Done, Seat: seat})
		if res.Call != SeatUpdate {
			t.Fatalf("%s does not sit down on %+v: %+v", self.Store, seat, res)
		}
		return res.Write
	}
	first := Seat{Meta: Meta{UID: "u", Revision: "1"}, Node: "n", NodeUID: "node", Store: "s1", Machine: "m", Boot: "b1", Term: 3, Fence: time.Minute}
	seat := sit(Identity{Node: "n", Store: "s2", Machine: "m", Boot: "b1"}, first)
	if len(seat.Former) != 1 || seat.Former[0] != (Former{Store: "s1", Machine: "m", Boot: "b1", NodeUID: "node", Term: 3, Fence: time.Minute}) {
		t.Errorf("after s1, s2 sits with %+v", seat.Former)
	}
	if again := sit(Identity{Node: "n", Store: "s2", Machine: "m", Boot: "b2"}, seat); len(again.Former) != 1 {
		t.Errorf("after a boot s2 sits with %+v; want s1 alone", again.Former)
	}
	ended := seat
	ended.Former = append(ended.Former, Former{Store: "s2", Machine: "m", Term: 4, Ended: true})
	ended.Store, ended.Boot, ended.Term = "", "", 5
	if next := sit(Identity{Node: "n", Store: "s3", Machine: "m2", Boot: "b9"}, ended); len(next.Former) != 2 || next.Former[1].Store != "s2" {
		t.Errorf("on an ended seat s3 sits, at once, with %+v; want s1 and s2", next.Former)
	}
	if next := sit(Identity{Node: "n", Store: "s2", Machine: "m", Boot: "b2"}, ended); len(next.Former) != 1 || next.Former[0].Store != "s1" {
		t.Errorf("s2 sits again with %+v; want s1 alone", next.Former)
	}
	for i := range 40 {
		seat = sit(Identity{Node: "n", Store: StoreID(rune('A' + i)), Machine: "m", Boot: "b1"}, seat)
	}
	if len(seat.Former) != formerMax {
		t.Errorf("a seat remembers %d occupants; want %d", len(seat.Former), formerMax)
	}
}

package protocol

import (
	"testing"
	"time"
)

// A registration remembers its former agents, until the store registers again.
func TestRegistrationRemembersFormerRegistrants(t *testing.T) {
	now := Instant{Boot: time.Hour, Wall: walkNow}
	register := func(self Identity, reg Registration) Registration {
		t.Helper()
		s := Registrar{Self: self}
		res := StepRegistration(s, RegistrationEvent{Now: now, Call: RegistrationRead, Outcome: Done, Registration: reg})
		if res.Call != RegistrationUpdate {
			t.Fatalf("%s does not register on %+v: %+v", self.Store, reg, res)
		}
		return res.Write
	}
	first := Registration{Meta: Meta{UID: "u", Revision: "1"}, Node: "n", NodeUID: "node", Store: "s1", Machine: "m", Boot: "b1", Term: 3, Fence: time.Minute}
	reg := register(Identity{Node: "n", Store: "s2", Machine: "m", Boot: "b1"}, first)
	if len(reg.Former) != 1 || reg.Former[0] != (Former{Store: "s1", Machine: "m", Boot: "b1", NodeUID: "node", Term: 3, Fence: time.Minute}) {
		t.Errorf("after s1, s2 registers with %+v", reg.Former)
	}
	if again := register(Identity{Node: "n", Store: "s2", Machine: "m", Boot: "b2"}, reg); len(again.Former) != 1 {
		t.Errorf("after a boot s2 registers with %+v; want s1 alone", again.Former)
	}
	ended := reg
	ended.Former = append(ended.Former, Former{Store: "s2", Machine: "m", Term: 4, Ended: true})
	ended.Store, ended.Boot, ended.Term = "", "", 5
	if next := register(Identity{Node: "n", Store: "s3", Machine: "m2", Boot: "b9"}, ended); len(next.Former) != 2 || next.Former[1].Store != "s2" {
		t.Errorf("on an ended registration s3 registers, at once, with %+v; want s1 and s2", next.Former)
	}
	if next := register(Identity{Node: "n", Store: "s2", Machine: "m", Boot: "b2"}, ended); len(next.Former) != 1 || next.Former[0].Store != "s1" {
		t.Errorf("s2 registers again with %+v; want s1 alone", next.Former)
	}
	for i := range 40 {
		reg = register(Identity{Node: "n", Store: StoreID(rune('A' + i)), Machine: "m", Boot: "b1"}, reg)
	}
	if len(reg.Former) != formerMax {
		t.Errorf("a registration remembers %d registrants; want %d", len(reg.Former), formerMax)
	}
}

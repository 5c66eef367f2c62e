package protocol

import "testing"

// TestKeeps: an attachment is answered again what it has out of a lease that was said in
// this term and waits for its pool, unless that lease goes whatever is written (I1).
func TestKeeps(t *testing.T) {
	self := Self{Node: "n1", Store: "s1", Term: 3}
	said := Right{Kind: RightLease, Name: "lan.0a00000a.31", Phase: Held, UID: "u", Revision: "4", Asserted: 3}
	waits := func(kind RightKind) Right { r := said; r.Kind = kind; return r }
	before := said
	before.Asserted = 2
	serving := before
	serving.Asserted, serving.Term = 3, 3
	fence := func(deleting bool) Right {
		return Step(before, self, Event{Kind: EventAnswer, Call: CallFence, Outcome: Done, Object: Object{
			Meta: Meta{UID: "u", Revision: "5", Deleting: deleting}, Node: "n1", Store: "s1", Term: 3, Writes: 2, Matches: true,
		}}).Next
	}
	for _, tt := range []struct {
		name string
		r    Right
		want bool
	}{
		{"it serves", serving, true},
		{"it waits for its pool", waits(RightLease), true},
		{"a use waits for its claim", waits(RightUse), false},
		{"it was said in an earlier term", before, false},
		{"it is said in this one", fence(false), true},
		{"it is said in this one, and being deleted", fence(true), false},
	} {
		if got := tt.r.Keeps(self.Term); got != tt.want {
			t.Errorf("%s: keeps %v; want %v", tt.name, got, tt.want)
		}
	}
	if said.Keeps(0) || serving.Keeps(0) {
		t.Error("kept without a registration")
	}
}

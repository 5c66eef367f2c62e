package protocol

import (
	"net/netip"
	"testing"
)

// A create without an answer may have landed: that a later one is refused does not
// have its name forgotten.
func TestRefusedCreateAfterOneInDoubt(t *testing.T) {
	fresh := walkStart(RightLease).Right
	first := Step(fresh, cedeSelf, Event{Kind: EventWant, Now: walkNow})
	if res := Step(first.Next, cedeSelf, answerTo(CallCreate, Refused, Object{})); !res.Forget || res.Verdict != VerdictDenied {
		t.Errorf("the only create refused: got %+v; want it forgotten", res)
	}
	met := answerTo(CallCreate, Exists, Object{})
	if res := Step(first.Next, cedeSelf, met); !res.Forget || res.Verdict != VerdictTaken {
		t.Errorf("the only create met another's lease: got %+v; want it forgotten", res)
	}
	lost := Step(first.Next, cedeSelf, answerTo(CallCreate, Unknown, Object{}))
	second := Step(lost.Next, cedeSelf, Event{Kind: EventWant, Now: walkNow})
	res := Step(second.Next, cedeSelf, answerTo(CallCreate, Refused, Object{}))
	if res.Forget || res.Next.Phase != Noted || res.Verdict != VerdictDenied {
		t.Errorf("the second create refused: got %+v; want the name kept, and the refusal said", res)
	}
	if _, ok := NextRecheck(res.Next.NotedAt, walkNow); !ok {
		t.Error("nobody looks for the first create any more")
	}
	if res := Step(second.Next, cedeSelf, met); res.Forget || res.Call != CallRead {
		t.Errorf("the second create met a lease: got %+v; want it read, for it may be the first one's", res)
	}
}

// TestListedOtherwise: a list of the node's own objects gives cause to look at what it
// shows otherwise than the record has it; also at a create in doubt that has landed.
func TestListedOtherwise(t *testing.T) {
	ceded := []netip.Addr{netip.MustParseAddr("10.0.0.1")}
	for _, tt := range []struct {
		name  string
		right Right
		uid   UID
		lease Lease
		want  bool
	}{
		{"a create in doubt has landed", Right{Kind: RightLease, Phase: Noted}, "u", Lease{}, true},
		{"a create in doubt has not", Right{Kind: RightLease, Phase: Noted}, "", Lease{}, false},
		{"a create that was answered", Right{Kind: RightLease, Phase: Noted, UID: "u"}, "u", Lease{}, false},
		{"held", Right{Kind: RightLease, Phase: Held, UID: "u"}, "u", Lease{}, false},
		{"held, and gone", Right{Kind: RightLease, Phase: Held, UID: "u"}, "", Lease{}, true},
		{"held, and another's", Right{Kind: RightUse, Phase: Held, UID: "u"}, "v", Lease{}, true},
		{"held, and not told what is ceded", Right{Kind: RightLease, Phase: Held, UID: "u", LeaseRight: LeaseRight{Ceded: ceded}}, "u", Lease{}, true},
		{"held, and told", Right{Kind: RightLease, Phase: Held, UID: "u", LeaseRight: LeaseRight{Ceded: ceded}}, "u", Lease{Ceded: ceded}, false},
		{"lost", Right{Kind: RightLease, Phase: Lost, UID: "u"}, "v", Lease{}, true},
		{"being given back", Right{Kind: RightLease, Phase: Releasing, UID: "u"}, "v", Lease{}, false},
	} {
		if got := tt.right.ListedOtherwise(tt.uid, tt.lease); got != tt.want {
			t.Errorf("%s: %v; want %v", tt.name, got, tt.want)
		}
	}
}

package protocol

import "testing"

// A create without an answer may have landed: that a later one is refused does not
// have its name forgotten (F8, H13, M52).
func TestRefusedCreateAfterOneInDoubt(t *testing.T) {
	fresh := walkStart(RightLease).Right
	first := Step(fresh, cedeSelf, Event{Kind: EventWant, Now: walkNow})
	if res := Step(first.Next, cedeSelf, answerTo(CallCreate, Refused, Object{})); !res.Forget || res.Verdict != VerdictDenied {
		t.Errorf("the only create refused: got %+v; want it forgotten", res)
	}
	met := answerTo(CallCreate, Exists, Object{})
	if res := Step(first.Next, cedeSelf, met); res.Forget || res.Call != CallRead {
		t.Errorf("the only create met a lease: got %+v; want it read, for it may be one that the store has forgotten", res)
	}
	met.Others = true
	if res := Step(first.Next, cedeSelf, met); !res.Forget || res.Verdict != VerdictTaken {
		t.Errorf("the only create met another's lease: got %+v; want it forgotten", res)
	}
	lost := Step(first.Next, cedeSelf, answerTo(CallCreate, Unknown, Object{}))
	second := Step(lost.Next, cedeSelf, Event{Kind: EventWant, Now: walkNow})
	res := Step(second.Next, cedeSelf, answerTo(CallCreate, Refused, Object{}))
	if res.Forget || res.Next.Phase != Noted || res.Verdict != VerdictDenied {
		t.Errorf("the second create refused: got %+v; want the name kept, and the refusal said", res)
	}
	if _, ok := NextLook(res.Next.NotedAt, walkNow); !ok {
		t.Error("nobody looks for the first create any more")
	}
	if res := Step(second.Next, cedeSelf, met); res.Forget || res.Call != CallRead {
		t.Errorf("the second create met a lease: got %+v; want it read, for it may be the first one's", res)
	}
}

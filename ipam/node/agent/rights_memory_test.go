package agent

import (
	"slices"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestRequestsIndex: a request is found by whom it is for from the step that noted
// it until one that gave it away.
func TestRequestsIndex(t *testing.T) {
	var q requests
	at := func(d time.Duration) protocol.Instant { return protocol.Instant{Boot: d} }
	by := requester{pod: "uid", ifName: "net1"}
	step := func(name string, phase protocol.Phase, forget bool) {
		q.follow(protocol.Result{Forget: forget, Next: protocol.Right{
			Kind: protocol.RightRequest, Name: name, Phase: phase, SubLeaseRight: protocol.SubLeaseRight{Request: &protocol.Request{Pod: protocol.PodRef{UID: "uid"}, Interface: "net1"}},
		}}, at(time.Minute))
	}
	want := func(when string, names ...string) {
		t.Helper()
		if got := q.namesOf(by); !slices.Equal(got, names) {
			t.Errorf("%s: %v; want %v", when, got, names)
		}
	}
	want("at first")
	entry := q.try("a", by, at(0))
	step("a", protocol.Noted, false)
	step("b", protocol.Held, false)
	want("noted and held", "a", "b")
	if got := q.namesOf(requester{pod: "uid", ifName: "net2"}); len(got) > 0 {
		t.Errorf("another interface has %v", got)
	}
	q.refuse("a", protocol.Refusal{Reason: "InUse"})
	step("a", protocol.Releasing, false)
	want("given back", "b")
	if why := q.refusal(entry); why == nil || why.Reason != "InUse" {
		t.Errorf("the ADD that waited for a reads %v; want the refusal", why)
	}
	before := func(tried protocol.Instant) bool { return tried.Boot <= time.Minute }
	if got := q.untried(before); len(got) != 1 || got[0].name != "b" {
		t.Errorf("%v were not tried; want b", got)
	}
	q.try("b", by, at(2*time.Minute))
	if got := q.untried(before); len(got) > 0 {
		t.Errorf("%v were not tried; want none", got)
	}
	step("b", protocol.Lost, false)
	want("lost")
	q.try("c", by, at(0))
	step("c", protocol.Noted, true)
	want("never recorded")
}

package protocol

import (
	"net/netip"
	"slices"
	"testing"
)

// TestFrozenSubLease: a frozen record serves nobody, and goes only when it is
// let go, by what it was seen as.
func TestFrozenSubLease(t *testing.T) {
	self := Self{Node: "a", Store: "new", Term: 5}
	meta := Meta{Name: "x", UID: "u", Revision: "7"}
	claim := ClaimRef{Namespace: "n", Name: "c", UID: "claim"}
	for _, tt := range []struct {
		name string
		r    Right
		kind RightKind
	}{
		{"lease", FrozenLease(Lease{Meta: meta, Pool: "p", PoolUID: "pu", Block: netip.MustParsePrefix("10.0.0.0/30"), Holder: Holder{Node: "a"}, Store: "old", Term: 3, Writes: 2}), RightLease},
		{"use", FrozenSubLease(SubLease{Meta: meta, Node: "a", Store: "old", Term: 3, Writes: 2, Use: &Use{Claim: claim}}), RightUse},
		{"request", FrozenSubLease(SubLease{Meta: meta, Node: "a", Store: "old", Term: 3, Writes: 2, Request: &Request{}, Granted: []Granted{{Addr: netip.MustParseAddr("10.0.0.9"), Lease: "l"}}}), RightRequest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := tt.r
			if r.Kind != tt.kind || r.Phase != Frozen || r.Store != "old" || r.UID != "u" || r.Revision != "7" || r.Asserted != 3 {
				t.Fatalf("got %+v", r)
			}
			if r.Kind == RightRequest && (len(r.Addrs) != 1 || !slices.Equal(r.Leases, []string{"l"})) {
				t.Errorf("a request has %v of %v; want what it was granted", r.Addrs, r.Leases)
			}
			if r.Usable(3) || r.Usable(5) {
				t.Error("it serves")
			}
			if res := Step(r, self, Event{Kind: EventWant}); res.Call != CallNone || res.Verdict != VerdictTaken {
				t.Errorf("wanted, it leads to %v, %v; want that it is taken", res.Call, res.Verdict)
			}
			if res := Step(r, self, Event{Kind: EventRecheck}); res.Call != CallRead || res.Next.Phase != Frozen {
				t.Errorf("looked at, it leads to %v in phase %v; want a read", res.Call, res.Next.Phase)
			}
			if res := Step(r, self, Event{Kind: EventLetGo}); res.Call != CallDelete || res.Next.Phase != Releasing {
				t.Errorf("let go, it leads to %v in phase %v; want a delete", res.Call, res.Next.Phase)
			}
		})
	}
}

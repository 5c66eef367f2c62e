package protocol

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestLongReportsAreAskedForInParts: a report with more sightings than there is room for says where
// to go on, and none is lost; nor does it grow into the room of the heartbeats.
func TestLongReportsAreAskedForInParts(t *testing.T) {
	whole := Report{ID: "1", Running: []UID{"p"}}
	addr := netip.MustParseAddr("10.0.0.1")
	for i := range 3000 {
		s := Sighting{Addr: addr, Pod: PodRef{Namespace: "ns", Name: "pod", UID: "p"}, Sandbox: "c", Network: "net", IPAM: "host-local"}
		if whole.Has = append(whole.Has, s); i%2 == 0 { // two sandboxes have each address
			addr = addr.Next()
		}
	}
	var got []Sighting
	q := Query{}
	for parts := 0; ; parts++ {
		part := whole
		part.Has = slices.DeleteFunc(slices.Clone(whole.Has), q.Told)
		text := part.String()
		r, ok, err := ParseReport(text)
		if !ok || err != nil || len(text) > MaxReport || r.Unread != "" || r.After != "" || parts > 20 {
			t.Fatalf("part %d, of %d bytes, from %v: %v, %v, unread %q, after %q", parts, len(text), q.From, ok, err, r.Unread, r.After)
		}
		if got = append(got, r.Has...); !q.GoesOn(r) {
			break
		}
	}
	if !slices.Equal(got, whole.Has) {
		t.Errorf("the parts have %d sightings; want the same %d", len(got), len(whole.Has))
	}
}

// TestReportThatCannotBeParted says that it is not whole.
func TestReportThatCannotBeParted(t *testing.T) {
	var lie Report
	for range 2000 {
		lie.Has = append(lie.Has, Sighting{Addr: netip.MustParseAddr("10.0.0.1"), Network: "a name of some length, so that it does not fit"})
	}
	if r, _, err := ParseReport(lie.String()); err != nil || r.Unread == "" || len(r.Has) > 0 {
		t.Errorf("it reads as %d sightings, unread %q, %v", len(r.Has), r.Unread, err)
	}
}

// A report that has no room for all that cannot be read says the first of it, and not that too many
// pods run.
func TestReportOfTooManyUnseen(t *testing.T) {
	why := "/attached/c1: unexpected EOF"
	r := Report{ID: "1", Unseen: slices.Repeat([]Unseen{{HostLocal{Network: "net"}, why}}, 2000)}
	got, _, err := ParseReport(r.String())
	if err != nil || len(r.String()) > MaxReport || !strings.HasPrefix(got.Unread, why) {
		t.Errorf("it reports %q, error %v; want what cannot be read", got.Unread, err)
	}
}

func TestParseRanges(t *testing.T) {
	set, err := ParseRanges([]string{"10.0.0.1-10.0.0.3", "fd00::1-fd00::1"})
	if err != nil || len(set.Ranges()) != 2 {
		t.Errorf("got %v, %v; want two ranges", set, err)
	}
	for _, bad := range []string{"", "10.0.0.1", "10.0.0.3-10.0.0.1", "10.0.0.1-fd00::1"} {
		if _, err := ParseRanges([]string{bad}); err == nil {
			t.Errorf("%q is taken for a range", bad)
		}
	}
}

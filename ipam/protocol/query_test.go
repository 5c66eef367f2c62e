package protocol

import (
	"fmt"
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

// TestReportOfTooManyUnseen: a report that has no room for all that cannot be read says why of
// the first, and that the others cannot. If that is too much it says so, and not that too many
// pods run.
func TestReportOfTooManyUnseen(t *testing.T) {
	const why = "/attached/c1: unexpected EOF"
	sees := Sighting{Addr: netip.MustParseAddr("10.0.0.1"), Sandbox: "s"}
	for name, whole := range map[string]bool{"net%d": true, strings.Repeat("x", 100) + "%d": false} {
		r := Report{ID: "1", Has: []Sighting{sees}}
		for n := range 1400 {
			r.Unseen = append(r.Unseen, slices.Repeat([]Unseen{{HostLocal{Network: fmt.Sprintf(name, n)}, why}}, 2)...)
		}
		got, _, err := ParseReport(r.String())
		switch {
		case err != nil || len(r.String()) > MaxReport:
			t.Errorf("%d bytes, error %v", len(r.String()), err)
		case whole && (got.Unread != "" || len(got.Unseen) < 1400 || got.Unseen[0].Why != why || !slices.Equal(got.Has, r.Has)):
			t.Errorf("it reports %q, %d networks and %v; want all of them, and what a pod has", got.Unread, len(got.Unseen), got.Has)
		case !whole && !strings.HasPrefix(got.Unread, why):
			t.Errorf("it reports %q; want what cannot be read", got.Unread)
		}
	}
}

// TestReportBesideMuchThatIsUnseen: what cannot be read leaves room for what pods have: the report
// has few parts.
func TestReportBesideMuchThatIsUnseen(t *testing.T) {
	whole, parts := Report{ID: "1", Parts: true, Running: []UID{"p"}}, 0
	for n := range 195 {
		network := fmt.Sprintf("/%03d%s", n, strings.Repeat("\U0010ffff", 20))
		whole.Unseen = append(whole.Unseen, Unseen{HostLocal{Network: network}, fmt.Sprintf("files of network %s: %q is no name", network, network)})
	}
	addr := netip.MustParseAddr("10.0.0.1")
	for range 2000 {
		whole.Has = append(whole.Has, Sighting{Addr: addr, Pod: PodRef{Namespace: "ns", Name: "pod", UID: "p"}, Sandbox: strings.Repeat("a", 64), Network: "net", IPAM: "static"})
		addr = addr.Next()
	}
	got := 0
	for q := (Query{ID: "1"}); parts < 100; parts++ {
		part := whole
		part.Has = slices.DeleteFunc(slices.Clone(whole.Has), q.Told)
		r, _, err := ParseReport(part.String())
		if err != nil || r.Unread != "" || len(r.Unseen) != 195 {
			t.Fatalf("it reads as %q and %d networks, error %v", r.Unread, len(r.Unseen), err)
		}
		if got += len(r.Has); !q.GoesOn(r) {
			break
		}
	}
	if got != len(whole.Has) || parts > 20 {
		t.Errorf("%d of %d sightings in %d parts", got, len(whole.Has), parts)
	}
}

// TestReportOfManyThatHaveAsked: what pods have goes before which have asked Tenure.
func TestReportOfManyThatHaveAsked(t *testing.T) {
	r := Report{ID: "1", Asked: map[string][]UID{}, Has: []Sighting{{Addr: netip.MustParseAddr("10.0.0.1"), Sandbox: "s"}}}
	for pod := range 100 {
		uid := UID(fmt.Sprintf("%036d", pod))
		r.Running = append(r.Running, uid)
		for n := range 30 {
			network := fmt.Sprint("net", n)
			r.Asked[network] = append(r.Asked[network], uid)
		}
	}
	got, _, err := ParseReport(r.String())
	if err != nil || got.Unread != "" || len(got.Running) != 100 || !slices.Equal(got.Has, r.Has) {
		t.Errorf("it reports %q, %d pods and %v, error %v; want what the pod has", got.Unread, len(got.Running), got.Has, err)
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

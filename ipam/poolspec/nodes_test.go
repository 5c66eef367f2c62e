package poolspec_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/labels"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

func rack(name string) *labels.Selector {
	return &labels.Selector{Labels: map[string]string{"rack": name}}
}

// racks is a pool of two racks' ranges, one for every node outside rack a, and one for all.
func racks() poolspec.PoolText {
	notA := labels.Selector{Requirements: []labels.Requirement{{Key: "rack", Operator: labels.NotIn, Values: []string{"a"}}, {Key: "zone", Operator: labels.Exists}}}
	return poolspec.PoolText{Ranges: []poolspec.RangeText{
		{CIDR: "10.1.0.0/24", Gateway: "10.1.0.1", NodeSelector: rack("a")},
		{CIDR: "10.2.0.0/24", Gateway: "10.2.0.1", NodeSelector: rack("b")},
		{CIDR: "10.3.0.0/24", NodeSelector: &notA},
		{CIDR: "10.9.0.0/24"},
	}}
}

// TestForNode: a node is given the ranges that select it and those for all, none of which it does
// not know whether they do.
func TestForNode(t *testing.T) {
	a, b, z := "a", "b", "z"
	text := racks()
	whole, err := poolspec.ParsePool(text)
	if err != nil {
		t.Fatal(err)
	}
	if got := text.LabelKeys(); !slices.Equal(got, []string{"rack", "zone"}) {
		t.Errorf("keys %v", got)
	}
	for _, tt := range []struct {
		name   string
		labels poolspec.NodeLabels
		want   []string
		tells  bool
	}{
		{"rack a", poolspec.NodeLabels{"rack": &a, "zone": nil}, []string{"10.1.0.0/24", "10.9.0.0/24"}, true},
		{"rack b, with a zone", poolspec.NodeLabels{"rack": &b, "zone": &z}, []string{"10.2.0.0/24", "10.3.0.0/24", "10.9.0.0/24"}, true},
		{"no labels", poolspec.NodeLabels{"rack": nil, "zone": nil}, []string{"10.9.0.0/24"}, true},
		{"the zone is not told", poolspec.NodeLabels{"rack": &b}, []string{"10.2.0.0/24", "10.9.0.0/24"}, false},
		{"nothing is told", nil, []string{"10.9.0.0/24"}, false},
	} {
		if got := tt.labels.Tells(text); got != tt.tells {
			t.Errorf("%s: tells %v; want %v", tt.name, got, tt.tells)
		}
		var got []string
		for _, r := range text.ForNode(whole, tt.labels).Ranges() {
			got = append(got, r.Prefix.String())
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: is given %v; want %v", tt.name, got, tt.want)
		}
	}
}

// TestRangesOfSelectorsOverlap: one address is of one range, whichever nodes others are for.
func TestRangesOfSelectorsOverlap(t *testing.T) {
	text := poolspec.PoolText{Ranges: []poolspec.RangeText{
		{CIDR: "10.1.0.0/24", NodeSelector: rack("a")},
		{CIDR: "10.1.0.0/24", Start: "10.1.0.128", NodeSelector: rack("b")},
	}}
	if _, err := poolspec.ParsePool(text); err == nil || !strings.Contains(err.Error(), "spec.ranges[1]") || !strings.Contains(err.Error(), "overlaps") {
		t.Errorf("it says %v; want which ranges overlap", err)
	}
	text.Ranges[0].End = "10.1.0.127"
	if _, err := poolspec.ParsePool(text); err != nil {
		t.Errorf("two parts of one CIDR: %v", err)
	}
}

// TestSelectors: what the ranges with one selector have, and which nodes that selects.
func TestSelectors(t *testing.T) {
	text := racks()
	whole, err := poolspec.ParsePool(text)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := text.Selectors(), []string{"rack=a", "rack=b", "rack notin (a),zone", ""}; !slices.Equal(got, want) {
		t.Errorf("selectors %q; want %q", got, want)
	}
	if got := (poolspec.PoolText{Ranges: []poolspec.RangeText{{CIDR: "10.9.0.0/24"}}}).Selectors(); got != nil {
		t.Errorf("selectors %q of a pool without any", got)
	}
	a := "a"
	for selector, addr := range map[string]string{"rack=a": "10.1.0.7", "rack=b": "10.2.0.7", "": "10.9.0.7"} {
		part := text.ForSelectors(whole, selector)
		if _, ok := part.Locate(netip.MustParseAddr(addr)); !ok || len(part.Ranges()) != 1 {
			t.Errorf("%q: ranges %v; want that of %s", selector, part.Ranges(), addr)
		}
		if got, ok := text.SelectorOf(whole, netip.MustParseAddr(addr)); !ok || got != selector {
			t.Errorf("the selector of %s is %q; want %q", addr, got, selector)
		}
		if got, want := text.Selects(selector, poolspec.NodeLabels{"rack": &a, "zone": nil}), selector != "rack=b"; got != want {
			t.Errorf("%q selects a node of rack a: %v; want %v", selector, got, want)
		}
	}
}

// TestNodeLabelsText: what is written is read, a label that is missing too.
func TestNodeLabelsText(t *testing.T) {
	a := "a"
	l := poolspec.NodeLabels{"rack": &a, "zone": nil}
	if got, want := l.String(), `{"rack":"a","zone":null}`; got != want {
		t.Errorf("written as %s; want %s", got, want)
	}
	back, err := poolspec.ParseNodeLabels(l.String())
	if err != nil || back.String() != l.String() || !back.Tells(racks()) {
		t.Errorf("read as %v, error %v", back, err)
	}
	if got, want := l.ForPeople(), "rack=a, zone is missing"; got != want {
		t.Errorf("people read %q; want %q", got, want)
	}
	if _, err := poolspec.ParseNodeLabels("{"); err == nil {
		t.Error("broken JSON is read")
	}
}

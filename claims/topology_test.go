package claims

import (
	"net/netip"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/labels"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// TestAsked: the addresses that a claim asks for say for which nodes it is, if each family of the
// network is decided by them.
func TestAsked(t *testing.T) {
	rack := func(name string) *labels.Selector { return &labels.Selector{Labels: map[string]string{"rack": name}} }
	four := poolspec.PoolText{Ranges: []poolspec.RangeText{
		{CIDR: "10.1.0.0/24", NodeSelector: rack("a")}, {CIDR: "10.2.0.0/24", NodeSelector: rack("b")}, {CIDR: "10.9.0.0/24"},
	}}
	both := poolspec.PoolText{Ranges: append([]poolspec.RangeText{
		{CIDR: "fd00:1::/64", NodeSelector: rack("a")}, {CIDR: "fd00:2::/64", NodeSelector: &labels.Selector{Labels: map[string]string{"zone": "z"}}},
	}, four.Ranges...)}
	for _, tt := range []struct {
		name     string
		pool     poolspec.PoolText
		asks     []string
		families []allocator.Family
		want     []string // addresses that the claim may have, and others not; none: it waits for its pod
	}{
		{name: "nothing", pool: four},
		{name: "an address of a rack", pool: four, asks: []string{"10.2.0.7"}, want: []string{"10.2.0.7", "10.9.0.1"}},
		{name: "one for all nodes", pool: four, asks: []string{"10.9.0.7"}, want: []string{"10.9.0.7"}},
		{name: "one of another pool", pool: four, asks: []string{"10.77.0.7"}},
		{name: "the other family is of the same rack", pool: both, asks: []string{"10.1.0.7"}, want: []string{"10.1.0.7", "fd00:1::7", "10.9.0.1"}},
		{name: "the other family is not decided", pool: both, asks: []string{"10.2.0.7"}},
		{name: "the other family is not wanted", pool: both, asks: []string{"10.2.0.7"}, families: []allocator.Family{allocator.IPv4}, want: []string{"10.2.0.7", "10.9.0.1"}},
		{name: "both families", pool: both, asks: []string{"10.2.0.7", "fd00:2::7"}, want: []string{"10.2.0.7", "fd00:2::7", "10.9.0.1"}},
	} {
		whole, err := poolspec.ParsePool(tt.pool)
		if err != nil {
			t.Fatal(err)
		}
		var asks []netip.Addr
		for _, a := range tt.asks {
			asks = append(asks, netip.MustParseAddr(a))
		}
		part := placed{whole: whole, text: tt.pool}.asked(asks, tt.families)
		if (part == nil) != (len(tt.want) == 0) {
			t.Errorf("%s: decided is %v", tt.name, part != nil)
			continue
		}
		if part == nil {
			continue
		}
		if len(part.Ranges()) != len(tt.want) {
			t.Errorf("%s: may have of %v; want of %d ranges", tt.name, part.Ranges(), len(tt.want))
		}
		for _, a := range tt.want {
			if _, ok := part.Locate(netip.MustParseAddr(a)); !ok {
				t.Errorf("%s: may not have %s", tt.name, a)
			}
		}
	}
}

// TestWaitIsNoNews: that a claim waits for its first pod makes no Event, whatever it said before,
// and that it has got its addresses then makes none either.
func TestWaitIsNoNews(t *testing.T) {
	faulty := fresh().with(metav1.ConditionFalse, ReasonTopologyInvalid, "no range")
	waiting := fresh().with(metav1.ConditionFalse, ReasonWaitForFirstConsumer, "wait")
	for _, tt := range []struct {
		name string
		was  claim
		is   func(seen) outcome
		news bool
	}{
		{"a fault, then a wait", faulty, func(s seen) outcome { return s.failed(ReasonWaitForFirstConsumer, "wait") }, false},
		{"a wait, then addresses", waiting, func(s seen) outcome { return s.allocated([]string{"10.0.0.1/24"}) }, false},
		{"a fault, then addresses", faulty, func(s seen) outcome { return s.allocated([]string{"10.0.0.1/24"}) }, true},
		{"a wait, then a fault", waiting, func(s seen) outcome { return s.failed(ReasonTopologyInvalid, "no range") }, true},
	} {
		s := seen{claim: tt.was, now: noon}
		if st := s.change(tt.is(s)); (st.news != nil) != tt.news {
			t.Errorf("%s: news %v; want %v", tt.name, st.news != nil, tt.news)
		}
	}
}

package claims

import (
	"net/netip"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
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

// TestNowhere: a claim waits for the node of its first pod, or no range is for that node.
func TestNowhere(t *testing.T) {
	waits, faulty := place{wait: "for a pod"}, place{fault: "no range"}
	waiting := fresh().with(metav1.ConditionFalse, ReasonWaitForFirstConsumer, "for a pod")
	pods := []use{{pod: "a", node: "n1", created: noon, name: "u1.0"}}
	may := &admission{}
	tests := []struct {
		name string
		seen seen
		want string
	}{
		{"no pod yet", seen{claim: fresh(), place: waits}, "withdraw, write WaitForFirstConsumer []"},
		{"no pod yet, and it says so", seen{claim: waiting, place: waits}, "withdraw"},
		{"granted, and the pod has gone", seen{claim: waiting, place: waits, held: held("10.0.0.5")}, "withdraw, give back 10.0.0.5, write WaitForFirstConsumer []"},
		{"a pod of an unknown node", seen{claim: waiting, place: waits, uses: pods},
			"withdraw, after 10s"},
		{"no range for the pod's node", seen{claim: fresh(), place: faulty, uses: pods},
			"withdraw, write TopologyInvalid [], event, after 10s"},
		{"granted, and no range is for the pod's node any more", seen{claim: fresh(), place: faulty, uses: pods, held: held("10.0.0.5")},
			"withdraw, write TopologyInvalid [], event, after 10s"},
		{"emptied by hand", seen{claim: fresh().happy(), place: waits, held: held("10.0.0.5")}, "ask"},
		{"emptied by hand, while a pod uses it", seen{claim: fresh().happy(), place: faulty, uses: pods, held: held("10.0.0.5")}, "ask"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.seen.now, tt.seen.network, tt.seen.admission = noon, known(), may
			if got := decide(tt.seen).in(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestAskNamesSpec: the ask of a claim names the spec of each pool as it was read. For a
// missing pool it names the zero Spec.
func TestAskNamesSpec(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	made := &v1alpha1.IPPool{}
	made.Name, made.UID, made.Generation = "made", "p1", 3
	cache := fake.NewClientBuilder().WithScheme(scheme).WithObjects(made).Build()
	r := &Reconciler{Cache: cache}
	network := known(poolspec.Source{Pool: "made"}, poolspec.Source{Pool: "missing"})
	s := seen{claim: fresh(), network: network}
	var err error
	if s.place, err = r.place(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	want := []grants.Spec{{UID: "p1", Generation: 3}, {}}
	for i, src := range s.ask(nil, nil).From {
		if src.Spec == nil || *src.Spec != want[i] {
			t.Errorf("of pool %s: spec %v; want %v", src.Pool, src.Spec, want[i])
		}
	}
}

package pools

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// TestEditedIsCounted: what a change of the ranges gives is in the counts with the change,
// and not when the next are due.
func TestEditedIsCounted(t *testing.T) {
	p := pool("10.0.0.0/24")
	look := func(now time.Time, due bool) (counted bool) {
		s := seen{pool: p, now: now, countsDue: due}
		s.shape, s.fault = shapeOf(p)
		s.tally = count(nil, s.shape, near)
		s.live = &live{pool: p}
		plan := decide(s)
		if plan.status != nil {
			p.Status = *plan.status
		}
		return plan.counted
	}
	look(noon, true)
	p.Spec.Ranges = append(p.Spec.Ranges, v1alpha1.Range{CIDR: "10.0.1.0/24"})
	p.Generation++
	counted := look(noon.Add(time.Second), false)
	if c := p.Status.Counts; !counted || c == nil || c.Capacity != 508 {
		t.Errorf("counted %v: %+v; want those of both ranges", counted, c)
	}
	if look(noon.Add(2*time.Second), false) {
		t.Error("counted again, where nothing was edited")
	}
	p.Status.Counts.Capacity = 254 // as where the new range was withheld until now
	if !look(noon.Add(3*time.Second), false) || p.Status.Counts.Capacity != 508 {
		t.Errorf("what is not withheld any more is not counted: %+v", p.Status.Counts)
	}
}

// TestOverlapSaysWhatKeepsPoolsApart: of pools of one domain only the oldest is opened, also of the
// domain of definitions without a name; where nobody has named one, an address may be given twice.
func TestOverlapSaysWhatKeepsPoolsApart(t *testing.T) {
	p := pool("10.0.0.0/24")
	s := seen{pool: p, now: noon}
	s.shape, s.fault = shapeOf(p)
	s.tally = count(nil, s.shape, near)
	for _, tt := range []struct {
		domain string
		found  overlaps
		want   string
	}{
		{"", overlaps{loose: []string{"lan"}}, "the pool shares addresses with lan, and neither names its domain: an address may be given twice"},
		{"a", overlaps{siblings: []string{"lan"}, older: []string{"lan"}}, "the pool shares addresses of domain a with lan: only the oldest is opened"},
		{poolspec.DefaultDomain, overlaps{siblings: []string{"younger"}}, "the pool shares addresses of domain default-domain with younger: only the oldest is opened"},
		{poolspec.DefaultDomain, overlaps{siblings: []string{"younger"}, loose: []string{"lan"}}, "the pool shares addresses of domain default-domain with younger: only the oldest is opened; " +
			"the pool shares addresses with lan, and neither names its domain: an address may be given twice"},
	} {
		p.Spec.Domain, s.overlaps = tt.domain, tt.found
		var st v1alpha1.IPPoolStatus
		s.describe(&st)
		if c := meta.FindStatusCondition(st.Conditions, v1alpha1.PoolOverlapping); c == nil || c.Message != tt.want {
			t.Errorf("%q, %+v: %+v; want %q", tt.domain, tt.found, c, tt.want)
		}
	}
}

// TestBesideIsSaid: a pool names the definition of another pool whose pods something of it is kept
// for, and what to write: the pool that a person has written; or which annotation, where the pools
// are of two domains. It says so as well once nothing is kept for them, and is not true then.
func TestBesideIsSaid(t *testing.T) {
	implicitly := func(p *v1alpha1.IPPool) { p.Labels = map[string]string{v1alpha1.LabelImplicit: "true"} }
	for _, tt := range []struct {
		pool *v1alpha1.IPPool
		by   foreign.Beside
		want []string
	}{
		{with(pool("10.0.0.0/24"), inDomain("vlan10")), foreign.Beside{Definition: "ns/old", Pool: "blue", Domain: "blue", Implicit: true, Keeps: true}, []string{
			"pods of definition ns/old", "pool blue, which it has", `Write the ipam section of ns/old by hand as {"type": "tenure", "pool": "lan"}`, "addresses by pool blue;", "set the annotation tenure.dev/domain=blue of ns/old",
		}},
		{with(pool("10.0.0.0/24"), inDomain("blue"), implicitly), foreign.Beside{Definition: "ns/new", Pool: "cams", Domain: "vlan10", Keeps: true}, []string{
			"pods of definition ns/new", `Write the ipam section of the pool's own definitions by hand as {"type": "tenure", "pool": "cams"}`, "addresses by pool lan;", "set the annotation tenure.dev/domain=vlan10 of ns/new",
		}},
		{pool("10.0.0.0/24"), foreign.Beside{Definition: "ns/old", Pool: "range-10-0-0-0-24", Domain: "default-domain", Implicit: true, Keeps: true}, []string{
			`{"type": "tenure", "pool": "lan"}, and then delete the pods that have addresses by pool range-10-0-0-0-24`,
		}},
		{pool("10.0.0.0/24"), foreign.Beside{Definition: "ns/old", Pool: "range-10-0-0-0-24", Domain: "default-domain", Implicit: true}, []string{
			"no other pool is known to give these addresses on this network. But definition ns/old has pool range-10-0-0-0-24, which gives addresses of the pool as well",
			`{"type": "tenure", "pool": "lan"}, and then delete the pods that have addresses by pool range-10-0-0-0-24`,
		}},
	} {
		tt.pool.Name = "lan"
		s := seen{pool: tt.pool, now: noon, foreign: &foreign.Verdict{Beside: []foreign.Beside{tt.by}}}
		s.shape, s.fault = shapeOf(tt.pool)
		s.tally = count(nil, s.shape, near)
		var st v1alpha1.IPPoolStatus
		s.describe(&st)
		c := meta.FindStatusCondition(st.Conditions, v1alpha1.PoolOverlapping)
		if c == nil || (c.Status == metav1.ConditionTrue) != tt.by.Keeps || (c.Reason == v1alpha1.ReasonSharedAddresses) != tt.by.Keeps {
			t.Fatalf("%+v: %+v", tt.by, c)
		}
		for _, want := range tt.want {
			if !strings.Contains(c.Message, want) {
				t.Errorf("%+v: says %q; want %q in it", tt.by, c.Message, want)
			}
		}
		if same := tt.by.Domain == poolspec.DefaultDomain; same == strings.Contains(c.Message, "annotation") {
			t.Errorf("%+v: says %q; that the annotation helps, %v", tt.by, c.Message, !same)
		}
	}
}

// TestOfOneMoment: what the status says is full is not free by the counts beside it.
func TestOfOneMoment(t *testing.T) {
	p := with(pool("10.0.0.1/32"), open(32))
	p.Status.ObservedGeneration = p.Generation
	look := func(now time.Time, due bool, leases ...v1alpha1.IPLease) (counted bool) {
		s := seen{pool: p, now: now, countsDue: due}
		s.shape, s.fault = shapeOf(p)
		s.tally = count(leases, s.shape, near)
		plan := decide(s)
		if plan.status != nil {
			p.Status = *plan.status
		}
		return plan.counted
	}
	look(noon, true)
	used := v1alpha1.IPLease{
		Spec:   v1alpha1.IPLeaseSpec{Block: "10.0.0.1/32", Holder: v1alpha1.Holder{Kind: v1alpha1.HolderNode, Node: "n1"}},
		Status: v1alpha1.IPLeaseStatus{Used: new(int32(1))},
	}
	counted := look(noon.Add(time.Second), false, used)
	if !meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.PoolExhausted) {
		t.Fatalf("the pool is not exhausted: %+v", p.Status)
	}
	if c := p.Status.Counts; !counted || c.Used != 1 || c.Free != 0 {
		t.Errorf("counted %v: %+v beside Exhausted; want 1 used and none free", counted, c)
	}
}

// TestSizesOfOne: a block of one address has an address.
func TestSizesOfOne(t *testing.T) {
	for _, tt := range []struct {
		four, six int
		want      string
	}{{32, 0, "1 IPv4 address"}, {26, 0, "64 IPv4 addresses"}, {32, 128, "1 IPv4 and 1 IPv6 address"}, {32, 122, "1 IPv4 and 64 IPv6 addresses"}} {
		s := sizes{allocator.IPv4: tt.four, allocator.IPv6: tt.six}
		if got := s.String(); got != tt.want {
			t.Errorf("%v: %q; want %q", map[allocator.Family]int(s), got, tt.want)
		}
	}
}

// TestCountsForPeople: a number that does not fit is not shown as one that nobody believes.
func TestCountsForPeople(t *testing.T) {
	for cidr, want := range map[string][2]string{"10.0.0.0/24": {"254", "254"}, "fd00::/64": {">2^63", ">2^63"}, "fd00::/120": {"255", "255"}} {
		shape, _ := shapeOf(pool(cidr))
		c := count(nil, shape, near).counts(shape)
		if got := [2]string{c.FreeText, c.CapacityText}; got != want {
			t.Errorf("%s: free and capacity are %q; want %q", cidr, got, want)
		}
	}
}

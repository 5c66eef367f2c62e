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
// domain of definitions without a name.
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
		{"a", overlaps{siblings: []string{"lan"}, older: []string{"lan"}}, "the pool shares addresses of domain a with lan: only the oldest is opened"},
		{poolspec.DefaultDomain, overlaps{siblings: []string{"younger"}}, "the pool shares addresses of domain default-domain with younger: only the oldest is opened"},
	} {
		p.Spec.Domain, s.overlaps = tt.domain, tt.found
		var st v1alpha1.IPPoolStatus
		s.describe(&st)
		if c := meta.FindStatusCondition(st.Conditions, v1alpha1.PoolOverlapping); c == nil || c.Message != tt.want {
			t.Errorf("%q, %+v: %+v; want %q", tt.domain, tt.found, c, tt.want)
		}
	}
}

// TestBesideIsSaid: a pool names the other pools that give its addresses, and what to do: what to
// write into the definitions of the pool that the controller has made, or which word tells two
// networks apart. A pool that has yet to be opened is not opened beside them.
func TestBesideIsSaid(t *testing.T) {
	implicitly := func(p *v1alpha1.IPPool) { p.Labels = map[string]string{v1alpha1.LabelImplicit: "true"} }
	const lease = "blue.0a000000.28 of node n1 on 10.0.0.0/28"
	for _, tt := range []struct {
		pool *v1alpha1.IPPool
		by   []foreign.Beside
		want []string
	}{
		{pool("10.0.0.0/24"), []foreign.Beside{{Pool: "blue", Definition: "ns/old", Implicit: true, First: true}}, []string{
			"pool blue, of definition ns/old, gives addresses of the pool, and nobody has said that the networks are two",
			`write the ipam section of the definitions of pool blue as {"type": "tenure", "pool": "lan"}`, "addresses by pool blue;",
			"name pool blue in spec.shareWith of pool lan",
		}},
		{with(pool("10.0.0.0/24"), implicitly), []foreign.Beside{{Pool: "cams", First: true}}, []string{
			"pool cams gives addresses", `definitions of pool lan as {"type": "tenure", "pool": "cams"}`, "addresses by pool lan;", "name pool lan in spec.shareWith of pool cams",
		}},
		{pool("10.0.0.0/24"), []foreign.Beside{{Pool: "blue", First: true, Lease: lease}, {Pool: "red"}}, []string{
			"pool blue still keeps addresses of the pool (lease " + lease + ")", "delete the pods, claims and reservations that have these addresses by pool blue",
		}},
		{pool("10.0.0.0/24"), []foreign.Beside{{Pool: "blue", First: true, Lease: lease, Moved: "ns/p on node n1, by definition ns/net"}}, []string{
			"pods of the pool's own definitions have addresses of it by pool blue", "(lease " + lease + ")", "the first of them ns/p on node n1, by definition ns/net: this pool", "Delete these pods, and their claims",
		}},
		{pool("10.0.0.0/24"), []foreign.Beside{{Pool: "blue", Ends: true, First: true}}, []string{"pool blue has addresses of the pool, and goes with its last lease", "delete the pods, claims and reservations that have these addresses by pool blue"}},
		{pool("10.0.0.0/24"), []foreign.Beside{{Pool: "red", First: true}, {Pool: "blue"}}, []string{"pool red gives addresses of the pool, or is older", "name two different domains in both (spec.domain)"}},
	} {
		tt.pool.Name = "lan"
		for _, leasing := range []v1alpha1.Leasing{v1alpha1.LeasingOpen, v1alpha1.LeasingClosed} {
			p := with(tt.pool.DeepCopy(), open(30), func(p *v1alpha1.IPPool) { p.Status.ObservedGeneration = p.Generation })
			if leasing == v1alpha1.LeasingClosed {
				p = tt.pool.DeepCopy()
				p.Finalizers = []string{v1alpha1.LeasesFinalizer}
			}
			v := foreign.Verdict{Of: foreign.StateOf(p), Beside: tt.by, Stage: foreign.StageOthers}
			s := seen{pool: p, now: noon, foreign: &v, live: &live{pool: p}}
			s.shape, s.fault = shapeOf(p)
			s.whole, s.tally = s.shape, count(nil, s.shape, near)
			var st *v1alpha1.IPPoolStatus
			for range 3 { // the block sizes come first
				if st = decide(s).status; st == nil {
					break
				}
				p.Status = *st
				v.Of = foreign.StateOf(p)
			}
			c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PoolOverlapping)
			if p.Status.Leasing != leasing || c == nil || c.Status != metav1.ConditionTrue {
				t.Fatalf("%+v: leasing %s, %+v; want %s, and that it overlaps", tt.by, p.Status.Leasing, c, leasing)
			}
			said := []string{c.Message}
			if leasing == v1alpha1.LeasingClosed {
				is := ready(p.Status)
				if said = append(said, is.Message); is.Reason != v1alpha1.ReasonOverlap {
					t.Errorf("%+v: it is closed by %s", tt.by, is.Reason)
				}
			}
			for _, text := range said {
				for _, want := range tt.want {
					if !strings.Contains(text, want) {
						t.Errorf("%+v: says %q; want %q in it", tt.by, text, want)
					}
				}
			}
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

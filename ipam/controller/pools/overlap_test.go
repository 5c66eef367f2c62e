package pools

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestRivalry: a pool of a named domain is opened, or stays open after an edit,
// only when no other pool of the domain has addresses of it, by its ranges or by
// leases that are still there.
func TestRivalry(t *testing.T) {
	rival := func(age time.Duration, reason string, cidrs ...string) v1alpha1.IPPool {
		p := pool(cidrs...)
		p.Name, p.UID, p.Spec.Domain = "rival", "r1", "d"
		p.CreationTimestamp = metav1.NewTime(noon.Add(-age))
		s := seen{pool: p, now: noon}
		s.ready(&p.Status, metav1.ConditionFalse, reason, "")
		return *p
	}
	held := func(block string) []protocol.Lease {
		l := lease(block, "r1")
		l.Pool = "rival"
		return []protocol.Lease{l}
	}
	const older, younger = 2 * time.Hour, 0
	edited := func(p *v1alpha1.IPPool) { p.Generation++ }
	settled := func(p *v1alpha1.IPPool) { p.Status.ObservedGeneration = p.Generation }
	tests := []struct {
		name    string
		pool    *v1alpha1.IPPool
		live    bool
		cached  bool
		rival   v1alpha1.IPPool
		foreign []protocol.Lease
		want    string
		why     string
	}{
		{name: "open: not looked at again", pool: with(pool("10.0.0.0/24"), open(32), settled), want: "Open Open, /32"},
		{name: "open and edited: looked at", pool: with(pool("10.0.0.0/24"), open(32), settled, edited), want: "read live"},
		{name: "edited, and apart from the rest", pool: with(pool("10.0.0.0/24"), open(32), edited), live: true,
			rival: rival(older, v1alpha1.ReasonOpen, "10.0.1.0/24"), foreign: held("10.0.1.7/32"), want: "Open Open, /32"},
		{name: "a lease is left where the range was", pool: with(pool("10.0.0.0/24"), closed(32)), live: true,
			rival: rival(older, v1alpha1.ReasonOpen, "10.0.1.0/24"), foreign: held("10.0.0.7/32"), want: "Closed Overlap, /32", why: "leases of pool rival"},
		{name: "a lease is left, and the pool was open", pool: with(pool("10.0.0.0/24"), open(32), edited), live: true,
			rival: rival(older, v1alpha1.ReasonOpen, "10.0.1.0/24"), foreign: held("10.0.0.0/28"), want: "Closed Overlap, /32", why: "node n1"},
		{name: "an older pool has come to share addresses", pool: with(pool("10.0.0.0/24"), closed(32)), live: true,
			rival: rival(older, v1alpha1.ReasonOpen, "10.0.0.128/25"), want: "Closed Overlap, /32", why: "shares addresses of domain d with rival"},
		{name: "a younger pool is open yet", pool: with(pool("10.0.0.0/24"), open(32), edited), live: true,
			rival: rival(younger, v1alpha1.ReasonOpen, "10.0.0.128/25"), want: "Closed Overlap, /32", why: "until pool rival"},
		{name: "a younger pool is closed for that", pool: with(pool("10.0.0.0/24"), closed(32)), live: true,
			rival: rival(younger, v1alpha1.ReasonOverlap, "10.0.0.128/25"), want: "Open Open, /32"},
		{name: "a younger pool is closed, and its leases are left", pool: with(pool("10.0.0.0/24"), closed(32)), live: true,
			rival: rival(younger, v1alpha1.ReasonOverlap, "10.0.0.128/25"), foreign: held("10.0.0.130/32"), want: "Closed Overlap, /32", why: "it waits for 1"},
		{name: "the cache has a lease that is left", pool: with(pool("10.0.0.0/24"), closed(32)), cached: true,
			rival: rival(older, v1alpha1.ReasonOpen, "10.0.1.0/24"), foreign: held("10.0.0.7/32"), want: "Closed Overlap, /32", why: "leases of pool rival"},
		{name: "the cache has a younger pool that is open yet", pool: with(pool("10.0.0.0/24"), closed(32)), cached: true,
			rival: rival(younger, v1alpha1.ReasonOpen, "10.0.0.128/25"), want: "Closed Overlap, /32", why: "until pool rival"},
		{name: "by the cache alone nothing is opened", pool: with(pool("10.0.0.0/24"), closed(32)), cached: true,
			rival: rival(older, v1alpha1.ReasonOpen, "10.0.1.0/24"), want: "read live"},
		{name: "the cache is behind", pool: with(pool("10.0.0.0/24"), closed(32)), cached: true, live: true,
			rival: rival(older, v1alpha1.ReasonOpen, "10.0.1.0/24"), foreign: held("10.0.0.7/32"), want: "Closed Overlap, /32", why: "leases of pool rival"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.pool.Spec.Domain, tt.pool.CreationTimestamp = "d", metav1.NewTime(noon.Add(-time.Hour))
			s := seen{pool: tt.pool, now: noon, shapeOf: func(p *v1alpha1.IPPool) *allocator.Shape { shape, _ := shapeOf(p); return shape }}
			s.shape, _ = shapeOf(tt.pool)
			found := &live{pool: tt.pool, others: []v1alpha1.IPPool{tt.rival}, foreign: tt.foreign}
			switch {
			case tt.live && tt.cached:
				s.live, s.cached = found, &live{pool: tt.pool}
			case tt.live:
				s.live = found
			case tt.cached:
				s.cached = found
			}
			got := decide(s)
			if got.in() != tt.want {
				t.Fatalf("got %s; want %s", got.in(), tt.want)
			}
			if got.status != nil && !strings.Contains(ready(*got.status).Message, tt.why) {
				t.Errorf("says %q; want %q in it", ready(*got.status).Message, tt.why)
			}
		})
	}
}

// TestLateOpening: a younger pool was closed for a lease of a third one. A look that is
// about to open it, now that the lease is gone, and pauses before its write, or whose write
// has no answer, meets another version of the pool once an older one has been let have the
// same addresses.
func TestLateOpening(t *testing.T) {
	shapes := func(p *v1alpha1.IPPool) *allocator.Shape { shape, _ := shapeOf(p); return shape }
	look := func(p *v1alpha1.IPPool, other v1alpha1.IPPool, foreign ...protocol.Lease) plan {
		s := seen{pool: p, now: noon, shape: shapes(p), shapeOf: shapes}
		s.live = &live{pool: p, others: []v1alpha1.IPPool{other}, foreign: foreign}
		return decide(s)
	}
	named := func(p *v1alpha1.IPPool, name string, age time.Duration) *v1alpha1.IPPool {
		p.Name, p.UID, p.Spec.Domain, p.CreationTimestamp = name, types.UID("of "+name), "d", metav1.NewTime(noon.Add(-age))
		return p
	}
	young := named(with(pool("10.0.0.128/25"), closed(32)), "young", time.Hour)
	old := named(with(pool("10.0.1.0/24"), open(32)), "old", 2*time.Hour)
	old.Status.ObservedGeneration = old.Generation
	third := lease("10.0.0.130/32", "of third")
	third.Pool = "third"
	young.Status = *look(young, *old, third).status
	if got := ready(young.Status).Reason; got != v1alpha1.ReasonOverlap {
		t.Fatalf("the younger pool is closed for %s", got)
	}
	late := look(young.DeepCopy(), *old)
	if late.in() != "Open Open, /32" || len(late.first) > 0 {
		t.Fatalf("the younger pool alone: %s, after %d writes", late.in(), len(late.first))
	}

	old.Generation++
	old.Spec.Ranges = append(old.Spec.Ranges, young.Spec.Ranges...)
	for _, since := range []time.Time{noon.Add(-time.Minute), noon.Add(time.Minute)} { // a clock that went back, too
		meta.FindStatusCondition(young.Status.Conditions, v1alpha1.PoolReady).LastTransitionTime = metav1.NewTime(since)
		p := look(old.DeepCopy(), *young.DeepCopy())
		if p.in() != "Open Open, /32" || len(p.first) != 1 || p.first[0].pool.ResourceVersion != late.base.ResourceVersion {
			t.Fatalf("the older pool: %s, after %+v", p.in(), p.first)
		}
		was, is := ready(young.Status), ready(*p.first[0].status)
		if !is.LastTransitionTime.After(was.LastTransitionTime.Time) {
			t.Errorf("at %v the younger pool is written as of %v", was.LastTransitionTime, is.LastTransitionTime)
		}
		is.LastTransitionTime = was.LastTransitionTime
		if is != was {
			t.Errorf("the younger pool is said to be %+v; want %+v", is, was)
		}
	}
}

// TestLeasesOfADomain: a pool of a domain heeds the leases of the domain's other
// pools, and those whose pool is no longer there: of which domain that was, nobody
// knows.
func TestLeasesOfADomain(t *testing.T) {
	named := func(name, domain string) v1alpha1.IPPool {
		p := pool("10.0.0.0/24")
		p.Name, p.UID, p.Spec.Domain = name, types.UID("of "+name), domain
		return *p
	}
	of := func(pool protocol.PoolName, uid protocol.UID) protocol.Lease {
		l := lease("10.0.0.7/32", uid)
		l.Pool = pool
		return l
	}
	own := named("lan", "d")
	l := &live{pool: &own}
	l.sort([]v1alpha1.IPPool{own, named("rival", "d"), named("apart", "e"), named("anew", "e")}, []protocol.Lease{
		of("lan", "of lan"), of("lan", "an earlier one's"), of("rival", "of rival"), of("apart", "of apart"), of("anew", "of anew"),
		of("anew", "an earlier one's"), of("gone", "of gone"),
	}, nil)
	text := func(leases []protocol.Lease) (out []string) {
		for _, l := range leases {
			out = append(out, fmt.Sprintf("%s (%s)", l.Pool, l.PoolUID))
		}
		return out
	}
	if got, want := text(l.leases), []string{"lan (of lan)", "lan (an earlier one's)"}; !slices.Equal(got, want) {
		t.Errorf("its own are %q; want %q", got, want)
	}
	if got, want := text(l.foreign), []string{"rival (of rival)", "anew (an earlier one's)", "gone (of gone)"}; !slices.Equal(got, want) {
		t.Errorf("others' are %q; want %q", got, want)
	}
	if len(l.others) != 1 || l.others[0].Name != "rival" {
		t.Errorf("the domain's other pools are %v; want rival", l.others)
	}
}

// leaseCache is a cache of leases.
type leaseCache struct {
	client.Reader
	leases []protocol.Lease
}

func (c leaseCache) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	for _, l := range c.leases {
		if pool, _ := o.FieldSelector.RequiresExactMatch(leasesByPool); pool == string(l.Pool) {
			into.(*v1alpha1.IPLeaseList).Items = append(into.(*v1alpha1.IPLeaseList).Items, *kube.ToLease(l))
		}
	}
	return nil
}

// TestWhatTheCacheHasOfADomain: a closed pool is told the leases of the other pools of its
// domain, in the order of their names; any other pool nothing.
func TestWhatTheCacheHasOfADomain(t *testing.T) {
	named := func(name, domain string) v1alpha1.IPPool {
		p := pool("10.0.0.0/24")
		p.Name, p.UID, p.Spec.Domain = name, types.UID("of "+name), domain
		return *p
	}
	var all []protocol.Lease
	for _, of := range []string{"b", "lan", "a", "elsewhere"} {
		l := lease("10.0.0.7/32", "of "+protocol.UID(of))
		l.Pool, l.Name = protocol.PoolName(of), of+".0a000007.32"
		all = append(all, l)
	}
	r := &Reconciler{Cache: leaseCache{leases: all}}
	pools := []v1alpha1.IPPool{named("b", "d"), named("lan", "d"), named("a", "d"), named("elsewhere", "e")}
	for _, tt := range []struct {
		name string
		pool *v1alpha1.IPPool
		want string
	}{
		{"closed", with(pool("10.0.0.0/24"), closed(32), inDomain("d")), "[a.0a000007.32 b.0a000007.32]"},
		{"new", with(pool("10.0.0.0/24"), inDomain("d")), "[a.0a000007.32 b.0a000007.32]"},
		{"open", with(pool("10.0.0.0/24"), open(32), inDomain("d")), "nothing"},
		{"of no domain", with(pool("10.0.0.0/24"), closed(32)), "nothing"},
	} {
		c, err := r.rivals(t.Context(), tt.pool, pools)
		if err != nil {
			t.Fatal(err)
		}
		got := "nothing"
		if c != nil {
			var names []string
			for _, l := range c.foreign {
				names = append(names, l.Name)
			}
			got = fmt.Sprint(names)
		}
		if got != tt.want {
			t.Errorf("%s: %s; want %s", tt.name, got, tt.want)
		}
	}
}

// TestEditOfWhatItHad: a lease that covers addresses of an open pool closes it when an
// edit has given the pool one of them, and not when it had them all before. So the leases of
// a pool that is gone, which may have been of another domain, close no pool whose dns is
// edited.
func TestEditOfWhatItHad(t *testing.T) {
	edit := func(spec func(*v1alpha1.IPPoolSpec)) change {
		return func(p *v1alpha1.IPPool) { p.Generation++; spec(&p.Spec) }
	}
	ranges := func(cidr string, exclude ...string) func(*v1alpha1.IPPoolSpec) {
		return func(s *v1alpha1.IPPoolSpec) { s.Ranges = []v1alpha1.Range{{CIDR: cidr, Exclude: exclude}} }
	}
	dns := func(s *v1alpha1.IPPoolSpec) { s.DNS = &v1alpha1.DNS{Domain: "lab"} }
	tests := []struct {
		name   string
		before func(*v1alpha1.IPPoolSpec)
		edits  []change
		anew   bool // by a leader that has not seen the pool before the edit
		want   string
	}{
		{name: "dns", before: ranges("10.0.0.0/24"), edits: []change{edit(dns)}, want: "Open Open, /32"},
		{name: "dns of a pool that is closed", before: ranges("10.0.0.0/24"), edits: []change{edit(dns), closed(32)}, want: "Closed Overlap, /32"},
		{name: "more addresses, not those", before: ranges("10.0.0.0/25"), edits: []change{edit(ranges("10.0.0.0/24"))}, want: "Open Open, /32"},
		{name: "fewer", before: ranges("10.0.0.0/24"), edits: []change{edit(ranges("10.0.0.0/25"))}, want: "Open Open, /32"},
		{name: "just those", before: ranges("10.0.0.128/25"), edits: []change{edit(ranges("10.0.0.0/24"))}, want: "Closed Overlap, /32"},
		{name: "one of those", before: ranges("10.0.0.0/24", "10.0.0.7"), edits: []change{edit(ranges("10.0.0.0/24"))}, want: "Closed Overlap, /32"},
		{name: "the domain", before: func(s *v1alpha1.IPPoolSpec) { ranges("10.0.0.0/24")(s); s.Domain = "" },
			edits: []change{edit(func(s *v1alpha1.IPPoolSpec) { s.Domain = "d" })}, want: "Closed Overlap, /32"},
		{name: "two edits", before: ranges("10.0.0.0/24"), edits: []change{edit(ranges("10.0.0.128/25")), edit(ranges("10.0.0.0/24"))}, want: "Closed Overlap, /32"},
		{name: "dns, and nobody knows what was before", before: ranges("10.0.0.0/24"), edits: []change{edit(dns)}, anew: true, want: "Closed Overlap, /32"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var r Reconciler
			p := with(pool("10.0.0.0/24"), inDomain("d"), open(32), func(p *v1alpha1.IPPool) { p.Status.ObservedGeneration = p.Generation })
			tt.before(&p.Spec)
			if shape, _ := shapeOf(p); !tt.anew {
				r.before(p, shape)
			}
			p = with(p, tt.edits...)
			l := lease("10.0.0.0/28", "of one that is gone")
			l.Pool = "gone"
			s := seen{pool: p, now: noon, live: &live{pool: p, foreign: []protocol.Lease{l}}, shapeOf: func(*v1alpha1.IPPool) *allocator.Shape { return nil }}
			s.shape, _ = shapeOf(p)
			s.before = r.before(p, s.shape)
			if got := decide(s).in(); got != tt.want {
				t.Errorf("got %s; want %s", got, tt.want)
			}
		})
	}
}

// TestSharesSaysWhatCanBeChanged: the schema admits another domain only before a pool is opened.
func TestSharesSaysWhatCanBeChanged(t *testing.T) {
	for _, tt := range []struct {
		pool *v1alpha1.IPPool
		want string
	}{
		{pool("10.0.0.0/24"), "change the ranges, or the domain"},
		{with(pool("10.0.0.0/24"), closed(32)), "change the ranges"},
		{with(pool("10.0.0.0/24"), func(p *v1alpha1.IPPool) { p.Status.Waited = "1" }), "change the ranges"},
	} {
		if got := shares(tt.pool, []string{"old"}); !strings.HasSuffix(got, ": "+tt.want) {
			t.Errorf("opening %q, waited %q: %s; want %q at its end", tt.pool.Status.Opening, tt.pool.Status.Waited, got, tt.want)
		}
	}
}

package looker

import (
	"context"
	"net/netip"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// see takes up the pools that can be read.
func (t *look) see(ctx context.Context, objects []v1alpha1.IPPool, kept map[protocol.PoolName]map[netip.Addr]protocol.Grantee) {
	var all []*foreign.Pool
	for i := range objects {
		o := &objects[i]
		whole, err := poolspec.ParsePool(kube.SpecText(o))
		if err != nil { // its leases still keep what they keep
			t.faulty = append(t.faulty, &foreign.Pool{Name: protocol.PoolName(o.Name), Domain: o.Spec.Domain, Named: o.Spec.Domain, Implicit: o.Labels[v1alpha1.LabelImplicit] == "true", ShareWith: o.Spec.ShareWith})
			continue
		}
		open := o.Status.Leasing == v1alpha1.LeasingOpen
		p := &pool{
			Pool: foreign.Pool{
				Name: protocol.PoolName(o.Name), Object: kube.PoolOf(o), Domain: o.Spec.Domain, Named: o.Spec.Domain, Implicit: o.Labels[v1alpha1.LabelImplicit] == "true", Whole: whole, ShareWith: o.Spec.ShareWith,
				CheckAll: !open, Made: o.CreationTimestamp.Time, Opens: open || t.facts.Now.Sub(t.specs[o.UID].clear) < opensWithin, Fresh: !open && o.Status.Opening == "", TrustStatus: foreign.TrustsStatus(o), Kept: kept[protocol.PoolName(o.Name)], MayUse: t.mayUse(ctx, o),
			},
			object: o, verdict: foreign.Verdict{Of: foreign.StateOf(o)}, confirmed: o.Spec.TakeOver == v1alpha1.TakeOverConfirmed,
		}
		p.Deleted = o.DeletionTimestamp != nil
		p.Edited = t.specs[o.UID].since
		p.Begins = p.Fresh || kube.GivenAway(o)
		if len(o.Status.Withheld) > 0 {
			p.Withheld = withheldOf(o, whole)
			p.Releases = t.facts.Now.Sub(t.specs[o.UID].clear) < opensWithin
		}
		if poolspec.InDefaultDomain(o.Name, o.Spec.Domain) {
			p.Domain, p.Unnamed = "", true
		}
		t.pools, all = append(t.pools, p), append(all, &p.Pool)
	}
	foreign.Among(append(all, t.faulty...), t.facts.Definitions)
}

// seeSpecs notes since when pools have the specs that they have, and whether they may be about to
// be opened.
func (l *Looker) seeSpecs(objects []v1alpha1.IPPool) {
	next := map[types.UID]spec{}
	for i := range objects {
		o := &objects[i]
		is, known := l.specs[o.UID]
		if !known && o.Status.FencedSince != nil && (o.Status.Leasing != v1alpha1.LeasingOpen || len(o.Status.Withheld) > 0) {
			is.clear = l.Now() // by the last controller
		}
		if is.generation != o.Generation {
			is.generation, is.since = o.Generation, l.Now()
		}
		last := l.Of(protocol.PoolName(o.Name))
		if last.Clear() && last.Of == foreign.StateOf(o) && (o.Status.Leasing != v1alpha1.LeasingOpen || releases(o, last)) {
			is.clear = l.Now()
		}
		next[o.UID] = is
	}
	l.specs = next
}

// releases reports whether a verdict lets a pool give some of what it withholds.
func releases(o *v1alpha1.IPPool, v foreign.Verdict) bool {
	var b netipx.IPSetBuilder
	addWithheld(&b, o)
	if v.Blocked != nil {
		b.RemoveSet(v.Blocked)
	}
	set, _ := b.IPSet() // only valid ranges were added
	return len(set.Ranges()) > 0
}

// mayUse returns a function that reports whether a namespace may use a pool. It remembers the
// answers.
func (t *look) mayUse(ctx context.Context, o *v1alpha1.IPPool) func(string) bool {
	known := map[string]bool{}
	return func(namespace string) bool {
		may, ok := known[namespace]
		if !ok {
			may = t.MayUse(ctx, o, namespace)
			known[namespace] = may
		}
		return may
	}
}

// newOf returns the addresses of a pool that Tenure has given to nobody yet, without blocked.
func newOf(o *v1alpha1.IPPool, whole *allocator.Shape, blocked *netipx.IPSet) *netipx.IPSet {
	var b netipx.IPSetBuilder
	if o.Status.Leasing != v1alpha1.LeasingOpen {
		b.AddSet(whole.Usable())
	}
	b.AddSet(withheldOf(o, whole))
	if blocked != nil && o.Status.Leasing == v1alpha1.LeasingOpen {
		b.RemoveSet(blocked)
	}
	b.Intersect(whole.Usable())
	set, _ := b.IPSet() // only valid ranges were added
	return set
}

// addWithheld adds the addresses that the status of a pool withholds.
func addWithheld(to *netipx.IPSetBuilder, o *v1alpha1.IPPool) {
	for _, text := range o.Status.Withheld {
		if r, err := netipx.ParseIPRange(text); err == nil {
			to.AddRange(r)
		}
	}
}

// withheldOf returns the addresses of a pool's ranges that are withheld.
func withheldOf(o *v1alpha1.IPPool, whole *allocator.Shape) *netipx.IPSet {
	var b netipx.IPSetBuilder
	addWithheld(&b, o)
	b.Intersect(whole.Usable())
	set, _ := b.IPSet() // only valid ranges were added
	return set
}

package pools

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// unnamed reports whether nobody has named p's domain: it has none, or that of definitions without
// a name.
func unnamed(p *v1alpha1.IPPool) bool {
	return p.Spec.Domain == "" || p.Spec.Domain == poolspec.DefaultDomain
}

// overlaps are the names of pools that share addresses with one.
type overlaps struct {
	// siblings are of its domain, of which the oldest alone is opened; older are those of them that
	// were there first.
	siblings, older []string
	// loose are those that nothing keeps apart from it: nobody has named a domain for either.
	loose []string
}

// overlapping returns which of others share addresses with p, in one domain or in none that
// anybody has named. In a domain what a pool excludes counts as its own: leases are of whole
// blocks, and one of the other pool may have such an address.
func overlapping(p *v1alpha1.IPPool, shape *allocator.Shape, others []v1alpha1.IPPool, shapeOf func(*v1alpha1.IPPool) *allocator.Shape) (found overlaps) {
	if shape == nil {
		return found
	}
	for i := range others {
		o := &others[i]
		switch sibling := p.Spec.Domain != "" && o.Spec.Domain == p.Spec.Domain; {
		case o.Name == p.Name:
		case sibling && meet(shape, shapeOf(o)):
			found.siblings = append(found.siblings, o.Name)
			if first := o.CreationTimestamp.Compare(p.CreationTimestamp.Time); first < 0 || first == 0 && o.Name < p.Name {
				found.older = append(found.older, o.Name)
			}
		case !sibling && unnamed(o) && unnamed(p) && share(shape, shapeOf(o)):
			found.loose = append(found.loose, o.Name)
		}
	}
	slices.Sort(found.siblings)
	slices.Sort(found.older)
	slices.Sort(found.loose)
	return found
}

// share reports whether a and b can give the same address. What a pool excludes is not its own:
// two pools may part a CIDR by excludes.
func share(a, b *allocator.Shape) bool { return meet(a, b) && a.Usable().Overlaps(b.Usable()) }

// meet reports whether ranges of a and b have an address in common, given or not.
func meet(a, b *allocator.Shape) bool {
	for _, x := range a.Ranges() {
		for _, y := range b.Ranges() {
			if netipx.IPRangeFrom(x.Start, x.End).Overlaps(netipx.IPRangeFrom(y.Start, y.End)) {
				return true
			}
		}
	}
	return false
}

// covers reports whether block has an address of shape.
func covers(block netip.Prefix, shape *allocator.Shape) bool {
	b := netipx.RangeOfPrefix(block)
	return slices.ContainsFunc(shape.Ranges(), func(r allocator.Range) bool { return netipx.IPRangeFrom(r.Start, r.End).Overlaps(b) })
}

// lingers reports whether a lease of another pool still keeps an address that a pool of shape can
// give. The other's ranges, by other, have moved away from the address; or the other excludes it,
// and somebody has it all the same, as the lease says. Of a nil other nothing is known.
func lingers(l *v1alpha1.IPLease, shape, other *allocator.Shape) bool {
	block, err := netip.ParsePrefix(l.Spec.Block)
	if err != nil || !covers(block, shape) {
		return false
	}
	had := takenOf(l, block)
	for _, g := range l.Spec.Grants {
		if a, err := netip.ParseAddr(g.Address); err == nil {
			had[a] = true
		}
	}
	a := block.Masked().Addr()
	for range allocator.MaxBlockSize {
		if _, stays := other.Locate(a); shape.Assignable(a) == nil && (had[a] || !stays) {
			return true
		}
		if a = a.Next(); !block.Contains(a) {
			break
		}
	}
	return false
}

// sort keeps, of all pools and leases, those that decide about l.pool. A lease does
// not say which domain its pool was of. So one whose pool has gone before it, because
// somebody took the finalizer off, counts in every domain: a pod may be on its
// addresses. So does one that cannot be read.
func (l *live) sort(pools []v1alpha1.IPPool, leases []protocol.Lease, garbled []*kube.LeaseError) {
	elsewhere := map[protocol.UID]bool{}
	for i := range pools {
		switch {
		case pools[i].Spec.Domain != l.pool.Spec.Domain:
			elsewhere[protocol.UID(pools[i].UID)] = true
		case pools[i].Name != l.pool.Name:
			l.others = append(l.others, pools[i])
		}
	}
	for _, lease := range leases {
		switch {
		case lease.Pool == protocol.PoolName(l.pool.Name):
			l.leases = append(l.leases, lease)
		case !elsewhere[lease.PoolUID]:
			l.foreign = append(l.foreign, lease)
		}
	}
	for _, g := range garbled {
		if g.Pool == protocol.PoolName(l.pool.Name) || !elsewhere[g.PoolUID] {
			l.garbled = append(l.garbled, g)
		}
	}
}

// rivals returns what the cache has of the other pools of the domain that a closed pool
// names, and of their leases: a pool that waits for these need not list all of the
// cluster's live to see that it still does. Nil is for other pools.
func (r *Reconciler) rivals(ctx context.Context, pool *v1alpha1.IPPool, all []v1alpha1.IPPool) (*live, error) {
	if pool.Spec.Domain == "" || pool.Status.Leasing == v1alpha1.LeasingOpen {
		return nil, nil //nolint:nilnil // as it says
	}
	c := &live{pool: pool}
	c.sort(all, nil, nil)
	for i := range c.others {
		leases, err := leasesOf(ctx, r.Cache, c.others[i].Name)
		if err != nil {
			return nil, err
		}
		for k := range leases {
			if l, err := kube.LeaseOf(&leases[k]); err == nil { // of others the live list tells
				c.foreign = append(c.foreign, l)
			}
		}
	}
	// As a live list has them, so that the pool says the same of both.
	slices.SortFunc(c.foreign, func(x, y protocol.Lease) int { return strings.Compare(x.Name, y.Name) })
	return c, nil
}

// rivalry returns why a pool of a named domain must not be open beside the other
// pools of that domain, as with has them: empty, if it may.
//
// Of two pools that share addresses the later one stays closed. The earlier one,
// when it has come to share them by an edit, waits until that is written, and then
// sees to it that no look which has not seen the edit opens the later one (bar). And a pool
// whose ranges were another's before waits until no lease of the other covers them:
// nodes may hold these, and have pods on their addresses. A pool that is open is not
// closed for addresses that it had before an edit, which has brought it nothing of them:
// what they are to it was decided when it was opened. After is when to look again.
func (s seen) rivalry(with *live) (why string, after time.Duration) {
	domain := s.pool.Spec.Domain
	if older := overlapping(s.pool, s.shape, with.others, s.shapeOf).older; len(older) > 0 {
		return fmt.Sprintf("the pool shares addresses of domain %s with %s: change the ranges, or the domain", domain, strings.Join(few(older, "pools"), ", ")), recheckAfter
	}
	for i := range with.others {
		o := &with.others[i]
		if meet(s.shape, s.shapeOf(o)) && o.DeletionTimestamp == nil && ready(o.Status).Reason != v1alpha1.ReasonOverlap {
			return fmt.Sprintf("the pool waits until pool %s, with which it has come to share addresses of domain %s, is closed", o.Name, domain), time.Second
		}
	}
	var on []string
	var last protocol.Lease
	for _, l := range with.foreign {
		if covers(l.Block, s.shape) && !s.had(l.Block) {
			on, last = append(on, string(l.Pool)), l
		}
	}
	if len(on) == 0 {
		return "", 0
	}
	n := len(on)
	slices.Sort(on)
	return fmt.Sprintf("the pool has addresses that leases of pool %s, of domain %s too or no longer there, still cover: it waits for %d, such as %s of %v on %v",
		strings.Join(few(slices.Compact(on), "pools"), ", "), domain, n, last.Name, last.Holder, last.Block), recheckAfter
}

// fencingWrite is a write to another pool: a status that means the same as the present one.
type fencingWrite struct {
	pool   *v1alpha1.IPPool
	status *v1alpha1.IPPoolStatus
}

// fencingWrites returns a write for each younger pool that shares addresses of the domain with
// this one. They come before st opens this pool, or accepts an edit of it. The younger pools are
// closed. But an earlier look, in a controller that leads no more or by a write without an
// answer, may be about to open one: that was decided before this pool came to share the
// addresses. The fencing write makes that other write fail, and later looks know better. Only the
// time of the condition can change without changing the meaning, and it counts in seconds.
func (s seen) fencingWrites(st *v1alpha1.IPPoolStatus) (all []fencingWrite) {
	if s.live == nil || s.pool.Spec.Domain == "" || st.Leasing != v1alpha1.LeasingOpen || s.pool.Status.Leasing == v1alpha1.LeasingOpen && !s.edited() {
		return nil
	}
	for i := range s.live.others {
		o := &s.live.others[i]
		if o.DeletionTimestamp != nil || !meet(s.shape, s.shapeOf(o)) {
			continue
		}
		same := o.Status.DeepCopy()
		c := meta.FindStatusCondition(same.Conditions, v1alpha1.PoolReady) // rivalry has found it
		at := s.now.Truncate(time.Second)
		if !at.After(c.LastTransitionTime.Time) {
			at = c.LastTransitionTime.Add(time.Second)
		}
		c.LastTransitionTime = metav1.NewTime(at)
		all = append(all, fencingWrite{o, same})
	}
	return all
}

// had reports whether the pool is open, and could give all the addresses of block that it
// has before it was edited.
func (s seen) had(block netip.Prefix) bool {
	if s.pool.Status.Leasing != v1alpha1.LeasingOpen || s.before == nil {
		return false
	}
	addr := block.Masked().Addr()
	for range allocator.MaxBlockSize {
		if s.shape.Assignable(addr) == nil && s.before.Assignable(addr) != nil {
			return false
		}
		if addr = addr.Next(); !block.Contains(addr) {
			return true
		}
	}
	return false // no lease of this version has such a block
}

// acceptedSpec is what counts of a pool's spec, as the status says that it was looked at last. A
// later edit is not in it.
type acceptedSpec struct {
	generation int64
	domain     string
	shape      *allocator.Shape
}

// before returns the shape that a pool had before it was edited, nil where that is not
// known: this controller has not seen it, or there was more than one edit, between which
// another pool may have been given what this one had.
func (r *Reconciler) before(pool *v1alpha1.IPPool, shape *allocator.Shape) *allocator.Shape {
	r.mu.Lock()
	defer r.mu.Unlock()
	observed := pool.Status.ObservedGeneration
	if observed == pool.Generation {
		if r.settled == nil {
			r.settled = map[types.UID]acceptedSpec{}
		}
		r.settled[pool.UID] = acceptedSpec{observed, pool.Spec.Domain, shape}
		return nil
	}
	was := r.settled[pool.UID]
	if was.generation != observed || pool.Generation != observed+1 || was.domain != pool.Spec.Domain {
		return nil
	}
	return was.shape
}

// tellOverlaps fills in the condition about other pools that give addresses of the pool.
func (s seen) tellOverlaps(st *v1alpha1.IPPoolStatus) {
	var shared []string
	if all := s.overlaps.siblings; len(all) > 0 {
		shared = append(shared, fmt.Sprintf("the pool shares addresses of domain %s with %s: only the oldest is opened", s.pool.Spec.Domain, strings.Join(few(all, "pools"), ", ")))
	}
	if all := s.overlaps.loose; len(all) > 0 {
		shared = append(shared, fmt.Sprintf("the pool shares addresses with %s, and neither names its domain: an address may be given twice", strings.Join(few(all, "pools"), ", ")))
	}
	disjoint := "no other pool has these addresses"
	if s.foreign != nil {
		var beside []string
		for _, b := range s.foreign.Beside {
			if text := besideText(s.pool, b); b.Keeps {
				beside = append(beside, text)
			} else {
				disjoint = "no other pool is known to give these addresses on this network. But " + text
			}
		}
		shared = append(shared, few(beside, "definitions")...)
	}
	switch {
	case len(shared) > 0:
		s.set(st, v1alpha1.PoolOverlapping, metav1.ConditionTrue, v1alpha1.ReasonSharedAddresses, strings.Join(shared, "; "))
	case len(s.lingering) > 0:
		s.set(st, v1alpha1.PoolOverlapping, metav1.ConditionTrue, v1alpha1.ReasonSharedAddresses, fmt.Sprintf(
			"the pool has addresses that leases of %s still cover, and neither names its domain: an address may be given twice until these are given back; "+
				"name one domain in both (spec.domain), and the pool waits for that", strings.Join(few(s.lingering, "pools"), ", ")))
	default:
		s.set(st, v1alpha1.PoolOverlapping, metav1.ConditionFalse, v1alpha1.ReasonDisjoint, disjoint)
	}
}

// besideText says of a definition of another pool, which gives addresses of p, what to do about it.
// Of two pools the one goes that the controller has made.
func besideText(p *v1alpha1.IPPool, b foreign.Beside) string {
	what, pool, gone := b.Definition, p.Name, b.Pool
	if implicit(p) && !b.Implicit {
		what, pool, gone = "the pool's own definitions", b.Pool, p.Name
	}
	has := "definition %s has pool %s, which gives addresses of the pool as well"
	if b.Keeps {
		has = "pods of definition %s have addresses of the pool by another IPAM, and pool %s, which it has, gives these as well"
	}
	text := fmt.Sprintf(has+": on one network an address may be given twice. "+
		"Write the ipam section of %s by hand as {\"type\": \"tenure\", \"pool\": %q}, and then delete the pods that have addresses by pool %s", b.Definition, b.Pool, what, pool, gone)
	if own := cmp.Or(p.Spec.Domain, poolspec.DefaultDomain); own != b.Domain {
		text += fmt.Sprintf("; or, if the networks are two, set the annotation %s=%s of %s", v1alpha1.AnnotationDomain, b.Domain, b.Definition)
	}
	return text
}

// lingering is what was found out of a pool that names no domain: other such pools
// whose leases still keep addresses of it.
type lingering struct {
	generation int64
	at         time.Time
	pools      []string
}

// lingering returns, of a pool that names no domain, the other such pools whose
// leases still keep addresses of it although these pools do not give them any more; it looks
// again when the counts are due, or the spec has changed.
func (r *Reconciler) lingering(ctx context.Context, pool *v1alpha1.IPPool, shape *allocator.Shape, others []v1alpha1.IPPool, now time.Time) ([]string, error) {
	if shape == nil || pool.Spec.Domain != "" {
		return nil, nil
	}
	r.mu.Lock()
	known, ok := r.lingers[pool.UID]
	r.mu.Unlock()
	if ok && known.generation == pool.Generation && now.Sub(known.at) < r.CountsEvery {
		return known.pools, nil
	}
	known = lingering{generation: pool.Generation, at: now}
	for i := range others {
		if o := &others[i]; o.Name == pool.Name || o.Spec.Domain != "" {
			continue
		}
		leases, err := leasesOf(ctx, r.Cache, others[i].Name)
		if err != nil {
			return nil, err
		}
		other, _ := r.Shapes.Of(&others[i])
		if slices.ContainsFunc(leases, func(l v1alpha1.IPLease) bool { return lingers(&l, shape, other) }) {
			known.pools = append(known.pools, others[i].Name)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lingers == nil {
		r.lingers = map[types.UID]lingering{}
	}
	r.lingers[pool.UID] = known
	return known.pools, nil
}

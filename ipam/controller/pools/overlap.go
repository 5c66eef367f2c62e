package pools

import (
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
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// overlaps are the names of pools that share addresses with one, and name the same domain. The
// oldest alone is opened; older are those of them that were there first.
type overlaps struct{ siblings, older []string }

// overlapping returns which of others share addresses with p in one domain. There what a pool
// excludes counts as its own: leases are of whole blocks, and one of the other pool may have such
// an address.
func overlapping(p *v1alpha1.IPPool, shape *allocator.Shape, others []v1alpha1.IPPool, shapeOf func(*v1alpha1.IPPool) *allocator.Shape) (found overlaps) {
	if shape == nil {
		return found
	}
	for i := range others {
		o := &others[i]
		if o.Name == p.Name || p.Spec.Domain == "" || o.Spec.Domain != p.Spec.Domain || !meet(shape, shapeOf(o)) {
			continue
		}
		found.siblings = append(found.siblings, o.Name)
		open := p.Status.Leasing == v1alpha1.LeasingOpen
		wasOpen := p.Status.Opening != "" && o.Status.Leasing != v1alpha1.LeasingOpen && o.Spec.Allocation != v1alpha1.AllocationStopped
		if implicit(o) && !implicit(p) && (open || wasOpen) {
			continue // whoever edits a definition closes no pool that a person has written
		}
		if first := o.CreationTimestamp.Compare(p.CreationTimestamp.Time); first < 0 || first == 0 && o.Name < p.Name {
			found.older = append(found.older, o.Name)
		}
	}
	slices.Sort(found.siblings)
	slices.Sort(found.older)
	return found
}

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

// shares says that a pool shares addresses with older ones, and what can be done. The domain cannot
// be changed of a pool that has been opened, or has waited after a restore.
func shares(pool *v1alpha1.IPPool, older []string) string {
	change := "the ranges"
	if pool.Status.Opening == "" && pool.Status.Waited == "" {
		change += ", or the domain"
	}
	return fmt.Sprintf("the pool shares addresses of domain %s with %s: change %s", pool.Spec.Domain, strings.Join(few(older, "pools"), ", "), change)
}

// rivalry returns why a pool of a named domain must not be open beside the other pools of that
// domain, as with has them: empty, if it may.
//
// Of two pools that share addresses the later one stays closed. The earlier one, when it has come
// to share them by an edit, waits until that is written, and then sees to it that no look which has
// not seen the edit opens the later one (fencingWrites). And a pool whose ranges were another's
// before waits until no lease of the other covers them: nodes may hold these, and have pods on
// their addresses. A pool that is open is not closed for addresses that it had before an edit,
// which has brought it nothing of them: what they are to it was decided when it was opened. After
// is when to look again.
func (s seen) rivalry(with *live) (why string, after time.Duration) {
	domain := s.pool.Spec.Domain
	if older := overlapping(s.pool, s.shape, with.others, s.shapeOf).older; len(older) > 0 {
		return shares(s.pool, older), recheckAfter
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
	if s.foreign != nil && s.foreign.Of == "" && meta.FindStatusCondition(st.Conditions, v1alpha1.PoolOverlapping) != nil {
		return // nothing is known yet of others
	}
	var shared []string
	if all := s.overlaps.siblings; len(all) > 0 {
		shared = append(shared, fmt.Sprintf("the pool shares addresses of domain %s with %s: only the oldest is opened", s.pool.Spec.Domain, strings.Join(few(all, "pools"), ", ")))
	}
	disjoint := "no other pool of this network has these addresses"
	if s.foreign != nil {
		if all := s.foreign.Yields(); len(all) > 0 {
			shared = append(shared, besideText(s.pool, all, st.Leasing == v1alpha1.LeasingOpen))
		} else if all := s.foreign.Beside; len(all) > 0 {
			disjoint = fmt.Sprintf("no other pool gives these addresses: pool %s has them as well, and is not opened", all[0].Pool)
		}
	}
	if len(shared) > 0 {
		s.set(st, v1alpha1.PoolOverlapping, metav1.ConditionTrue, v1alpha1.ReasonSharedAddresses, strings.Join(shared, "; "))
		return
	}
	s.set(st, v1alpha1.PoolOverlapping, metav1.ConditionFalse, v1alpha1.ReasonDisjoint, disjoint)
}

// besideText says which other pools give addresses of p, and what to do about it.
func besideText(p *v1alpha1.IPPool, all []foreign.Beside, open bool) string {
	if i := slices.IndexFunc(all, func(b foreign.Beside) bool { return b.Moved != "" }); i >= 0 {
		moved := fmt.Sprintf("pods of the pool's own definitions have addresses of it by pool %s, of which the definitions were before (lease %s), the first of them %s: "+
			"this pool gives none of these before that has ended. Delete these pods, and their claims; what nobody has any more is free within two minutes. "+
			"Or, if these pods are of another network, name these definitions in spec.shareWith until they are gone", all[i].Pool, all[i].Lease, all[i].Moved)
		rest := slices.DeleteFunc(slices.Clone(all), func(b foreign.Beside) bool { return b.Moved != "" })
		if len(rest) == 0 {
			return moved
		}
		return moved + "; " + besideText(p, rest, open)
	}
	var names []string
	for _, b := range all {
		switch {
		case b.Lease != "":
			names = append(names, fmt.Sprintf("pool %s still keeps addresses of the pool (lease %s)", b.Pool, b.Lease))
		case b.Ends:
			names = append(names, fmt.Sprintf("pool %s has addresses of the pool, and goes with its last lease", b.Pool))
		case b.Definition != "":
			names = append(names, fmt.Sprintf("pool %s, of definition %s, gives addresses of the pool", b.Pool, b.Definition))
		default:
			names = append(names, fmt.Sprintf("pool %s gives addresses of the pool, or is older", b.Pool))
		}
	}
	so := "this pool gives none of these before that has ended"
	if open {
		so = "what both gave before may be given twice, and this pool gets none of it in addition"
	}
	return fmt.Sprintf("%s, and nobody has said that the networks are two: %s. %s", strings.Join(few(names, "pools"), ", "), so, besideRemedy(p, all[0], open))
}

// besideRemedy says what to do about another pool. Of two pools of one network the one goes that
// the controller has made, else the one that waits. That they are two is said by the other.
func besideRemedy(p *v1alpha1.IPPool, b foreign.Beside, open bool) string {
	into, gone := p.Name, b.Pool
	if implicit(p) || !b.Implicit {
		into, gone = b.Pool, p.Name
	}
	apart := fmt.Sprintf("name two different domains in both (spec.domain), or pool %s in spec.shareWith of pool %s", b.Pool, p.Name)
	if implicit(p) || b.Implicit {
		apart = fmt.Sprintf("name pool %s in spec.shareWith of pool %s", gone, into)
	}
	if b.Lease != "" || b.Ends {
		return fmt.Sprintf("If it is one network, delete the pods, claims and reservations that have these addresses by pool %s, or exclude the addresses here; "+
			"what nobody has any more is free within two minutes. If there are two, %s", b.Pool, apart)
	}
	if open && !implicit(p) && !b.Implicit {
		return fmt.Sprintf("If it is one network, write one of the two pools into all definitions, and delete the pods and claims that have addresses by the other; or change the ranges. If there are two, %s", apart)
	}
	return fmt.Sprintf(`If it is one network, write the ipam section of the definitions of pool %s as {"type": "tenure", "pool": %q}, and delete the pods and claims `+
		"that have addresses by pool %s; or change the ranges. If there are two, %s", gone, into, gone, apart)
}

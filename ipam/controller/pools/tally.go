package pools

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// tally is what the leases of one pool add up to.
type tally struct {
	leases      int
	used        int64 // addresses that attachments have
	claimed     int64 // addresses that belong to claims
	foreign     int64 // addresses that are kept for pods of other IPAMs
	reserved    int64 // addresses that belong to reservations
	spoken      int64 // addresses that nobody else can get: used, claimed or reserved
	unreachable int64
	// leased are the ordinary addresses of leased blocks, and blocks the leases,
	// by family; ordinary and beyond are spoken and unreachable, of the ordinary
	// addresses of a family.
	leased, ordinary, beyond map[allocator.Family]int64
	blocks                   map[allocator.Family]int
	// nodes and claims hold on to addresses; cluster are the leases that the
	// cluster holds.
	nodes   map[string]int
	claims  []string
	cluster int
	// outside are the addresses in use or granted that the pool's ranges no longer
	// have.
	outside int
}

// surroundings are what a pool's numbers depend on beside its leases.
type surroundings struct {
	inUse map[protocol.UID]bool // claims that some node uses
	// reaches reports whether what is free in a node's lease can be had.
	reaches func(*v1alpha1.IPLease) bool
}

// count adds up the leases of a pool of this shape.
func count(leases []v1alpha1.IPLease, shape *allocator.Shape, around surroundings) tally {
	t := tally{
		leased: map[allocator.Family]int64{}, ordinary: map[allocator.Family]int64{}, beyond: map[allocator.Family]int64{},
		blocks: map[allocator.Family]int{}, nodes: map[string]int{},
	}
	for i := range leases {
		l := &leases[i]
		t.leases++
		block, err := netip.ParsePrefix(l.Spec.Block)
		if err != nil {
			continue // the schema admits none
		}
		f, ordinary := allocator.FamilyOf(block.Addr()), int64(shape.OrdinaryIn(block))
		t.leased[f] += ordinary
		t.blocks[f]++
		t.grants(l, shape, around)
		if l.Spec.Holder.Kind == v1alpha1.HolderCluster {
			t.cluster++
			continue
		}
		t.nodes[l.Spec.Holder.Node]++
		used, free := inside(l, shape, ordinary)
		t.used += used
		t.spoken += used
		out := int64(outside(l, block, shape))
		t.outside += int(out)
		t.ordinary[f] += min(max(used-out, 0), ordinary)
		if !around.reaches(l) {
			t.unreachable += free
			t.beyond[f] += free
		}
	}
	return t
}

// inside returns how many addresses of a node's lease its attachments use, by what
// it has published, and how many of the ordinary ones are left that it has not
// ceded.
func inside(l *v1alpha1.IPLease, shape *allocator.Shape, ordinary int64) (used, free int64) {
	if l.Status.Used != nil {
		used = int64(*l.Status.Used)
	}
	free = ordinary - used
	for _, c := range l.Spec.Ceded {
		if a, err := netip.ParseAddr(c); err == nil && shape.Ordinary(a) {
			free--
		}
	}
	if l.Status.Free != nil {
		free = min(free, int64(*l.Status.Free))
	}
	return used, max(free, 0)
}

// grants adds the grants of one lease.
func (t *tally) grants(l *v1alpha1.IPLease, shape *allocator.Shape, around surroundings) {
	for _, g := range l.Spec.Grants {
		t.spoken++
		used := true
		switch g.To.Kind {
		case v1alpha1.GranteeClaim:
			t.claimed++
			t.claims = append(t.claims, g.To.Namespace+"/"+g.To.Name)
			used = around.inUse[protocol.UID(g.To.UID)]
		case v1alpha1.GranteeReservation:
			t.reserved++
			used = false
		case v1alpha1.GranteePod:
			t.foreign++
		case v1alpha1.GranteeSubLease:
		}
		if used {
			t.used++
		}
		a, err := netip.ParseAddr(g.Address)
		if err != nil || shape == nil {
			continue
		}
		if shape.Assignable(a) != nil {
			t.outside++
		} else if shape.Ordinary(a) {
			t.ordinary[allocator.FamilyOf(a)]++
		}
	}
}

// exhausted reports whether some family has no ordinary address that anybody can
// get, and how many of its addresses are in use or spoken for, and out of reach:
// an interface needs an address of each family.
func (t tally) exhausted(shape *allocator.Shape) (full bool, used, capacity, unreachable int64) {
	for _, f := range shape.Families() {
		capacity = shape.OrdinaryCapacity(f)
		if free := capacity - t.ordinary[f] - t.beyond[f]; capacity > 0 && free <= 0 {
			unreachable = min(t.beyond[f], capacity)
			return true, capacity - unreachable, capacity, unreachable
		}
	}
	return false, 0, 0, 0
}

// counts returns the numbers for the status.
func (t tally) counts(shape *allocator.Shape) v1alpha1.PoolCounts {
	var capacity int64
	for _, f := range shape.Families() {
		n := shape.Capacity(f)
		if capacity > math.MaxInt64-n {
			capacity = math.MaxInt64
			break
		}
		capacity += n
	}
	free := capacity
	if capacity < math.MaxInt64 { // what does not fit is not made smaller by a few
		free = max(capacity-t.spoken-t.unreachable, 0)
	}
	return v1alpha1.PoolCounts{
		FreeText: forPeople(free), CapacityText: forPeople(capacity), Capacity: capacity, Used: t.used, Claimed: t.claimed, Free: free, Unreachable: t.unreachable,
		Leases: int32(min(t.leases, math.MaxInt32)), Foreign: t.foreign, Reserved: t.reserved,
	}
}

// forPeople writes a number of addresses; one that does not fit as what it is at least.
func forPeople(n int64) string {
	if n == math.MaxInt64 {
		return ">2^63"
	}
	return strconv.FormatInt(n, 10)
}

// pressure returns the pool's pressure: that of the family that is worse off,
// since an interface gets an address of each.
func (t tally) pressure(now v1alpha1.Pressure, shape *allocator.Shape) v1alpha1.Pressure {
	before, err := allocator.ParsePressure(string(now))
	if err != nil {
		before = allocator.PressureLow
	}
	worst := allocator.PressureLow
	for _, f := range shape.Families() {
		capacity := shape.OrdinaryCapacity(f)
		if capacity == 0 && shape.Capacity(f) > 0 { // no node leases what is given by name alone
			continue
		}
		worst = max(worst, allocator.NextPressure(before, capacity, capacity-t.leased[f]))
	}
	return v1alpha1.Pressure(worst.String())
}

// whoseFree says who gets an address of a pool that has none for who asks for any.
func whoseFree(spec v1alpha1.IPPoolSpec) string {
	if spec.Source != nil {
		return "addresses are Neutron's to give: the condition SourceReady says whether it has any"
	}
	return "addresses are free, to whom asks for them by name: all of them, or all of one family, are static-only"
}

// holders says who still holds leases, for people.
func (t tally) holders() string {
	var parts []string
	for node, n := range t.nodes {
		parts = append(parts, fmt.Sprintf("node %s (%d)", node, n))
	}
	slices.Sort(parts)
	parts = few(parts, "nodes")
	if t.cluster > 0 {
		claims := slices.Compact(slices.Sorted(slices.Values(t.claims)))
		text := fmt.Sprintf("the cluster (%d)", t.cluster)
		if len(claims) > 0 {
			text += " for claims " + strings.Join(few(claims, "claims"), ", ")
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// few keeps the first of a list that is too long to read.
func few(list []string, what string) []string {
	const most = 5
	if len(list) <= most {
		return list
	}
	return append(slices.Clone(list[:most]), fmt.Sprintf("%d more %s", len(list)-most, what))
}

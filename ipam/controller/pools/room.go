package pools

import (
	"context"
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Room is what a pool has left, and who has the rest, as its leases show it.
type Room struct {
	// Parts are the ranges with each node selector, or all where none has one.
	Parts []PartRoom
	// Used are the addresses of each family that attachments on a node have, without those of
	// claims.
	Used map[protocol.NodeName]map[allocator.Family]int64
	// Claims are the claims that have an address.
	Claims map[types.NamespacedName]bool
}

// PartRoom is what a part of a pool has left.
type PartRoom struct {
	// Free are the addresses of each family that nobody has and that a node can get without
	// naming one.
	Free map[allocator.Family]int64
	// For reports whether a node gets addresses of the part.
	For func(*corev1.Node) bool
}

// Room returns what a pool has left. Where the spec has a fault that is nothing, and ok is false.
func (r *Reconciler) Room(ctx context.Context, pool *v1alpha1.IPPool) (room Room, ok bool, err error) {
	shape, _ := r.Shapes.Of(pool)
	if shape == nil {
		return Room{}, false, nil
	}
	if err := r.meet(ctx); err != nil { // a node that is not known counts as silent
		return Room{}, false, err
	}
	leases, err := leasesOf(ctx, r.Cache, pool.Name)
	if err != nil {
		return Room{}, false, err
	}
	nodes, err := r.requesters(ctx, leases)
	if err != nil {
		return Room{}, false, err
	}
	now := r.Now()
	around := surroundings{reaches: func(l *v1alpha1.IPLease) bool { return r.regs.reaches(l, now) }}
	room = usersOf(leases, nodes)
	room.Parts = partsOf(kube.PoolText(pool), leases, shape, around)
	return room, true, nil
}

// partsOf returns what each part of a pool of this shape has left.
func partsOf(text poolspec.PoolText, leases []v1alpha1.IPLease, shape *allocator.Shape, around surroundings) (parts []PartRoom) {
	selectors := text.Selectors()
	if len(selectors) == 0 {
		return []PartRoom{{freeIn(leases, shape, around), func(*corev1.Node) bool { return true }}}
	}
	for _, selector := range selectors {
		part := text.ForSelectors(shape, selector)
		parts = append(parts, PartRoom{freeIn(leasesIn(leases, part), part, around), func(o *corev1.Node) bool {
			return text.Selects(selector, kube.LabelsOf(o, text.LabelKeys()))
		}})
	}
	return parts
}

// freeIn returns what of each family is free in a part of a pool, which has these leases.
func freeIn(leases []v1alpha1.IPLease, part *allocator.Shape, around surroundings) map[allocator.Family]int64 {
	t, free := count(leases, part, around), map[allocator.Family]int64{}
	for _, f := range part.Families() {
		switch capacity := part.OrdinaryCapacity(f); {
		case capacity == math.MaxInt64: // what does not fit is not made smaller by a few
			free[f] = capacity
		case capacity > 0 || part.Capacity(f) == 0: // else no interface gets an address of it unasked
			free[f] = max(capacity-t.ordinary[f]-t.beyond[f], 0)
		}
	}
	return free
}

// requesters returns the nodes of the sub-leases, by name, where a lease has a grant to one.
func (r *Reconciler) requesters(ctx context.Context, leases []v1alpha1.IPLease) (map[string]protocol.NodeName, error) {
	if !grantsTo(leases, v1alpha1.GranteeSubLease) {
		return nil, nil //nolint:nilnil // nobody is looked up in it
	}
	var subs v1alpha1.IPSubLeaseList
	if err := r.Cache.List(ctx, &subs, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list sub-leases: %w", err)
	}
	nodes := map[string]protocol.NodeName{}
	for i := range subs.Items {
		if subs.Items[i].Spec.Request != nil {
			nodes[subs.Items[i].Name] = protocol.NodeName(subs.Items[i].Spec.Node)
		}
	}
	return nodes, nil
}

// grantsTo reports whether a lease has a grant to a grantee of that kind.
func grantsTo(leases []v1alpha1.IPLease, kind v1alpha1.GranteeKind) bool {
	for i := range leases {
		for _, g := range leases[i].Spec.Grants {
			if g.To.Kind == kind {
				return true
			}
		}
	}
	return false
}

// usersOf returns who has what of a pool. nodes are those of the sub-leases, by name.
func usersOf(leases []v1alpha1.IPLease, nodes map[string]protocol.NodeName) Room {
	room := Room{Used: map[protocol.NodeName]map[allocator.Family]int64{}, Claims: map[types.NamespacedName]bool{}}
	for i := range leases {
		l := &leases[i]
		if l.Spec.Holder.Kind == v1alpha1.HolderNode && l.Status.Used != nil {
			room.use(protocol.NodeName(l.Spec.Holder.Node), l.Spec.Block, int64(*l.Status.Used))
		}
		for _, g := range l.Spec.Grants {
			switch g.To.Kind {
			case v1alpha1.GranteeClaim:
				room.Claims[types.NamespacedName{Namespace: g.To.Namespace, Name: g.To.Name}] = true
			case v1alpha1.GranteeSubLease:
				room.use(nodes[g.To.Name], g.Address, 1)
			case v1alpha1.GranteePod:
				room.use(protocol.NodeName(g.To.Node), g.Address, 1)
			case v1alpha1.GranteeReservation:
			}
		}
	}
	return room
}

// use counts n addresses of the family of where, an address or a block, as a node's.
func (r Room) use(node protocol.NodeName, where string, n int64) {
	if node == "" {
		return
	}
	f := allocator.IPv4
	if strings.Contains(where, ":") {
		f = allocator.IPv6
	}
	if r.Used[node] == nil {
		r.Used[node] = map[allocator.Family]int64{}
	}
	r.Used[node][f] += n
}

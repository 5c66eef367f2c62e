package simulation

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

const (
	poolName  = protocol.PoolName("lan")
	claimPool = protocol.PoolName("claims")
	sixPool   = protocol.PoolName("six")
)

// poolNames are the pools: the nodes', that of most claims, and that of the second
// address of some.
var poolNames = []protocol.PoolName{poolName, claimPool, sixPool}

// poolCIDRs are the pools' subnets. Their ranges are small: what is taken by one
// is missed by another.
var poolCIDRs = map[protocol.PoolName]netip.Prefix{
	poolName: netip.MustParsePrefix("10.0.0.0/24"), claimPool: netip.MustParsePrefix("10.9.0.0/24"), sixPool: netip.MustParsePrefix("fd00::/64"),
}

// poolRange has all addresses of the nodes' pool.
var poolRange = netip.MustParsePrefix("10.0.0.0/28")

// poolRanges are the ranges that the pools begin with.
var poolRanges = map[protocol.PoolName][]v1alpha1.Range{
	poolName:  {{CIDR: "10.0.0.0/24", Start: "10.0.0.8", End: "10.0.0.15"}},
	claimPool: {{CIDR: "10.9.0.0/24", Start: "10.9.0.1", End: "10.9.0.3"}},
	sixPool:   {{CIDR: "fd00::/64", Start: "fd00::1", End: "fd00::2"}},
}

// ranges are those of poolRanges, but for the nodes' pool in a run where that is
// narrow.
func (w *world) ranges(pool protocol.PoolName) []v1alpha1.Range {
	all := slices.Clone(poolRanges[pool])
	if pool == poolName && w.kind.narrow {
		all[0].End = "10.0.0.11"
	}
	if w.perNode(pool) {
		return w.subnetRanges()
	}
	if pool == poolName {
		all = w.rackRanges(w.otherRanges(all))
	}
	return all
}

// beginningSize returns how many addresses a block has that a pool begins with.
func (w *world) beginningSize(pool protocol.PoolName) int32 {
	size := 2 - int32(w.rng.IntN(2))
	switch {
	case w.kind.edge && pool == poolName:
		size = 4
	case w.perNode(pool):
		size = subnetSize
	}
	return size
}

// addressesOf are the addresses of the ranges that a pool begins with.
func (w *world) addressesOf(pool protocol.PoolName) []netip.Addr {
	var all []netip.Addr
	for _, r := range w.ranges(pool) {
		all = append(all, addressesIn(r)...)
	}
	return all
}

// addressesIn are the addresses of a range.
func addressesIn(r v1alpha1.Range) (all []netip.Addr) {
	for a, end := netip.MustParseAddr(r.Start), netip.MustParseAddr(r.End); !end.Less(a); a = a.Next() {
		all = append(all, a)
	}
	return all
}

// editPools is what people do to pools while they are in use.
func (w *world) editPools() {
	name, _ := pickOf(w, poolNames)
	p, out := w.api.pools.read(string(name))
	if out != protocol.Done {
		w.logf("person: makes pool %s", name)
		w.createPool(w.newPool(name, 1<<w.rng.IntN(2)))
		return
	}
	if w.kind.stops && w.one(3) {
		w.stop(name, !p.stopped())
		return
	}
	switch w.rng.IntN(8) {
	case 0, 1, 2:
		w.resize(name)
	case 3:
		w.logf("person: shrinks pool %s", name)
		w.editPool(name, func(s *v1alpha1.IPPoolSpec) {
			if w.perNode(name) {
				w.takeSubnets(s)
				return
			}
			s.Ranges = w.ranges(name)
			s.Ranges[0].End = s.Ranges[0].Start
		})
	case 4:
		a, _ := pickOf(w, w.addressesOf(name))
		w.logf("person: excludes %v from pool %s", a, name)
		w.editPool(name, func(s *v1alpha1.IPPoolSpec) {
			s.Ranges = w.ranges(name)
			in := slices.IndexFunc(s.Ranges, func(r v1alpha1.Range) bool { return slices.Contains(addressesIn(r), a) })
			s.Ranges[in].Exclude = []string{a.String()}
		})
	case 5, 6:
		w.growBack(name)
	case 7:
		w.deletePool(p, w.one(3))
	}
}

// stop stops a pool, or starts it again.
func (w *world) stop(name protocol.PoolName, stop bool) {
	w.logf("person: stops pool %s: %v", name, stop)
	w.editPool(name, func(s *v1alpha1.IPPoolSpec) {
		s.Allocation = ""
		if stop {
			s.Allocation = v1alpha1.AllocationStopped
		}
	})
}

func (p simPool) stopped() bool { return p.obj.Spec.Allocation == v1alpha1.AllocationStopped }

// startAll holds that no stopped pool has nodes wait after a restore, once F has passed, which may
// be 40 minutes, and starts all pools then.
func (w *world) startAll(nodes []*simNode) {
	if !w.kind.stops {
		return
	}
	why := func() string {
		for _, p := range w.api.pools.list(simPool.stopped) {
			for _, n := range nodes {
				if r := n.disk.history.Restored; r != nil && !p.Deleting && !r.EndedFor(p.Pool.Epoch) {
					return fmt.Sprintf("since the API server went back %s waits for pool %s, which is stopped, and nothing else happens", n.machine, p.Name)
				}
			}
		}
		return ""
	}
	if !w.until(nodes, settleRounds, func() bool { return why() == "" }) {
		w.fail(I4, "%s", why())
	}
	for _, p := range w.api.pools.list(simPool.stopped) {
		w.stop(protocol.PoolName(p.Name), false)
	}
}

// deletePool deletes a pool; by force: the next pool of the name meets its leases.
func (w *world) deletePool(p simPool, byForce bool) {
	w.logf("person: deletes pool %s", p.Name)
	w.api.pools.remove(protocol.Meta{Name: p.Name})
	if byForce {
		w.logf("person: takes the finalizer off pool %s", p.Name)
		w.api.pools.finalize(p.Name)
		w.collectLeases(p)
	}
}

// remakePool makes a pool anew by force, as somebody does who finds one in a state that
// he does not want to have.
func (w *world) remakePool() {
	name, _ := pickOf(w, poolNames)
	if p, out := w.api.pools.read(string(name)); out == protocol.Done {
		w.deletePool(p, true)
	}
	w.logf("person: makes pool %s", name)
	w.createPool(w.newPool(name, 1<<w.rng.IntN(2)))
}

// resize asks for another block size.
func (w *world) resize(name protocol.PoolName) {
	if w.perNode(name) {
		return // a node's subnet says it
	}
	w.editPool(name, func(s *v1alpha1.IPPoolSpec) {
		s.BlockSize = new(3 - *s.BlockSize)
		w.logf("person: asks for blocks of %d in pool %s", *s.BlockSize, name)
	})
}

// growBack gives a pool the ranges that it began with.
func (w *world) growBack(name protocol.PoolName) {
	if p, out := w.api.pools.read(string(name)); out != protocol.Done || reflect.DeepEqual(p.obj.Spec.Ranges, w.ranges(name)) {
		return
	}
	w.editPool(name, func(s *v1alpha1.IPPoolSpec) { s.Ranges = w.ranges(name) })
}

// restorePools has every pool there, with the ranges that it began with.
func (w *world) restorePools() {
	for _, name := range poolNames {
		if p, out := w.api.pools.read(string(name)); out != protocol.Done {
			w.createPool(w.newPool(name, 1))
		} else if !p.Deleting {
			w.growBack(name)
		}
	}
}

// makeWay deletes the claims that keep a pool closed: one that is being deleted
// waits for their leases, and so does one that was made again under its name. It deletes none of a
// pool that is stopped.
func (w *world) makeWay() {
	for _, l := range w.api.leases.list(func(l protocol.Lease) bool { return len(l.Grants) > 0 }) {
		p, out := w.api.pools.read(string(l.Pool))
		if out == protocol.Done && (p.Pool.Open || p.stopped() && !p.Deleting) && p.UID == l.PoolUID && !w.strayed(l) {
			continue
		}
		for _, c := range w.api.claims.list(func(c simClaim) bool { return len(l.GrantsOf(c.UID)) > 0 }) {
			w.logf("person: deletes claim %s (%s), which keeps pool %s closed", c.Name, c.UID, l.Pool)
			w.api.claims.remove(c.Meta)
		}
	}
}

// room reports whether a claim could have its addresses.
func (w *world) room(c simClaim, granted map[netip.Addr]protocol.Grant) bool {
	for _, src := range resolutions()[c.Network].Network.Sources {
		free := func(a netip.Addr) bool {
			_, taken := granted[a]
			return !taken
		}
		if !slices.ContainsFunc(w.forClaim(c, w.addressesOf(protocol.PoolName(src.Pool))), free) {
			return false
		}
	}
	return true
}

// segment is the domain of the pools between which ranges move.
const segment = "segment"

// movedRanges are what the pools have while addresses of the nodes' pool are in that
// of the claims.
var movedRanges = map[protocol.PoolName][]v1alpha1.Range{
	poolName:  {{CIDR: "10.0.0.0/24", Start: "10.0.0.8", End: "10.0.0.9"}},
	claimPool: append(slices.Clone(poolRanges[claimPool]), v1alpha1.Range{CIDR: "10.0.0.0/24", Start: "10.0.0.10", End: "10.0.0.15"}),
}

// domain is the domain that a pool names, in a run in which ranges move.
func (w *world) domain(pool protocol.PoolName) string {
	if !w.kind.moves || movedRanges[pool] == nil {
		return ""
	}
	return segment
}

// moveRange moves addresses from one pool of a domain to another, or back: by an edit
// of each pool, in either order, of which the second may be forgotten.
func (w *world) moveRange() {
	to, _ := pickOf(w, []map[protocol.PoolName][]v1alpha1.Range{movedRanges, poolRanges})
	edits := []protocol.PoolName{poolName, claimPool}
	if w.one(2) {
		slices.Reverse(edits)
	}
	if w.one(3) {
		edits = edits[:1]
	}
	for _, name := range edits {
		if _, out := w.api.pools.read(string(name)); out == protocol.Done {
			w.logf("person: gives pool %s the ranges %v", name, to[name])
			w.editPool(name, func(s *v1alpha1.IPPoolSpec) { s.Ranges = slices.Clone(to[name]) })
		}
	}
}

// strayed reports whether a lease of the claims' pool has addresses of the nodes'.
func (w *world) strayed(l protocol.Lease) bool {
	return w.kind.moves && l.Pool == claimPool && poolCIDRs[poolName].Overlaps(l.Block)
}

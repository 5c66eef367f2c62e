package simulation

import (
	"slices"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

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
	w.count("range moved")
}

// strayed reports whether a lease of the claims' pool has addresses of the nodes'.
func (w *world) strayed(l protocol.Lease) bool {
	return w.kind.moves && l.Pool == claimPool && poolCIDRs[poolName].Overlaps(l.Block)
}

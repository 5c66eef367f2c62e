package advertise

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/controller/pools"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// endless stands for more addresses than any cluster has pods. It can be multiplied with a number
// of nodes.
const endless = 1 << 40

// A group are nodes whose pods get addresses of the same parts of a pool.
type group struct {
	nodes []node
	free  map[allocator.Family]int64 // for them
}

// grouped returns the groups of nodes. What a part has free is divided among those that it is for,
// by how many of their nodes serve.
func grouped(parts []pools.PartRoom, nodes []node) []group {
	byParts := map[string]*group{}
	for _, n := range nodes {
		key := fmt.Sprint(n.parts)
		if byParts[key] == nil {
			byParts[key] = &group{free: map[allocator.Family]int64{}}
		}
		byParts[key].nodes = append(byParts[key].nodes, n)
	}
	var all []group
	for _, key := range slices.Sorted(maps.Keys(byParts)) {
		all = append(all, *byParts[key])
	}
	for i, part := range parts {
		for f, free := range part.Free {
			divide(min(free, endless), f, slices.DeleteFunc(slices.Clone(all), func(g group) bool { return !slices.Contains(g.nodes[0].parts, i) }))
		}
	}
	return all
}

// divide gives groups their shares of what is free.
func divide(free int64, f allocator.Family, groups []group) {
	var left int64 // nodes that have no share yet
	for _, g := range groups {
		left += g.serving()
	}
	for _, g := range groups {
		share := int64(0)
		if n := g.serving(); n > 0 {
			share = (free*n + left - 1) / left
			left -= n
		}
		g.free[f] += share
		free -= share
	}
}

// serving returns on how many nodes of g pods may be scheduled.
func (g group) serving() (n int64) {
	for i := range g.nodes {
		if g.nodes[i].serves {
			n++
		}
	}
	return n
}

// left returns how many more attachments the nodes of g can have, where used is what is used on
// nodes. What pods that are bound have asked for, and have not got yet, is not among it. What
// claims have for pods that are bound nowhere is: they have to be scheduled, too.
func (g group) left(used map[protocol.NodeName]map[allocator.Family]int64, a asked) int64 {
	least := int64(math.MaxInt64)
	for f, free := range g.free {
		for i := range g.nodes {
			name := g.nodes[i].name
			here := used[protocol.NodeName(name)][f]
			free -= max(a.plain[name]-here, 0)
			free += min(a.ended[name], max(here-a.plain[name], 0))
		}
		least = min(least, free)
	}
	if len(g.free) == 0 {
		least = 0
	}
	return max(least, 0) + a.waiting
}

package pools

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// maxRanges and maxExclude are how many ranges a pool may have, and exclusions each:
// see [v1alpha1.IPPoolSpec].
const maxRanges, maxExclude = 64, 64

// A union is what definitions make of a pool together.
type union struct {
	text  poolspec.PoolText
	found []poolspec.Disagreement
	by    []networks.Network // whose ranges it has, oldest first
	left  []networks.Network // whose ranges it has not, or not all: with them it is larger than the API takes
}

// unite returns the union of definitions, which are given oldest first. now is the pool as
// it is, nil if there is none. Where the API does not take all of them, the pool grows by
// what fits, the older definitions first, and loses only ranges that nobody describes: no
// network is to lose its addresses because another one is added or edited. What it has
// come to so it stays: to unite again changes nothing.
func unite(pool string, all []networks.Network, now *v1alpha1.IPPool) (union, error) {
	whole, err := uniteAll(pool, all)
	if err != nil || fits(whole.text) {
		return whole, err
	}
	members := membersOf(pool, all)
	g := newGrower(pool, now, members)
	var in []bool
	for grown := true; grown; { // one that swallows narrower CIDRs, or fills gaps, makes room for others
		grown, in = false, nil
		for _, m := range members {
			before := g.text
			in = append(in, g.try(m))
			if !reflect.DeepEqual(before, g.text) {
				grown = true
				g.guard()
			}
		}
	}
	u := union{text: g.text}
	for i, n := range all {
		if in[i] {
			u.by = append(u.by, n)
		} else {
			u.left = append(u.left, n)
		}
	}
	u.found, err = differences(pool, g.text, u.by)
	return u, err
}

func uniteAll(pool string, all []networks.Network) (u union, err error) {
	u.by = all
	u.text, u.found, err = poolspec.Unite(membersOf(pool, all))
	return u, err
}

func membersOf(pool string, all []networks.Network) (members []poolspec.Member) {
	for _, n := range all {
		members = append(members, poolspec.MemberOf(n.String(), n.Sources, pool))
	}
	return members
}

// differences returns what definitions see differently from a pool that has their ranges, and
// that was not made of them alone.
func differences(pool string, text poolspec.PoolText, by []networks.Network) ([]poolspec.Disagreement, error) {
	if len(text.Ranges) == 0 {
		return nil, nil
	}
	_, found, err := poolspec.Unite(append([]poolspec.Member{{Name: "pool " + pool, Pool: text}}, membersOf(pool, by)...))
	return found, err
}

// A grower makes a pool's text of what fits.
type grower struct {
	pool     string
	text     poolspec.PoolText
	gateways []netip.Addr // of all members, each once, in order
	guarded  []netip.Addr // those which the text does not give, whoever describes them
}

// newGrower begins with those ranges of a pool in which some member describes something.
func newGrower(pool string, now *v1alpha1.IPPool, members []poolspec.Member) *grower {
	g := &grower{pool: pool}
	var cidrs []netip.Prefix
	for _, m := range members {
		g.gateways = append(g.gateways, m.Gateways...)
		for _, r := range m.Pool.Ranges {
			if cidr, err := netip.ParsePrefix(r.CIDR); err == nil {
				cidrs = append(cidrs, cidr)
			}
		}
	}
	slices.SortFunc(g.gateways, netip.Addr.Compare)
	g.gateways = slices.Compact(g.gateways)
	if now == nil {
		return g
	}
	var text poolspec.PoolText
	for _, r := range kube.PoolText(now).Ranges {
		cidr, err := netip.ParsePrefix(r.CIDR)
		if err != nil || !slices.ContainsFunc(cidrs, cidr.Overlaps) {
			continue
		}
		if gw, err := netip.ParseAddr(r.Gateway); err != nil || !g.names(gw) {
			r.Gateway = ""
		}
		text.Ranges = append(text.Ranges, r)
	}
	if _, err := poolspec.ParsePool(text); err == nil { // else somebody has edited it
		g.text = text
		g.guard()
	}
	return g
}

// names reports whether some member names gw as a gateway.
func (g *grower) names(gw netip.Addr) bool {
	_, ok := slices.BinarySearchFunc(g.gateways, gw, netip.Addr.Compare)
	return ok
}

// guard keeps the gateways in the text's CIDRs from pods, as far as what is then left of the
// text fits: they are routers also where the definition that names them is left out.
func (g *grower) guard() {
	var more []netip.Addr
	for _, r := range g.text.Ranges {
		cidr := netip.MustParsePrefix(r.CIDR)
		from, _ := slices.BinarySearchFunc(g.gateways, cidr.Addr(), netip.Addr.Compare)
		for _, gw := range g.gateways[from:] {
			if !cidr.Contains(gw) {
				break
			}
			if !slices.Contains(g.guarded, gw) {
				more = append(more, gw)
			}
		}
	}
	if len(more) == 0 || g.grow(more) {
		return
	}
	for _, gw := range more {
		g.grow([]netip.Addr{gw})
	}
}

// try adds a member to the text, if it fits then.
func (g *grower) try(m poolspec.Member) (ok bool) { return g.grow(nil, m) }

// grow adds members to the text, and gateways to those that are guarded, if it fits then.
func (g *grower) grow(gateways []netip.Addr, members ...poolspec.Member) (ok bool) {
	all := members
	if len(g.text.Ranges) > 0 {
		all = append([]poolspec.Member{{Name: g.pool, Pool: g.text}}, members...)
	}
	if len(all) == 0 {
		return false
	}
	guarded := slices.Concat(g.guarded, gateways)
	all[0].Gateways = slices.Concat(all[0].Gateways, guarded)
	text, _, err := poolspec.Unite(all)
	if err != nil || !fits(text) {
		return false
	}
	g.text, g.guarded = text, guarded
	return true
}

// fits reports whether the API takes a pool of this text.
func fits(t poolspec.PoolText) bool {
	return len(t.Ranges) <= maxRanges && !slices.ContainsFunc(t.Ranges, func(r poolspec.RangeText) bool { return len(r.Exclude) > maxExclude })
}

// noRoom says that a definition is left out of a pool, and what to do.
func noRoom(n networks.Network, pool string) string {
	return fmt.Sprintf("%v: pool %s has no room for all of it: there would be more than %d CIDRs, or one with more than %d gaps; "+
		"give the definitions of each segment a network_name of its own, or write the pool yourself", n, pool, maxRanges, maxExclude)
}

// disagreements returns, in sentences, how the definitions of an implicit pool differ, and
// which of them it has no room for, as the pool was written.
func disagreements(pool *v1alpha1.IPPool, all []networks.Network) (sentences []string) {
	u, err := uniteAll(pool.Name, all)
	if err == nil && !fits(u.text) {
		written := strings.Split(pool.Annotations[v1alpha1.AnnotationDefinitions], ",")
		in := slices.DeleteFunc(slices.Clone(all), func(n networks.Network) bool {
			left := !slices.Contains(written, n.String()) && !slices.Contains(written, cut)
			if left {
				sentences = append(sentences, noRoom(n, pool.Name))
			}
			return left
		})
		u.found, err = differences(pool.Name, kube.PoolText(pool), in)
	}
	if err != nil {
		return sentences // it is said where the pool is written
	}
	for _, d := range u.found {
		sentences = append(sentences, d.String())
	}
	return sentences
}

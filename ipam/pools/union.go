package pools

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/cluster"
	"github.com/tenure-ipam/tenure/ipam/networks"
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
	var members []poolspec.Member
	for _, n := range all {
		members = append(members, poolspec.MemberOf(n.String(), n.Sources, pool))
	}
	g := grower{pool: pool, text: stillDescribed(now, members)}
	var in []bool
	for before := []poolspec.RangeText(nil); in == nil || !reflect.DeepEqual(before, g.text.Ranges); {
		before, in = g.text.Ranges, nil
		for _, m := range members {
			g.guard(m.Gateways)
		}
		for _, m := range members { // one that swallows narrower CIDRs, or fills gaps, makes room for others
			in = append(in, g.try(g.gateways, m))
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
	with, err := uniteAll(pool, u.by)
	u.found = with.found
	return u, err
}

func uniteAll(pool string, all []networks.Network) (u union, err error) {
	var members []poolspec.Member
	for _, n := range all {
		members = append(members, poolspec.MemberOf(n.String(), n.Sources, pool))
	}
	u.by = all
	u.text, u.found, err = poolspec.Unite(members)
	return u, err
}

// stillDescribed returns the ranges of a pool in which some member describes something.
func stillDescribed(p *v1alpha1.IPPool, members []poolspec.Member) (text poolspec.PoolText) {
	if p == nil {
		return text
	}
	var cidrs []netip.Prefix
	gateways := map[string]bool{}
	for _, m := range members {
		for _, r := range m.Pool.Ranges {
			if cidr, err := netip.ParsePrefix(r.CIDR); err == nil {
				cidrs = append(cidrs, cidr)
			}
		}
		for _, gw := range m.Gateways {
			gateways[gw.String()] = true
		}
	}
	for _, r := range cluster.PoolText(p).Ranges {
		cidr, err := netip.ParsePrefix(r.CIDR)
		if err != nil || !slices.ContainsFunc(cidrs, cidr.Overlaps) {
			continue
		}
		if !gateways[r.Gateway] {
			r.Gateway = ""
		}
		text.Ranges = append(text.Ranges, r)
	}
	if _, err := poolspec.ParsePool(text); err != nil { // somebody has edited it
		return poolspec.PoolText{}
	}
	return text
}

// A grower makes a pool's text of what fits.
type grower struct {
	pool     string
	text     poolspec.PoolText
	gateways []netip.Addr // which the text does not give, whoever describes them
}

// guard keeps gateways from pods, if what is then left of the text fits: they are routers
// also where the definition that names them is left out.
func (g *grower) guard(gateways []netip.Addr) {
	with := slices.Concat(g.gateways, gateways)
	if len(g.text.Ranges) == 0 || g.try(with) {
		g.gateways = with
	}
}

// try adds members to the text, if it fits then.
func (g *grower) try(gateways []netip.Addr, more ...poolspec.Member) (ok bool) {
	var all []poolspec.Member
	if len(g.text.Ranges) > 0 {
		all = []poolspec.Member{{Name: g.pool, Pool: g.text}}
	}
	all = append(all, more...)
	all[0].Gateways = slices.Concat(all[0].Gateways, gateways)
	text, _, err := poolspec.Unite(all)
	if err != nil || !fits(text) {
		return false
	}
	g.text = text
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
		written := strings.Split(pool.Annotations[AnnotationDefinitions], ",")
		in := slices.DeleteFunc(slices.Clone(all), func(n networks.Network) bool {
			left := !slices.Contains(written, n.String()) && !slices.Contains(written, cut)
			if left {
				sentences = append(sentences, noRoom(n, pool.Name))
			}
			return left
		})
		u, err = uniteAll(pool.Name, in)
	}
	if err != nil {
		return sentences // it is said where the pool is written
	}
	for _, d := range u.found {
		sentences = append(sentences, d.String())
	}
	return sentences
}

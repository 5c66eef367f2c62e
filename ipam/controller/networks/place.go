package networks

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"

	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// Unnamed reports whether n describes ranges and does not say which pool has them.
func (n Network) Unnamed() bool {
	return slices.ContainsFunc(n.Sources, func(s poolspec.Source) bool { return s.Unnamed })
}

// in returns n with its ranges in pool.
func (n Network) in(pool string) Network {
	n.Sources = poolspec.InPool(n.Sources, pool)
	return n
}

// Place returns n with the pool of [poolspec.DefaultDomain] that has its ranges; of pools the
// oldest come first. Where none has them yet, it is the one that the controller would make for n
// alone. Where no pool can have them, n's Fault says why.
func (n Network) Place(pools []poolspec.DomainPool) Network {
	if !n.Unnamed() {
		return n
	}
	p, ok, err := poolspec.Place(poolspec.UnnamedCIDRs(n.Sources), pools)
	switch {
	case err != nil:
		n.Sources, n.Fault = nil, oneLine(err)
	case ok:
		n = n.in(p.Name)
	}
	return n
}

// ByNamespace reports whether labels of the namespace in which n is used name pools of n.
func (n Network) ByNamespace() bool { return poolspec.ByNamespace(n.Sources) }

// OfNamespace returns n as it is used in a namespace with these labels. Where they do not name its
// pools, n's Fault says why.
func (n Network) OfNamespace(namespace string, labels map[string]string) Network {
	var err error
	if n.Sources, err = poolspec.OfNamespace(n.Sources, namespace, labels); err != nil {
		n.Sources, n.Fault = nil, oneLine(err)
	}
	return n
}

// An Assignment says of each definition without a name which pool has its ranges.
type Assignment struct {
	// Of are the definitions by their pool, which is there or is to be made, the oldest first. They
	// name it as the pool of their sources.
	Of map[string][]Network
	// Refused are those that no one pool can have; their Fault says why.
	Refused []Network
}

// Assign gives each of the definitions a pool: all are [Network.Unnamed], the oldest first. Those
// that overlap a pool are of it. Of those left, an address that some pool still has leases of, by
// draining, counts as that pool's; and those that overlap each other get one pool, named after the
// first range of the oldest. Taken says that the name of a pool is in use.
func Assign(all []Network, pools, draining []poolspec.DomainPool, taken func(name string) bool) Assignment {
	a := Assignment{Of: map[string][]Network{}}
	var groups []*group
	for _, n := range all {
		cidrs := poolspec.UnnamedCIDRs(n.Sources)
		p, ok, err := poolspec.Place(cidrs, pools)
		if err == nil && !ok {
			p, ok, err = poolspec.Place(cidrs, draining)
		}
		switch {
		case err != nil:
			n.Fault = oneLine(err)
			a.Refused = append(a.Refused, n)
		case ok:
			a.Of[p.Name] = append(a.Of[p.Name], n.in(p.Name))
		default:
			groups = join(groups, n, cidrs)
		}
	}
	for _, g := range groups {
		name := g.name(func(name string) bool { return taken(name) || len(a.Of[name]) > 0 })
		slices.SortFunc(g.of, Network.Older)
		for _, n := range g.of {
			a.Of[name] = append(a.Of[name], n.in(name))
		}
	}
	return a
}

// group is definitions that overlap, of which no pool has anything.
type group struct {
	of    []Network // the first is the oldest
	cidrs []netip.Prefix
}

// join adds a definition to the groups: it makes one of those that it overlaps.
func join(groups []*group, n Network, cidrs []netip.Prefix) []*group {
	var into *group
	groups = slices.DeleteFunc(groups, func(g *group) bool {
		if !slices.ContainsFunc(g.cidrs, func(c netip.Prefix) bool { return slices.ContainsFunc(cidrs, c.Overlaps) }) {
			return false
		}
		if into == nil {
			into = g
			return false
		}
		into.of, into.cidrs = append(into.of, g.of...), append(into.cidrs, g.cidrs...)
		return true
	})
	if into == nil {
		return append(groups, &group{[]Network{n}, cidrs})
	}
	into.of, into.cidrs = append(into.of, n), append(into.cidrs, cidrs...)
	return groups
}

// name returns a name for the pool of g that is not taken.
func (g *group) name(taken func(string) bool) string {
	i := slices.IndexFunc(g.of[0].Sources, func(s poolspec.Source) bool { return s.Unnamed })
	base := g.of[0].Sources[i].Pool
	for name, k := base, 2; ; name, k = fmt.Sprintf("%s-%d", base, k), k+1 {
		if !taken(name) {
			return name
		}
	}
}

// Unnamed returns the definitions whose ranges have no name, oldest first.
func (c *Catalog) Unnamed(ctx context.Context) ([]Network, error) {
	all, err := c.find(ctx, byPool, poolspec.DefaultDomain)
	all = slices.DeleteFunc(all, func(n Network) bool { return !n.Unnamed() })
	slices.SortFunc(all, Network.Older)
	return all, err
}

// Placed reads a definition that is used in a namespace: where it describes ranges without a name,
// with the pool that has them, and where labels of the namespace name pools, with these.
func (c *Catalog) Placed(ctx context.Context, o *nad.NetworkAttachmentDefinition, namespace string) (Network, error) {
	placed, err := c.place(ctx, []Network{c.Of(o)})
	if err != nil {
		return placed[0], err
	}
	return c.ofNamespace(ctx, placed[0], namespace)
}

// place finds the pools of those of all that do not name theirs. It changes all.
func (c *Catalog) place(ctx context.Context, all []Network) ([]Network, error) {
	if !slices.ContainsFunc(all, Network.Unnamed) {
		return all, nil
	}
	pools, err := c.DomainPools(ctx)
	for i := range all {
		all[i] = all[i].Place(pools)
	}
	return all, err
}

// DomainPools returns the pools of [poolspec.DefaultDomain], the oldest first.
func (c *Catalog) DomainPools(ctx context.Context) ([]poolspec.DomainPool, error) {
	return c.domain(ctx)
}

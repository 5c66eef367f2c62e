package moving

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/state"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// poolSeen is what import and export have read of a pool.
type poolSeen struct {
	ranges []netip.Prefix
	// usable are the addresses that it gives; nil are all of ranges.
	usable    *netipx.IPSet
	implicit  bool             // the controller makes it of what definitions describe
	shareWith []string         // definitions of which a person says that they share nothing
	selective bool             // some ranges are for some nodes alone
	perNode   bool             // each node has a subnet for itself
	domain    string           // as the spec names it
	waits     bool             // see awaited
	kept      []v1alpha1.Grant // for pods of other IPAMs
	devices   []string         // that have addresses of it by ResourceClaims
	byDefault []string         // pods whose default network has an address of it
}

// held returns, by pool, which addresses are kept for pods of other IPAMs, which devices of
// ResourceClaims have, and which pods have on their default network.
func (m *moving) held(ctx context.Context, seen foreignState) (map[string]poolSeen, error) {
	leases, err := session.ListAll(ctx, m.Client, &v1alpha1.IPLeaseList{}, session.LeasesIn)
	if err != nil {
		return nil, err
	}
	pools := map[string]poolSeen{}
	for i := range leases {
		p := pools[leases[i].Spec.Pool]
		for _, g := range leases[i].Spec.Grants {
			if g.To.Kind == v1alpha1.GranteePod {
				p.kept = append(p.kept, g)
			}
		}
		for _, text := range leases[i].Status.Allocations {
			switch addr, u, ok := state.ParseAllocation(text); {
			case !ok:
			case u.ResourceClaim != "":
				p.devices = append(p.devices, deviceText(addr, u))
			case seen.isDefault(u.Namespace+"/"+u.Pod, addr):
				p.byDefault = append(p.byDefault, u.Namespace+"/"+u.Pod)
			}
		}
		pools[leases[i].Spec.Pool] = p
	}
	return pools, nil
}

// domainOf returns the domain of a pool that a definition names or gets.
func (f foreignState) domainOf(d foreign.Definition, pool string) string {
	if p, there := f.pools[pool]; d.Unnamed {
		return poolspec.DefaultDomain
	} else if there {
		return cmp.Or(p.domain, poolspec.DefaultDomain)
	}
	return pool // as the controller makes it
}

// misnamed says for which pools the annotation tenure.dev/domain of a definition names another
// domain than theirs.
func (f foreignState) misnamed(d foreign.Definition) (all []string) {
	for _, pool := range d.PoolsThen {
		if domain := f.domainOf(d, pool); d.Domain != "" && d.Domain != domain {
			all = append(all, fmt.Sprintf("definition %s has the annotation tenure.dev/domain=%s, and its pool %s is of domain %s: remove the annotation if its network is the pool's; "+
				"else make an IPPool with the spec.domain %s, and write the definition for Tenure by hand, with that pool", d, d.Domain, pool, domain, d.Domain))
		}
	}
	return all
}

// twoPools says which definitions of a segment would get another pool than definitions beside them,
// that gives the same addresses. Neither pool would know what pods have by the other.
func (f foreignState) twoPools(group []foreign.Definition, from string) (all []string) {
	beside := slices.Clone(group)
	for _, o := range f.definitions {
		if o.IPAM == foreign.Type && !slices.ContainsFunc(group, func(d foreign.Definition) bool { return d.String() == o.String() }) {
			beside = append(beside, o)
		}
	}
	gives := f.gives(beside)
	for _, d := range group {
		if d.IPAM != from {
			continue
		}
		said := map[string]bool{}
		for i, o := range beside {
			if o.IPAM != foreign.Type && (o.IPAM != from || !f.comesFirst(o, d)) || d.Unnamed && o.Unnamed {
				continue // those without a name share the pool of their domain
			}
			for _, theirs := range o.PoolsThen {
				for _, own := range d.PoolsThen {
					if own == theirs || said[theirs] || !slices.ContainsFunc(gives[own].Ranges(), gives[theirs].OverlapsRange) {
						continue
					}
					if f.written(own) == f.written(theirs) {
						if i >= len(group) || apart(d, o) || f.ofTwoDomains(d, own, o, theirs) {
							continue
						}
					} else if slices.Contains(f.pools[own].shareWith, theirs) || slices.Contains(f.pools[theirs].shareWith, own) {
						continue // else the second one is not opened
					}
					said[theirs] = true
					all = append(all, f.sharePool(d, own, o, theirs))
				}
			}
		}
	}
	return all
}

// sharePool says how a definition comes to the pool of another one.
func (f foreignState) sharePool(d foreign.Definition, own string, o foreign.Definition, theirs string) string {
	text := fmt.Sprintf("definition %s would get pool %s, and pool %s, which %s has, gives the same addresses: write its ipam section by hand as {\"type\": \"tenure\", \"pool\": %q}", d, own, theirs, o, theirs)
	switch {
	case f.written(theirs) && !f.written(own):
		return fmt.Sprintf("%s; or, if the networks are two, name pool %s in spec.shareWith of pool %s", text, own, theirs)
	case f.written(own) && !f.written(theirs):
		return fmt.Sprintf("%s; or, if the networks are two, name pool %s in spec.shareWith of pool %s", text, theirs, own)
	}
	if domain := f.domainOf(d, own); domain != f.domainOf(o, theirs) {
		return fmt.Sprintf("%s; or, if it is of another segment, set its annotation tenure.dev/domain=%s", text, domain)
	}
	return text + ", or part the ranges"
}

// written reports whether a person has written a pool.
func (f foreignState) written(pool string) bool {
	p, there := f.pools[pool]
	return there && !p.implicit
}

// comesFirst reports whether, of two definitions to be switched, d goes to the pool of o.
func (f foreignState) comesFirst(o, d foreign.Definition) bool {
	has := func(d foreign.Definition) int {
		if slices.ContainsFunc(d.PoolsThen, func(pool string) bool { _, there := f.pools[pool]; return there }) {
			return 0
		}
		return 1
	}
	return cmp.Or(has(o)-has(d), cmp.Compare(o.String(), d.String())) < 0
}

// ofTwoDomains reports whether the pools of two definitions are of two domains, and the annotation
// of one says so.
func (f foreignState) ofTwoDomains(a foreign.Definition, poolOfA string, b foreign.Definition, poolOfB string) bool {
	x, y := f.domainOf(a, poolOfA), f.domainOf(b, poolOfB)
	return x != y && (a.Domain == x || b.Domain == y)
}

// gives returns, by pool, the addresses that the pools of a group give once it is switched.
func (f foreignState) gives(group []foreign.Definition) map[string]*netipx.IPSet {
	all := map[string]*netipx.IPSetBuilder{}
	for _, d := range group {
		for _, pool := range d.PoolsThen {
			p, there := f.pools[pool]
			if all[pool] == nil {
				all[pool] = &netipx.IPSetBuilder{}
				if p.usable != nil {
					all[pool].AddSet(p.usable)
				} else {
					addPrefixes(all[pool], p.ranges)
				}
			}
			switch {
			case there && !p.implicit: // a person says what it has
			case d.Takes != nil:
				all[pool].AddSet(d.Takes)
			case !there:
				addPrefixes(all[pool], d.CIDRs)
			}
		}
	}
	sets := map[string]*netipx.IPSet{}
	for pool, b := range all {
		sets[pool], _ = b.IPSet() // only valid ranges were added
	}
	return sets
}

func addPrefixes(to *netipx.IPSetBuilder, all []netip.Prefix) {
	for _, p := range all {
		to.AddPrefix(p)
	}
}

// shares reports whether all pools of a segment name a definition of another IPAM in
// spec.shareWith: by a person's word it gives none of their addresses.
func (f foreignState) shares(d foreign.Definition, group []foreign.Definition, from string) bool {
	some := false
	for _, o := range group {
		if o.IPAM != from && o.IPAM != foreign.Type {
			continue
		}
		for _, pool := range o.PoolsThen {
			if !slices.Contains(f.pools[pool].shareWith, d.String()) {
				return false
			}
			some = true
		}
	}
	return some
}

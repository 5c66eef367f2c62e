package poolspec

import (
	"fmt"
	"net/netip"
	"slices"
)

// A DomainPool is a pool of [DefaultDomain], and its CIDRs.
type DomainPool struct {
	Name  string
	CIDRs []netip.Prefix
}

// InDefaultDomain reports whether a pool of this name and domain is one of [DefaultDomain]. That
// which earlier versions have made names no domain.
func InDefaultDomain(name, domain string) bool {
	return domain == DefaultDomain || domain == "" && name == DefaultDomain
}

// Place returns which of pools a configuration of [DefaultDomain] with these CIDRs belongs to: the
// one whose CIDRs overlap them. So all configurations that overlap share one pool. pools has the
// oldest first. ok is false if there is no such pool yet. CIDRs that overlap several pools are an
// error, since no one pool can have them.
//
// A pool that overlaps an older one is not opened beside it, and so is not looked at beside it.
func Place(cidrs []netip.Prefix, pools []DomainPool) (DomainPool, bool, error) {
	var found []DomainPool
	for _, p := range pools {
		if p.Touches(cidrs) && !slices.ContainsFunc(found, func(older DomainPool) bool { return older.Touches(p.CIDRs) }) {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 0:
		return DomainPool{}, false, nil
	case 1:
		return found[0], true, nil
	}
	return DomainPool{}, false, fmt.Errorf("ranges %v overlap those of pools %s and %s, which are apart: no address of them is given; "+
		"part the ranges, or give the definitions of all of them one network_name", cidrs, found[0].Name, found[1].Name)
}

// Lacks returns the first of cidrs that p has not as a whole.
func (p DomainPool) Lacks(cidrs []netip.Prefix) (netip.Prefix, bool) {
	for _, c := range cidrs {
		if !slices.ContainsFunc(p.CIDRs, func(has netip.Prefix) bool { return has.Bits() <= c.Bits() && has.Contains(c.Addr()) }) {
			return c, true
		}
	}
	return netip.Prefix{}, false
}

// Touches reports whether one of cidrs overlaps one of p.
func (p DomainPool) Touches(cidrs []netip.Prefix) bool {
	return slices.ContainsFunc(p.CIDRs, func(x netip.Prefix) bool { return slices.ContainsFunc(cidrs, x.Overlaps) })
}

// UnnamedCIDRs returns the CIDRs of those sources whose pool is to be found by [Place], each once.
func UnnamedCIDRs(sources []Source) (cidrs []netip.Prefix) {
	for _, s := range sources {
		for _, r := range s.Ranges {
			if s.Unnamed && !slices.Contains(cidrs, r.Prefix) {
				cidrs = append(cidrs, r.Prefix)
			}
		}
	}
	return cidrs
}

// InPool returns sources with pool as the pool of those that are unnamed.
func InPool(sources []Source, pool string) []Source {
	placed := slices.Clone(sources)
	for i := range placed {
		if placed[i].Unnamed {
			placed[i].Pool = pool
		}
	}
	return placed
}

package foreign

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// others are the pools of a cluster.
type others struct {
	byName  map[protocol.PoolName]*Pool
	unnamed []*Pool
}

// Among lets each of the pools of a cluster know of the others: definitions of these may be of its
// segment.
func Among(pools []*Pool) {
	all := &others{byName: map[protocol.PoolName]*Pool{}}
	for _, p := range pools {
		p.among, all.byName[p.Name] = all, p
		if p.Unnamed {
			all.unnamed = append(all.unnamed, p)
		}
	}
}

// apart reports whether two pools are known to be of two segments: people have written both, and
// have named two domains. The domain of a pool that the controller makes says nothing: the word
// that makes a definition Tenure's does not move its network.
func (p Pool) apart(o *Pool) bool {
	return !p.Implicit && !o.Implicit && p.domain() != o.domain()
}

// domain returns the pool's domain.
func (p Pool) domain() string { return cmp.Or(p.Domain, poolspec.DefaultDomain) }

// overlaps reports whether an address of p's ranges is in one of some CIDRs.
func (p Pool) overlaps(cidrs []netip.Prefix) bool {
	return slices.ContainsFunc(cidrs, func(c netip.Prefix) bool {
		return slices.ContainsFunc(p.Whole.Ranges(), func(r allocator.Range) bool {
			return netipx.IPRangeFrom(r.Start, r.End).Overlaps(netipx.RangeOfPrefix(c))
		})
	})
}

// shares reports whether p and another pool can give one address.
func (p Pool) shares(o *Pool) bool {
	return slices.ContainsFunc(o.Whole.Ranges(), func(r allocator.Range) bool { return p.overlaps([]netip.Prefix{r.Prefix}) }) &&
		p.Whole.Usable().Overlaps(o.Whole.Usable())
}

// poolsOf yields the pools that a definition of Tenure's is of, as far as they are there.
func (p Pool) poolsOf(d Definition) iter.Seq[*Pool] {
	return func(yield func(*Pool) bool) {
		switch {
		case p.among == nil:
		case d.Unnamed:
			for _, o := range p.among.unnamed {
				if o.overlaps(d.CIDRs) && !yield(o) {
					return
				}
			}
		default:
			for _, name := range d.Pools {
				if o := p.among.byName[protocol.PoolName(name)]; o != nil && !yield(o) {
					return
				}
			}
		}
	}
}

// mayHave reports whether d, which is of another pool, may be of p's segment all the same: the
// other pool gives addresses of p, and is not known to be of another segment. One that the
// controller has yet to make gives d's ranges.
func (p Pool) mayHave(d Definition) bool {
	described := len(d.CIDRs) > 0
	if described && !p.overlaps(d.CIDRs) {
		return false
	}
	there := false
	for o := range p.poolsOf(d) {
		if !p.apart(o) && (described || p.shares(o)) {
			return true
		}
		there = true
	}
	return described && !there
}

// isBeside reports whether a definition of p's segment is Tenure's, and of another pool.
func (p Pool) isBeside(d Definition) bool {
	return d.IPAM == Type && d.Fault == "" && len(d.Pools) > 0 && !d.ByNamespace && !p.owns(d)
}

// inOtherDomain reports whether a definition is beside p's own, and all its pools are of other
// domains.
func (p Pool) inOtherDomain(d Definition) bool {
	if !p.isBeside(d) {
		return false
	}
	for o := range p.poolsOf(d) {
		if o.domain() == p.domain() {
			return false
		}
	}
	return p.besideBy(d).Domain != p.domain()
}

// poolsBeside returns the other pools by which Tenure may have given what a claim is of.
func (w *weighing) poolsBeside(c claim) (pools []*Pool) {
	if len(w.beside) == 0 {
		return nil
	}
	for _, name := range c.pod.Selected {
		if w.beside[name] && w.isOn(c, w.known[name].Network) {
			pools = slices.AppendSeq(pools, w.poolsOf(*w.known[name]))
		}
	}
	return pools
}

// Beside is a definition of Tenure's with another pool, which gives the same addresses.
type Beside struct {
	Definition string
	// Pool is the other pool, and Domain that pool's domain.
	Pool, Domain string
	// Implicit says that the controller makes the other pool of definitions, and Keeps that
	// something is kept for the definition's pods.
	Implicit, Keeps bool
}

// String says of what it is, for people.
func (b Beside) String() string { return fmt.Sprintf("%s (pool %s)", b.Definition, b.Pool) }

// doubled returns the definitions beside the pool's own whose pools give addresses of it, and for
// whose pods something of the pool is kept: they have it by another IPAM, and their networks are
// the pool's, or may be. If there are no such pods, it returns the first definition alone.
func (w *weighing) doubled() (all []Beside) {
	found := map[string]bool{}
	for _, to := range w.Kept {
		pod := w.pods[to.UID.OfPod()]
		if len(w.beside) == 0 || pod == nil || slices.ContainsFunc(pod.Selected, func(d string) bool { return w.mine[d] && !w.beside[d] }) {
			continue
		}
		for _, name := range pod.Selected {
			found[name] = w.beside[name]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.beside)) {
		if found[name] && w.giveSame(*w.known[name]) {
			b := w.Pool.besideBy(*w.known[name])
			b.Keeps = true
			all = append(all, b)
		}
	}
	if len(all) > 0 {
		return all
	}
	for _, name := range slices.Sorted(maps.Keys(w.beside)) {
		if w.giveSame(*w.known[name]) {
			return []Beside{w.Pool.besideBy(*w.known[name])}
		}
	}
	return nil
}

// giveSame reports whether a pool of a definition beside p's own, which may have yet to be made,
// gives addresses of p.
func (p Pool) giveSame(d Definition) bool {
	there := false
	for o := range p.poolsOf(d) {
		if p.shares(o) {
			return true
		}
		there = true
	}
	return !there
}

// besideBy returns what there is to say of a definition beside p's own.
func (p Pool) besideBy(d Definition) Beside {
	// As the controller makes it.
	b := Beside{Definition: d.String(), Pool: d.Pools[0], Domain: d.Pools[0], Implicit: true}
	if d.Unnamed {
		b.Domain = poolspec.DefaultDomain
	}
	if pools := slices.Collect(p.poolsOf(d)); len(pools) > 0 {
		b.Pool, b.Domain, b.Implicit = string(pools[0].Name), pools[0].domain(), pools[0].Implicit
	}
	return b
}

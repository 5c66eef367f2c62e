package foreign

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// others are the pools of a cluster.
type others struct {
	byName  map[protocol.PoolName]*Pool
	unnamed []*Pool
	// of is a definition of each pool that has one.
	of map[*Pool]string
}

// Among lets each of the pools of a cluster know of the others, and of their definitions: these may
// be of its segment, and others may give its addresses. The pools may have no shape.
func Among(pools []*Pool, definitions []Definition) {
	all := &others{byName: map[protocol.PoolName]*Pool{}, of: map[*Pool]string{}}
	for _, p := range pools {
		p.among, all.byName[p.Name], p.meets = all, p, nil
		if p.Unnamed && p.Whole != nil {
			all.unnamed = append(all.unnamed, p)
		}
	}
	for _, d := range definitions {
		if d.IPAM == Type && d.Fault == "" && len(pools) > 0 {
			for p := range pools[0].poolsOf(d) {
				all.of[p] = max(all.of[p], d.String())
			}
		}
	}
	meet(pools)
}

// meet notes which pools have a range in common, and may not be open together.
func meet(pools []*Pool) {
	noted := map[[2]*Pool]bool{}
	type part struct {
		allocator.Range
		of *Pool
	}
	var all []part
	for _, p := range pools {
		if p.Whole != nil {
			for _, r := range p.Whole.Ranges() {
				all = append(all, part{r, p})
			}
		}
	}
	slices.SortFunc(all, func(x, y part) int { return x.Start.Compare(y.Start) })
	for i, x := range all {
		for _, y := range all[i+1:] {
			if x.End.Less(y.Start) {
				break
			}
			if x.of == y.of || noted[[2]*Pool{x.of, y.of}] || x.of.apart(y.of) {
				continue
			}
			noted[[2]*Pool{x.of, y.of}], noted[[2]*Pool{y.of, x.of}] = true, true
			x.of.meets, y.of.meets = append(x.of.meets, y.of), append(y.of.meets, x.of)
		}
	}
}

// told reports whether people have told two pools apart: they have written both, with two domains;
// or the owner of one says by its spec.shareWith that it shares nothing with the other. The names
// of pools that the controller makes say nothing: the word that makes a definition Tenure's does
// not move its network.
func (p Pool) told(o *Pool) bool {
	return slices.Contains(p.ShareWith, string(o.Name)) || slices.Contains(o.ShareWith, string(p.Name)) ||
		!p.Implicit && !o.Implicit && p.domain() != o.domain()
}

// apart reports whether two pools may be open together: people have told them apart. Or definitions
// describe both under two names, as of two networks of their own IPAM: what one of these gives
// another one does not know either.
func (p Pool) apart(o *Pool) bool {
	return p.told(o) || p.Implicit && o.Implicit && p.domain() != o.domain()
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

// shares reports whether p and another pool can give one address. What a pool excludes is not its
// own: two pools may part a CIDR by excludes.
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
				if o := p.among.byName[protocol.PoolName(name)]; o != nil && o.Whole != nil && !yield(o) {
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
		if !p.told(o) && (described || p.shares(o)) {
			return true
		}
		there = true
	}
	if !described || there {
		return false
	}
	made := Pool{Name: protocol.PoolName(d.Pools[0]), Implicit: true} // as the controller makes it
	if !d.Unnamed {
		made.Domain = d.Pools[0]
	}
	return !p.told(&made)
}

// A Beside is another pool that gives addresses of a pool, or still keeps some, where nobody has
// said that the two are of two segments.
type Beside struct {
	Pool string
	// Implicit says that the controller makes it, and Definition is one of its definitions, "" if
	// it has none.
	Implicit   bool
	Definition string
	// Ends says that it goes with its last lease: it is deleted, or no definition has it any more.
	Ends bool
	// First says that it gives the addresses, or has given them, and that the pool gives none of
	// these in addition before that has ended. Else the pool goes first.
	First bool
	// Lease is one of those by which it still keeps addresses that its ranges do not have any more,
	// "" where its ranges have them.
	Lease string
	// Moved is a pod that has an address of that lease by a definition of the pool's own, which was
	// of the other pool before, with its node and the definition; "" if none has.
	Moved string
}

// Besides returns the other pools that give addresses of p, and are not known to be of another
// segment. Those of p's own domain are not among them where that is named: the oldest is open.
func (p *Pool) Besides() (all []Beside) {
	for _, o := range p.meets {
		if !p.sibling(o) && p.shares(o) {
			all = append(all, p.beside(o))
		}
	}
	slices.SortFunc(all, func(x, y Beside) int { return strings.Compare(x.Pool, y.Pool) })
	return all
}

// sibling reports whether both pools name one domain.
func (p *Pool) sibling(o *Pool) bool { return p.Named != "" && p.Named == o.Named }

// beside returns what there is to say of another pool.
func (p *Pool) beside(o *Pool) Beside {
	return Beside{
		Pool: string(o.Name), Implicit: o.Implicit, Definition: p.among.of[o], Ends: p.ends(o),
		First: o.before(p) || !p.Begins && !o.Fresh,
	}
}

// ends reports whether another pool goes with its last lease.
func (p *Pool) ends(o *Pool) bool { return o.Deleted || o.Implicit && p.among.of[o] == "" }

// before reports whether p's addresses are p's, and not those of o, which gives them as well: p is
// open, or about to be; or it is closed for a while, or has been open, and o is not, or has not; or
// it is older.
func (p *Pool) before(o *Pool) bool {
	switch {
	case p.Opens:
		return true
	case o.Opens:
		return false
	case p.Begins != o.Begins:
		return o.Begins
	case p.Fresh != o.Fresh:
		return o.Fresh
	}
	return p.older(o)
}

// older reports whether p was made before o.
func (p *Pool) older(o *Pool) bool {
	return cmp.Or(p.Made.Compare(o.Made), strings.Compare(string(p.Name), string(o.Name))) < 0
}

// Taken returns the addresses of p that others give, and p does not. What both withhold is that of
// the older one.
func (p *Pool) Taken() *netipx.IPSet {
	var taken netipx.IPSetBuilder
	for _, b := range p.Besides() {
		if o := p.among.byName[protocol.PoolName(b.Pool)]; b.First {
			var gives netipx.IPSetBuilder
			gives.AddSet(o.Whole.Usable())
			if p.Withheld != nil && o.Withheld != nil && !o.Releases && p.older(o) {
				gives.RemoveSet(o.Withheld)
			}
			set, _ := gives.IPSet() // of sets alone
			taken.AddSet(set)
		}
	}
	taken.Intersect(p.Whole.Usable())
	set, _ := taken.IPSet() // of sets alone
	return set
}

// lingering returns the pools whose leases still keep addresses that p is about to give, and that
// these pools do not give any more: by an edit they have lost them, or exclude what somebody has,
// or their specs are faulty. A definition may have moved from the other pool to p: a pod has such
// an address by a definition of p's, also where people have told the two apart; or the controller
// has made both, and no definition has the other one any more. What p has had is not looked at.
func (w *weighing) lingering() (all []Beside) {
	var b netipx.IPSetBuilder
	switch {
	case w.among == nil:
		return nil
	case w.Begins:
		b.AddSet(w.Whole.Usable())
	case w.Withheld != nil:
		b.AddSet(w.Withheld)
		b.RemoveSet(w.Taken())
	}
	about, _ := b.IPSet() // of sets alone
	if len(about.Ranges()) == 0 {
		return nil
	}
	moved, gave := w.moved(about), w.gaveOf(about)
	for name, o := range w.among.byName {
		if name == w.Name || w.sibling(o) {
			continue
		}
		told, apart := w.told(o), w.apart(o)
		keeps := func(l protocol.Lease) bool { return w.stillHas(o, l, about) }
		if apart {
			keeps = func(l protocol.Lease) bool { return !told && w.ends(o) || firstOf(moved, name, l.Block) != "" }
		}
		var found protocol.Lease
		for _, l := range w.Leases[name] {
			if !about.OverlapsPrefix(l.Block) {
				continue
			}
			w.ask(l.Holder.Node) // what was published may be old
			if l.Holder.Node == "" && apart {
				for node := range w.Agents { // any may have given it to a pod, or a device
					w.ask(node)
				}
			}
			if !found.Block.IsValid() && keeps(l) {
				found = l
			}
		}
		b := w.beside(o)
		b.First = true
		switch {
		case found.Block.IsValid():
			b.Lease = fmt.Sprintf("%s of %v on %v", found.Name, found.Holder, found.Block)
		case apart && firstOf(moved, name, netip.Prefix{}) != "", !apart && gave[o]:
			b.Lease = "not read yet" // it was made since the leases were read
		default:
			continue
		}
		if apart {
			b.Moved = firstOf(moved, name, found.Block)
		}
		all = append(all, b)
	}
	slices.SortFunc(all, func(x, y Beside) int { return strings.Compare(x.Pool, y.Pool) })
	return all
}

// gaveOf returns the pools of which the nodes say that Tenure has given some addresses, that these
// pools do not give any more.
func (w *weighing) gaveOf(about *netipx.IPSet) map[*Pool]bool {
	all := map[*Pool]bool{}
	for at, pools := range w.gave {
		for _, name := range pools {
			if o := w.among.byName[name]; o != nil && o.Whole != nil && about.Contains(at.addr) && !o.gives(at.addr) {
				all[o] = true
			}
		}
	}
	return all
}

// saidWithin is within which time a node that can reach the API server has heard of an edit, and
// has published what it had given before.
const saidWithin = time.Minute

// stillHas reports whether a lease of o still keeps one of some addresses that o does not give.
func (w *weighing) stillHas(o *Pool, l protocol.Lease, about *netipx.IPSet) bool {
	had := map[netip.Addr]bool{}
	for _, g := range l.Grants {
		had[g.Addr] = g.To.Kind != protocol.GranteePod // else it is kept, and not given
	}
	for _, text := range l.Published.Allocations {
		if l.Holder.Node == "" {
			break // what was published of it is old
		}
		first, _, _ := strings.Cut(text, " ")
		if a, err := netip.ParseAddr(first); err == nil {
			had[a] = true
		}
	}
	// A node may have given what o excludes now, before it heard of that, or has published it.
	// If it has yet to answer, and lives, the pool waits for that.
	_, _, answered := w.says(l.Holder.Node)
	awaited := !answered && w.lives(l.Holder.Node)
	unsaid := w.Now.Sub(o.Edited) < saidWithin
	sure := !unsaid && (answered || l.Holder.Node == "")
	a := l.Block.Masked().Addr()
	for range allocator.MaxBlockSize {
		_, stays := o.Whole.Locate(a)
		stays = stays && (sure || o.gives(a) && (o.Withheld == nil || !o.Withheld.Contains(a)))
		if about.Contains(a) && (had[a] || !stays && !awaited && (unsaid || l.Holder.Node != "") || w.gaveBy(o, l.Holder.Node, a)) {
			return true
		}
		if a = a.Next(); !l.Block.Contains(a) {
			break
		}
	}
	return false
}

// gaveBy reports whether a node says that Tenure has given an address of o there. If it does not
// tell the pool, no other one can have: the node holds the address of no other.
func (w *weighing) gaveBy(o *Pool, node protocol.NodeName, a netip.Addr) bool {
	gave := w.gave[sighted{node: node, addr: a}]
	switch {
	case node == "":
		return false
	case slices.Contains(gave, o.Name):
		return true
	case !slices.Contains(gave, ""):
		return false
	}
	for name, leases := range w.Leases {
		if name != o.Name && slices.ContainsFunc(leases, func(l protocol.Lease) bool {
			return l.Block.Contains(a) && (l.Holder.Node == node || l.Holder.Node == "")
		}) {
			return false
		}
	}
	return true
}

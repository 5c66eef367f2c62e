package allocator

import (
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// Range is one CIDR of a pool.
type Range struct {
	// Prefix is the CIDR, masked. Addresses are answered with its length.
	Prefix netip.Prefix

	// Start and End are the first and last address that may be given. The zero
	// Addr is the first or last of the CIDR.
	Start, End netip.Addr

	// Exclude are addresses that are never given. Ranges may reach beyond the
	// CIDR; what lies outside has no meaning. Where several ranges share one
	// CIDR, an exclude of one of them counts for all.
	Exclude []netipx.IPRange

	// StaticOnly are addresses that are given only to who asks for them by
	// name. They are clipped and shared as excludes are.
	StaticOnly []netipx.IPRange

	// Gateway is the router that pods are told, of the CIDR's family, within it or not. It is
	// given by no range of the pool. Zero is none.
	Gateway netip.Addr
}

// Shape says which addresses a pool has, and which of them are ordinary, that is
// may be handed out to somebody who did not ask for them by name. Never given at
// all are, within each CIDR:
//
//   - the network and broadcast address of an IPv4 prefix of /30 or shorter,
//   - the subnet-router anycast address (the lowest) of an IPv6 prefix of /126
//     or shorter,
//   - gateways, those of the ranges and others, and excluded addresses,
//   - IPv4-mapped IPv6 addresses, which stand for others.
//
// Not ordinary are static-only addresses and the one that an IPv6 router has by habit.
// All addresses of /31, /32, /127 and /128 may be given. A Shape is immutable
// and safe for concurrent use. Both nil and the zero Shape are a pool without
// addresses.
type Shape struct {
	ranges   []Range // as given, with Start and End filled in
	located  []Range // the same, by Start
	gateways []netip.Addr
	usable   byFamily // may be given at all
	ordinary byFamily // may be given unasked
	shortest [2]int   // the length of the shortest prefix of IPv4, and of IPv6, plus one; 0: there is none
}

// NewShape returns the Shape of a pool of these ranges. Gateways are addresses that routers have
// beside the ranges' own gateways. They may lie anywhere. Where the ranges cannot be a
// pool, its error joins one [*RangeError] for each fault. Two CIDRs must be
// disjoint, or equal with disjoint start–end.
func NewShape(ranges []Range, gateways ...netip.Addr) (*Shape, error) {
	filled, err := check(ranges)
	if err != nil {
		return nil, err
	}
	s := &Shape{ranges: filled, located: slices.Clone(filled), gateways: slices.Clone(gateways)}
	slices.SortFunc(s.located, func(a, b Range) int { return a.Start.Compare(b.Start) })

	var all, never, static netipx.IPSetBuilder
	never.AddPrefix(netip.PrefixFrom(netip.AddrFrom16([16]byte{10: 0xFF, 11: 0xFF}), 96)) // ::ffff:0:0/96
	for _, r := range filled {
		all.AddRange(netipx.IPRangeFrom(r.Start, r.End))
		for _, a := range reserved(r.Prefix) {
			never.Add(a)
		}
		if r.Gateway.IsValid() {
			s.gateways = append(s.gateways, r.Gateway)
		}
		addClipped(&never, r.Exclude, r.Prefix)
		addClipped(&static, r.StaticOnly, r.Prefix)
		if a, ok := routersByHabit(r); ok {
			static.Add(a)
		}
	}
	for _, a := range s.gateways {
		never.Add(a)
	}
	// The builders saw only ranges that check has seen, so they cannot fail.
	neverSet, err := never.IPSet()
	if err != nil {
		return nil, err
	}
	staticSet, err := static.IPSet()
	if err != nil {
		return nil, err
	}
	all.RemoveSet(neverSet)
	usable, err := all.IPSet()
	if err != nil {
		return nil, err
	}
	all.RemoveSet(staticSet)
	ordinary, err := all.IPSet()
	if err != nil {
		return nil, err
	}
	s.usable, s.ordinary = split(usable), split(ordinary)
	s.measure()
	return s, nil
}

// Part returns the Shape of those ranges of s of which has, given their index in [Shape.Ranges],
// says so. No address of it can be given that s does not give: what one of the other ranges
// excludes, and gateways, are not given either.
func (s *Shape) Part(has func(i int) bool) *Shape {
	if s == nil {
		return nil
	}
	part := &Shape{gateways: s.gateways}
	var all netipx.IPSetBuilder
	for i, r := range s.ranges {
		if has(i) {
			part.ranges = append(part.ranges, r)
			all.AddRange(netipx.IPRangeFrom(r.Start, r.End))
		}
	}
	if len(part.ranges) == len(s.ranges) {
		return s
	}
	part.measure()
	part.located = slices.Clone(part.ranges)
	slices.SortFunc(part.located, func(a, b Range) int { return a.Start.Compare(b.Start) })
	set, _ := all.IPSet() // only ranges of a Shape were added
	within := NewView(set)
	part.usable, part.ordinary = *within.Intersect(View{&s.usable}).set, *within.Intersect(View{&s.ordinary}).set
	return part
}

// Meets reports whether s has, in one of its ranges, an address of the block p, whether or not it
// can be given.
func (s *Shape) Meets(p netip.Prefix) bool {
	return s != nil && slices.ContainsFunc(s.ranges, func(r Range) bool {
		return netipx.IPRangeFrom(r.Start, r.End).Overlaps(netipx.RangeOfPrefix(p))
	})
}

// routersByHabit returns the address that the router of an IPv6 range has by habit, the first after
// the subnet-router anycast address: fd00::1 of fd00::/64. Where no gateway is named it is given
// to who asks for it by name alone, so that what is handed out begins above it. A range that
// begins with it says that it is no router's, and one of fewer than 65,536 addresses may need it.
func routersByHabit(r Range) (a netip.Addr, ok bool) {
	const wide = 112
	first := r.Prefix.Addr()
	if !first.Is6() || r.Gateway.IsValid() || r.Start != first || netip.PrefixFrom(first, wide).Contains(r.End) {
		return netip.Addr{}, false
	}
	return first.Next(), true
}

// addClipped adds to b what rr and p have in common.
func addClipped(b *netipx.IPSetBuilder, rr []netipx.IPRange, p netip.Prefix) {
	whole := netipx.RangeOfPrefix(p)
	for _, r := range rr {
		if !r.Overlaps(whole) {
			continue
		}
		from, to := r.From(), r.To()
		if from.Less(whole.From()) {
			from = whole.From()
		}
		if whole.To().Less(to) {
			to = whole.To()
		}
		b.AddRange(netipx.IPRangeFrom(from, to))
	}
}

// reserved returns the addresses of p that no host may have.
func reserved(p netip.Prefix) []netip.Addr {
	switch first := p.Addr(); {
	case p.Bits() > first.BitLen()-2:
		return nil
	case first.Is4():
		return []netip.Addr{first, netipx.PrefixLastIP(p)}
	default:
		return []netip.Addr{first}
	}
}

// Ranges returns the ranges in the order in which they were given, with Start
// and End filled in.
func (s *Shape) Ranges() []Range {
	if s == nil {
		return nil
	}
	return slices.Clone(s.ranges)
}

// Families returns the families of the ranges, in the order of [Families].
func (s *Shape) Families() []Family {
	var ff []Family
	for _, f := range Families() {
		if _, ok := s.widest(f); ok {
			ff = append(ff, f)
		}
	}
	return ff
}

// widest returns the length of the shortest prefix of family f.
func (s *Shape) widest(f Family) (bits int, ok bool) {
	if s == nil || f == 0 {
		return 0, false
	}
	bits = s.shortest[indexOf(f)]
	return bits - 1, bits > 0
}

func indexOf(f Family) int {
	if f == IPv4 {
		return 0
	}
	return 1
}

// measure notes the length of the shortest prefix of each family.
func (s *Shape) measure() {
	for _, r := range s.ranges {
		if at := &s.shortest[indexOf(FamilyOf(r.Prefix.Addr()))]; *at == 0 || r.Prefix.Bits() < *at-1 {
			*at = r.Prefix.Bits() + 1
		}
	}
}

// Capacity returns how many addresses of family f can be given, ordinary and
// static-only together, or [math.MaxInt64] where that does not fit.
func (s *Shape) Capacity(f Family) int64 {
	if s == nil {
		return 0
	}
	return s.usable.of(f).count()
}

// Locate returns the range from whose Start to End a lies, whether or not a can
// be given.
func (s *Shape) Locate(a netip.Addr) (Range, bool) {
	if s == nil || FamilyOf(a) == 0 {
		return Range{}, false
	}
	i, found := slices.BinarySearchFunc(s.located, a, func(r Range, a netip.Addr) int {
		return r.Start.Compare(a)
	})
	if !found {
		i-- // the last that starts before a
	}
	if i < 0 || s.located[i].End.Less(a) {
		return Range{}, false
	}
	return s.located[i], true
}

// Ordinary reports whether a may be handed out unasked.
func (s *Shape) Ordinary(a netip.Addr) bool {
	return s != nil && s.ordinary.of(FamilyOf(a)).contains(a)
}

// ordinaryIn returns which addresses of the block p are ordinary.
func (s *Shape) ordinaryIn(p netip.Prefix) bitmap {
	if s == nil {
		return bitmap{}
	}
	return s.ordinary.of(FamilyOf(p.Addr())).mask(p)
}

// Block returns the block of prefix length bits that a lies in, whether or not
// the pool has addresses there. It is the zero Prefix if a has no such prefix.
func (s *Shape) Block(a netip.Addr, bits int) netip.Prefix {
	p, err := a.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// NextBlock returns the first block of prefix length bits, at or after the one
// that from lies in, that has an ordinary address within v. Blocks are aligned
// in absolute terms. A from that is not of family f counts as the lowest
// address, as does the zero Addr that follows the highest; ok is false where
// there is no such block, and for a length that the family does not have.
//
// It costs a binary search in the fragments of s and of v for every fragment of
// v that it passes without meeting one of s.
func (s *Shape) NextBlock(f Family, bits int, v View, from netip.Addr) (block netip.Prefix, ok bool) {
	if s == nil || bits < 0 || bits > f.BitLen() {
		return netip.Prefix{}, false
	}
	if FamilyOf(from) != f {
		from = f.lowest()
	}
	ordinary := s.ordinary.of(f)
	for at := s.Block(from, bits).Addr(); ; {
		a, i, ok := ordinary.next(at)
		if !ok {
			return netip.Prefix{}, false
		}
		at, ok = v.next(f, a)
		if !ok {
			return netip.Prefix{}, false
		}
		if !ordinary[i].To().Less(at) {
			return s.Block(at, bits), true
		}
	}
}

// BlockBits returns the prefix length of the pool's blocks of family f: the
// largest power of two of at most 64 addresses that leaves 256 blocks or more in
// the pool's widest CIDR of that family, or one address where none does:
//
//	10.0.0.0/24 -> 32    10.0.0.0/20 -> 28    10.0.0.0/16 -> 26
//	10.0.0.0/30 -> 32    2001:db8::/64 -> 122
//
// What counts is what may be handed out: a few hundred addresses of a /16 must not be
// a handful of blocks, which a handful of nodes would hold. A few addresses less, such
// as a gateway's, do not halve the blocks.
//
// An override above zero is the number of addresses instead, lowered to a power
// of two of at most [MaxBlockSize]. In a family that the pool does not have, a
// block without override is one address.
func BlockBits(s *Shape, f Family, override int) int {
	log := 0
	if override > 0 {
		for log < maxLog && 2<<log <= override {
			log++
		}
		return f.BitLen() - log
	}
	if widest, ok := s.widest(f); ok {
		const nearly256 = 240
		log = min(max(f.BitLen()-widest-8, 0), 6)
		for log > 0 && s.ordinary.of(f).count()>>log < nearly256 {
			log--
		}
	}
	return f.BitLen() - log
}

// Usable returns the addresses that can be given, ordinary and static-only together.
func (s *Shape) Usable() *netipx.IPSet {
	var b netipx.IPSetBuilder
	if s != nil {
		for _, f := range Families() {
			for _, r := range s.usable.of(f) {
				b.AddRange(r)
			}
		}
	}
	set, err := b.IPSet()
	if err != nil { // the ranges are those of a set
		panic(fmt.Sprintf("allocator: usable addresses are no set: %v", err))
	}
	return set
}

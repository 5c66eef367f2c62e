package allocator

import (
	"math/rand/v2"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// What follows is too simple to be wrong: linear scans over a few addresses. The
// model tests compare the package with it.

// universe is a run of addresses that random pools lie in, aligned to its size.
type universe struct {
	family Family
	first  netip.Addr
}

const universeSize = 512

// universes lie in the middle and at both ends of their families' addresses.
func universes() []universe {
	return []universe{
		{IPv4, addr("10.0.0.0")},
		{IPv6, addr("2001:db8::")},
		{IPv4, addr("255.255.254.0")},
		{IPv6, addr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fe00")},
		{IPv4, addr("0.0.0.0")},
		{IPv6, addr("::")},
	}
}

// at returns the address i of u.
func (u universe) at(i int) netip.Addr {
	if u.family == IPv4 {
		b := u.first.As4()
		b[2] |= byte(i >> 8)
		b[3] = byte(i)
		return netip.AddrFrom4(b)
	}
	b := u.first.As16()
	b[14] |= byte(i >> 8)
	b[15] = byte(i)
	return netip.AddrFrom16(b)
}

// chooser returns a number from 0 to n-1. Random numbers make one, and so do the
// bytes of a fuzz input.
type chooser func(n int) int

func seeded(seed uint64) chooser {
	return rand.New(rand.NewPCG(seed, seed)).IntN
}

// chooserOf uses up data; when there is none left it chooses 0.
func chooserOf(data []byte) chooser {
	return func(n int) int {
		x := 0
		for reach := 1; reach < n; reach *= 256 {
			if len(data) > 0 {
				x = x<<8 | int(data[0])
				data = data[1:]
			}
		}
		return x % n
	}
}

// one returns true one time in n.
func (c chooser) one(n int) bool { return c(n) == n-1 }

// addrs returns a random range of u of at most n addresses.
func (c chooser) addrs(u universe, n int) netipx.IPRange {
	from := c(universeSize)
	return netipx.IPRangeFrom(u.at(from), u.at(min(from+c(n), universeSize-1)))
}

// pool returns random valid ranges in u: CIDRs of all lengths, some of them
// shared by two ranges.
func (c chooser) pool(u universe) []Range {
	var rr []Range
	for i := 0; i < universeSize; {
		log := maxLog - c(maxLog+1)
		for i%(1<<log) != 0 {
			log--
		}
		if !c.one(4) {
			rr = append(rr, c.cidr(u, i, log)...)
		}
		i += 1 << log
	}
	return rr
}

// cidr returns one or two ranges of the CIDR of 1<<log addresses at i.
func (c chooser) cidr(u universe, i, log int) []Range {
	size := 1 << log
	r := Range{Prefix: netip.PrefixFrom(u.at(i), u.family.BitLen()-log)}
	for range c(3) {
		r.Exclude = append(r.Exclude, c.addrs(u, 20))
		r.StaticOnly = append(r.StaticOnly, c.addrs(u, 20))
	}
	if c.one(3) {
		r.Gateway = u.at(i + c(size))
	}
	if c.one(3) && size > 1 { // shared
		cut := 1 + c(size-1)
		second := Range{Prefix: r.Prefix, Start: u.at(i + cut + c(size-cut)), Exclude: []netipx.IPRange{c.addrs(u, 5)}}
		r.End = u.at(i + cut - 1)
		return []Range{second, r}
	}
	if c.one(3) {
		from := c(size)
		r.Start, r.End = u.at(i+from), u.at(i+from+c(size-from))
	}
	return []Range{r}
}

// view returns everything, nothing, or a few ranges of u.
func (c chooser) view(u universe) (View, []netipx.IPRange) {
	if c.one(3) {
		return View{}, []netipx.IPRange{netipx.RangeOfPrefix(netip.PrefixFrom(u.family.lowest(), 0))}
	}
	var b netipx.IPSetBuilder
	var rr []netipx.IPRange
	for range c(5) {
		r := c.addrs(u, 100)
		b.AddRange(r)
		rr = append(rr, r)
	}
	set, err := b.IPSet()
	if err != nil {
		panic(err)
	}
	return NewView(set), rr
}

func within(rr []netipx.IPRange, a netip.Addr) bool {
	return slices.ContainsFunc(rr, func(r netipx.IPRange) bool { return r.Contains(a) })
}

// naiveAssignable reports whether a pool of these ranges may give a.
func naiveAssignable(pool []Range, a netip.Addr) bool {
	in := false
	for _, r := range pool {
		if !r.Prefix.Contains(a) {
			continue
		}
		first, last := !r.Prefix.Contains(a.Prev()), !r.Prefix.Contains(a.Next())
		hosts := a.BitLen() - r.Prefix.Bits()
		if hosts >= 2 && (first || last && a.Is4()) || a == r.Gateway || within(r.Exclude, a) {
			return false
		}
		if (!r.Start.IsValid() || r.Start.Compare(a) <= 0) && (!r.End.IsValid() || a.Compare(r.End) <= 0) {
			in = true
		}
	}
	return in
}

// naiveSet returns which addresses of u, by number, such a pool has: those that
// it may give, and those that it hands out unasked.
func naiveSet(u universe, pool []Range) (assignable, ordinary [universeSize]bool) {
	for i := range universeSize {
		assignable[i], ordinary[i] = naiveAssignable(pool, u.at(i)), naiveOrdinary(pool, u.at(i))
	}
	return assignable, ordinary
}

// naiveOrdinary reports whether a pool of these ranges hands out a unasked.
func naiveOrdinary(pool []Range, a netip.Addr) bool {
	return naiveAssignable(pool, a) && !slices.ContainsFunc(pool, func(r Range) bool {
		return r.Prefix.Contains(a) && within(r.StaticOnly, a)
	})
}

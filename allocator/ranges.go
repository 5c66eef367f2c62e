package allocator

import (
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// ranges are address ranges of one family, in order and disjoint, so that a
// binary search answers every question about them.
type ranges []netipx.IPRange

// byFamily are ranges of both families, apart.
type byFamily struct{ v4, v6 ranges }

// split returns the ranges of set by family.
func split(set *netipx.IPSet) byFamily {
	rr := set.Ranges() // IPv4 sorts before IPv6
	i, _ := slices.BinarySearchFunc(rr, IPv6, func(r netipx.IPRange, f Family) int {
		return int(FamilyOf(r.From())) - int(f)
	})
	return byFamily{v4: slices.Clip(rr[:i]), v6: slices.Clip(rr[i:])}
}

func (b *byFamily) of(f Family) ranges {
	switch f {
	case IPv4:
		return b.v4
	case IPv6:
		return b.v6
	default:
		return nil
	}
}

// seek returns the index of the first range that ends at or after a, or len(rr).
func (rr ranges) seek(a netip.Addr) int {
	i, _ := slices.BinarySearchFunc(rr, a, func(r netipx.IPRange, a netip.Addr) int {
		return r.To().Compare(a)
	})
	return i
}

// next returns the lowest address of rr at or after a, and the index of the
// range that it lies in.
func (rr ranges) next(a netip.Addr) (netip.Addr, int, bool) {
	i := rr.seek(a)
	if i == len(rr) {
		return netip.Addr{}, i, false
	}
	if from := rr[i].From(); a.Less(from) {
		a = from
	}
	return a, i, true
}

// contains reports whether a lies in one of rr. It must have their family.
func (rr ranges) contains(a netip.Addr) bool {
	i := rr.seek(a)
	return i < len(rr) && !a.Less(rr[i].From())
}

// mask returns which addresses of the block p lie in rr.
func (rr ranges) mask(p netip.Prefix) bitmap {
	var m bitmap
	last := netipx.PrefixLastIP(p)
	for i := rr.seek(p.Addr()); i < len(rr) && !last.Less(rr[i].From()); i++ {
		from, to := p.Addr(), last
		if from.Less(rr[i].From()) {
			from = rr[i].From()
		}
		if rr[i].To().Less(to) {
			to = rr[i].To()
		}
		m.setRange(offset(p, from), offset(p, to))
	}
	return m
}

// count returns the number of addresses in rr, or [math.MaxInt64] where that
// does not fit.
func (rr ranges) count() int64 {
	var n uint64
	for _, r := range rr {
		fh, fl := halves(r.From())
		th, tl := halves(r.To())
		lo, borrow := bits.Sub64(tl, fl, 0)
		hi, _ := bits.Sub64(th, fh, borrow)
		// lo+1 addresses; n stays below 1<<63, so nothing here wraps.
		if hi != 0 || lo >= math.MaxInt64-n {
			return math.MaxInt64
		}
		n += lo + 1
	}
	return int64(n)
}

// halves returns a as a 128-bit number.
func halves(a netip.Addr) (hi, lo uint64) {
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

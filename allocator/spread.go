package allocator

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// Spread returns an address between Start and End of a range of family f, chosen
// by hash: searchers that begin there, with different hashes, seldom meet. The
// hash need not be a good one. Each range counts as much as any other. Without a
// range of f it is the family's lowest address.
func (s *Shape) Spread(f Family, hash uint64) netip.Addr {
	var of []Range
	for _, r := range s.Ranges() {
		if FamilyOf(r.Start) == f {
			of = append(of, r)
		}
	}
	if len(of) == 0 {
		return f.lowest()
	}
	// The hash is a fraction of 1<<64. The whole part of it times the number of ranges
	// chooses one; the rest, times the size of that, an address in it.
	i, rest := bits.Mul64(mix(hash), uint64(len(of)))
	return of[i].part(rest)
}

// part returns the address at fraction / 1<<64 of the way from Start to End.
func (r Range) part(fraction uint64) netip.Addr {
	startHi, startLo := halves(r.Start)
	endHi, endLo := halves(r.End)
	lo, borrow := bits.Sub64(endLo, startLo, 0)
	hi, _ := bits.Sub64(endHi, startHi, borrow)
	if hi != ^uint64(0) || lo != ^uint64(0) { // all but ::/0, whose size does not fit
		var carry uint64
		lo, carry = bits.Add64(lo, 1, 0)
		hi += carry
	}
	// (hi<<64 + lo) × fraction >> 64, which is less than the size.
	wayHi, wayLo := bits.Mul64(hi, fraction)
	part, _ := bits.Mul64(lo, fraction)
	wayLo, carry := bits.Add64(wayLo, part, 0)
	wayHi += carry

	lo, carry = bits.Add64(startLo, wayLo, 0)
	hi, _ = bits.Add64(startHi, wayHi, carry)
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], hi)
	binary.BigEndian.PutUint64(raw[8:], lo)
	a := netip.AddrFrom16(raw)
	if r.Start.Is4() {
		a = a.Unmap()
	}
	return a
}

// mix returns a number each of whose bits depends on every bit of x: the
// finalizer of SplitMix64. Names that differ in their last character only have
// hashes that differ little in FNV's upper bits.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xBF58476D1CE4E5B9
	x ^= x >> 27
	x *= 0x94D049BB133111EB
	return x ^ x>>31
}

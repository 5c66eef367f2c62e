package allocator

import (
	"encoding/binary"
	"net/netip"
)

// Spread returns an address of s and family f chosen by hash, from which a search
// may start, so that searchers with different hashes do not meet: first a range,
// then a place in it. Without a range of f it is the family's lowest address.
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
	r := of[hash%uint64(len(of))]
	startHi, startLo := halves(r.Start)
	endHi, endLo := halves(r.End)
	span := endLo - startLo // of ranges wider than 64 bits, the lowest part will do
	if endHi == startHi && span != ^uint64(0) {
		hash %= span + 1
	} else if endHi != startHi {
		hash &= ^uint64(0) >> 1
	}
	if startLo+hash < startLo { // would carry into the upper half
		return r.Start
	}
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], startHi)
	binary.BigEndian.PutUint64(raw[8:], startLo+hash)
	return netip.AddrFrom16(raw).Unmap()
}

package allocator

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// MaxBlockSize is the largest number of addresses that a block may have. A
// block's state is a few bitmaps of that many bits.
const MaxBlockSize = 256

// maxLog is the binary logarithm of [MaxBlockSize].
const maxLog = 8

// bitmap is a set of offsets into a block.
type bitmap [MaxBlockSize / 64]uint64

// offset returns the offset of a in the block p, which must contain it. Blocks
// are aligned and have at most 256 addresses: the last byte tells.
func offset(p netip.Prefix, a netip.Addr) int {
	b := a.As16()
	return int(b[15]) & (1<<(a.BitLen()-p.Bits()) - 1)
}

// at returns the address at offset off of the block p.
func at(p netip.Prefix, off int) netip.Addr {
	if p.Addr().Is4() {
		b := p.Addr().As4()
		b[3] |= byte(off)
		return netip.AddrFrom4(b)
	}
	b := p.Addr().As16()
	b[15] |= byte(off)
	return netip.AddrFrom16(b)
}

// loadBitmap reads a bitmap of 8 × len(b) bits, the lowest offset in the lowest
// bit of the first byte.
func loadBitmap(b []byte) bitmap {
	var m bitmap
	switch {
	case len(b)%8 == 0:
		for i := range len(b) / 8 {
			m[i] = binary.LittleEndian.Uint64(b[8*i:])
		}
	default: // blocks of fewer than 64 addresses
		for i, x := range b {
			m[0] |= uint64(x) << (8 * i)
		}
	}
	return m
}

// store is the inverse of [loadBitmap].
func (m *bitmap) store(b []byte) {
	for i := range b {
		b[i] = byte(m[i/8] >> (8 * (i % 8)))
	}
}

func (m *bitmap) has(off int) bool { return m[off/64]>>(off%64)&1 != 0 }
func (m *bitmap) set(off int)      { m[off/64] |= 1 << (off % 64) }
func (m *bitmap) empty() bool      { return *m == bitmap{} }

// setRange sets the offsets from … to.
func (m *bitmap) setRange(from, to int) {
	for w := from / 64; w <= to/64; w++ {
		x := ^uint64(0)
		if w == from/64 {
			x &= ^uint64(0) << (from % 64)
		}
		if w == to/64 {
			x &= ^uint64(0) >> (63 - to%64)
		}
		m[w] |= x
	}
}

func (m bitmap) and(o bitmap) bitmap {
	for i := range m {
		m[i] &= o[i]
	}
	return m
}

func (m bitmap) andNot(o bitmap) bitmap {
	for i := range m {
		m[i] &^= o[i]
	}
	return m
}

// count returns how many offsets m has.
func (m *bitmap) count() int {
	n := 0
	for _, w := range m {
		n += bits.OnesCount64(w)
	}
	return n
}

// first returns the lowest offset of m.
func (m *bitmap) first() (off int, ok bool) {
	for i, w := range m {
		if w != 0 {
			return 64*i + bits.TrailingZeros64(w), true
		}
	}
	return 0, false
}

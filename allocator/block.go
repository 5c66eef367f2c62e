package allocator

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// block is the state of one open block, as a view of its encoded form:
//
//	0      version, 1
//	1      binary logarithm of the block's size, 0 … 8
//	2      CRC-32 of the key and of everything here but these four bytes
//	6      ordinary  bitmap of n = max(size/8, 1) bytes, lowest offset first
//	6+n    taken     likewise
//	6+2n   barred    likewise
//	6+3n   freed: for each address that was freed and not taken again, in the
//	       order of freeing, one byte of offset and eight of sequence number
//
// A taken address is neither barred nor freed. The sequence numbers come from
// the family's counter and so order frees across blocks.
type block struct {
	prefix netip.Prefix
	last   netip.Addr // the last address of prefix
	raw    []byte
}

const (
	blockVersion  = 1
	blockHeader   = 6
	freedEntryLen = 9

	// maxSeq is the highest sequence number. Nobody frees that often.
	maxSeq = math.MaxUint64 - 1
)

// The bitmaps of a block.
const (
	mapOrdinary = iota
	mapTaken
	mapBarred
	mapCount
)

// bitmapLen returns the length of a bitmap of 1<<log offsets.
func bitmapLen(log int) int { return max(1<<log/8, 1) }

// newBlock returns an empty block.
func newBlock(p netip.Prefix, ordinary bitmap) block {
	log := p.Addr().BitLen() - p.Bits()
	b := block{prefix: p, last: netipx.PrefixLastIP(p), raw: make([]byte, blockHeader+mapCount*bitmapLen(log))}
	b.raw[0], b.raw[1] = blockVersion, byte(log)
	b.setBitmap(mapOrdinary, ordinary)
	return b
}

// decodeBlock returns the block at key, whose last address is last. It checks
// everything that the methods of block rely on; its error says what is wrong.
// The block refers to raw.
func decodeBlock(key []byte, last netip.Addr, raw []byte) (block, error) {
	if len(raw) < blockHeader {
		return block{}, errors.New("is truncated")
	}
	if raw[0] != blockVersion {
		return block{}, fmt.Errorf("has version %d; this program knows %d", raw[0], blockVersion)
	}
	if checksum(key, raw) != binary.BigEndian.Uint32(raw[2:]) {
		return block{}, errors.New("has a wrong checksum")
	}
	log := int(raw[1])
	if log > maxLog || len(raw) < blockHeader+mapCount*bitmapLen(log) {
		return block{}, errors.New("has a wrong size")
	}
	p, err := last.Prefix(last.BitLen() - log)
	if err != nil || netipx.PrefixLastIP(p) != last {
		return block{}, fmt.Errorf("of %d addresses does not end at %v", 1<<log, last)
	}
	b := block{prefix: p, last: last, raw: raw}
	return b, b.check()
}

// check returns what is wrong with the bitmaps and the freed addresses of b.
func (b block) check() error {
	var whole bitmap
	whole.setRange(0, b.size()-1)
	taken, barred := b.bitmap(mapTaken), b.bitmap(mapBarred)
	for _, m := range []bitmap{b.bitmap(mapOrdinary), taken, barred} {
		if m = m.andNot(whole); !m.empty() {
			return errors.New("has addresses outside itself")
		}
	}
	if m := taken.and(barred); !m.empty() {
		return errors.New("has an address both taken and barred")
	}
	if len(b.freed())%freedEntryLen != 0 {
		return errors.New("has a wrong length")
	}
	var seen bitmap
	var before uint64
	for i := range b.freedLen() {
		off, seq := b.freedAt(i)
		if seq <= before || seq > maxSeq || seen.has(off) || taken.has(off) || !whole.has(off) {
			return errors.New("has a wrong order of freed addresses")
		}
		seen.set(off)
		before = seq
	}
	return nil
}

// seal makes b the value of key.
func (b block) seal(key []byte) []byte {
	binary.BigEndian.PutUint32(b.raw[2:], checksum(key, b.raw))
	return b.raw
}

// checksum returns the CRC-32 of key and of raw without its bytes 2 … 5, where it
// is kept. (hash/crc32 takes 0.15 ms to get ready for Castagnoli's, which is a tenth
// of what a process of local mode has.)
func checksum(key, raw []byte) uint32 {
	sum := crc32.Update(0, crc32.IEEETable, key)
	sum = crc32.Update(sum, crc32.IEEETable, raw[:2])
	return crc32.Update(sum, crc32.IEEETable, raw[blockHeader:])
}

// clone returns a copy of b that may be changed, with room for one more freed
// address.
func (b block) clone() block {
	b.raw = append(make([]byte, 0, len(b.raw)+freedEntryLen), b.raw...)
	return b
}

func (b block) size() int             { return 1 << b.raw[1] }
func (b block) at(off int) netip.Addr { return at(b.prefix, off) }

// bytes returns the bytes of one bitmap.
func (b block) bytes(which int) []byte {
	n := bitmapLen(int(b.raw[1]))
	return b.raw[blockHeader+which*n:][:n]
}

func (b block) bitmap(which int) bitmap       { return loadBitmap(b.bytes(which)) }
func (b block) setBitmap(which int, m bitmap) { m.store(b.bytes(which)) }
func (b block) has(which, off int) bool       { return b.bytes(which)[off/8]>>(off%8)&1 != 0 }
func (b block) set(which, off int)            { b.bytes(which)[off/8] |= 1 << (off % 8) }
func (b block) unset(which, off int)          { b.bytes(which)[off/8] &^= 1 << (off % 8) }
func (b block) freed() []byte                 { return b.raw[blockHeader+mapCount*bitmapLen(int(b.raw[1])):] }
func (b block) freedLen() int                 { return len(b.freed()) / freedEntryLen }
func (b block) freedAt(i int) (off int, seq uint64) {
	e := b.freed()[i*freedEntryLen:]
	return int(e[0]), binary.BigEndian.Uint64(e[1:])
}

// freedSet returns the freed addresses.
func (b block) freedSet() bitmap {
	var m bitmap
	for i := range b.freedLen() {
		off, _ := b.freedAt(i)
		m.set(off)
	}
	return m
}

// take marks the offset as taken and no longer freed.
func (b *block) take(off int) {
	b.set(mapTaken, off)
	for i := range b.freedLen() {
		if o, _ := b.freedAt(i); o == off {
			start := len(b.raw) - len(b.freed()) + i*freedEntryLen
			b.raw = slices.Delete(b.raw, start, start+freedEntryLen)
			return
		}
	}
}

// free marks the taken offset as freed last.
func (b *block) free(off int, seq uint64) {
	b.unset(mapTaken, off)
	b.raw = binary.BigEndian.AppendUint64(append(b.raw, byte(off)), seq)
}

// open returns the addresses that may be handed out, fresh and freed alike.
func (b block) open() bitmap {
	return b.bitmap(mapOrdinary).andNot(b.bitmap(mapTaken)).andNot(b.bitmap(mapBarred))
}

// fresh returns the addresses that may be handed out and never were.
func (b block) fresh() bitmap { return b.open().andNot(b.freedSet()) }

// oldest returns the longest-freed address that may be handed out and is in
// within.
func (b block) oldest(within bitmap) (off int, seq uint64, ok bool) {
	within = within.and(b.open())
	for i := range b.freedLen() {
		if off, seq := b.freedAt(i); within.has(off) {
			return off, seq, true
		}
	}
	return 0, 0, false
}

// resting returns how many addresses that may be handed out were freed after number seq.
func (b block) resting(seq uint64) (n int) {
	open := b.open()
	for i := b.freedLen() - 1; i >= 0; i-- {
		off, at := b.freedAt(i)
		if at <= seq {
			break
		}
		if open.has(off) {
			n++
		}
	}
	return n
}

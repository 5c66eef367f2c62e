package allocator

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"
	"math"
	"net/netip"
)

// A Space's entries in its Table. Numbers are big-endian, so that keys sort by
// them; a family is one byte, 4 or 6; an address is 4 or 16 bytes.
//
//	'b' family address    an open block, by its last address: the first entry at
//	                      or after an address is the only block that can cover it
//	'f' family address    such a block has a fresh address to hand out
//	'h' family            head: the family's counts and counter
//	'o' family sequence   such a block's longest-freed address to hand out was
//	                      freed as this number
//
// Values begin with a version byte. Blocks and heads carry a checksum; what the
// two indexes say is compared with the block before it is believed.
const (
	tagBlock = 'b'
	tagFresh = 'f'
	tagHead  = 'h'
	tagOld   = 'o'

	indexVersion = 1
)

// key is room for any key of a Space. One operation uses one, as Tables do not
// keep keys.
type key [2 + 16]byte

// addr returns the key of an address below tag.
func (k *key) addr(tag byte, f Family, a netip.Addr) []byte {
	return appendAddr(append(k[:0], tag, byte(f)), a)
}

// number returns the key of a sequence number.
func (k *key) number(f Family, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(append(k[:0], tagOld, byte(f)), seq)
}

// head returns the key of a family's head.
func (k *key) head(f Family) []byte { return append(k[:0], tagHead, byte(f)) }

func appendAddr(b []byte, a netip.Addr) []byte {
	if a.Is4() {
		raw := a.As4()
		return append(b, raw[:]...)
	}
	raw := a.As16()
	return append(b, raw[:]...)
}

// under returns what follows tag and family in k; ok is false where k, which may
// be nil, has others.
func under(k []byte, tag byte, f Family) (rest []byte, ok bool) {
	if len(k) < 2 || k[0] != tag || k[1] != byte(f) {
		return nil, false
	}
	return k[2:], true
}

// parseAddr is the inverse of appendAddr for an address of family f.
func parseAddr(b []byte, f Family) (netip.Addr, error) {
	a, ok := netip.AddrFromSlice(b)
	if !ok || FamilyOf(a) != f {
		return netip.Addr{}, fmt.Errorf("%w: %x is not an %v address", ErrCorrupt, b, f)
	}
	return a, nil
}

// head is what a family's blocks sum up to, and its counter.
type head struct {
	blocks, taken, free int64
	seq                 uint64 // of the latest free
}

const (
	headVersion = 1
	headLen     = 1 + 4 + 4*8 // version, CRC-32, the fields
)

// head reads the head of family f.
func (s Space) head(k *key, f Family) (head, error) {
	raw := s.t.Get(k.head(f))
	if raw == nil {
		return head{}, nil
	}
	if len(raw) != headLen || raw[0] != headVersion {
		return head{}, fmt.Errorf("%w: head of %v is not one of version %d", ErrCorrupt, f, headVersion)
	}
	if binary.BigEndian.Uint32(raw[1:]) != headSum(f, raw) {
		return head{}, fmt.Errorf("%w: head of %v has a wrong checksum", ErrCorrupt, f)
	}
	field := func(i int) uint64 { return binary.BigEndian.Uint64(raw[5+8*i:]) }
	if field(0) > math.MaxInt64 || field(1) > math.MaxInt64 || field(2) > math.MaxInt64 {
		return head{}, fmt.Errorf("%w: head of %v has a count below zero", ErrCorrupt, f)
	}
	return head{int64(field(0)), int64(field(1)), int64(field(2)), field(3)}, nil
}

func (s Space) putHead(k *key, f Family, h head) error {
	raw := make([]byte, 5, headLen)
	raw[0] = headVersion
	for _, x := range []uint64{uint64(h.blocks), uint64(h.taken), uint64(h.free), h.seq} {
		raw = binary.BigEndian.AppendUint64(raw, x)
	}
	binary.BigEndian.PutUint32(raw[1:], headSum(f, raw))
	return s.t.Put(k.head(f), raw)
}

func headSum(f Family, raw []byte) uint32 {
	return crc32.Update(crc32.Update(uint32(f), crc32.IEEETable, raw[:1]), crc32.IEEETable, raw[5:])
}

// tally is what a block adds to its family's head and indexes. The zero tally is
// that of a block that is not open.
type tally struct {
	blocks, taken, free int64
	fresh               bool   // it has a fresh address to hand out
	oldest              uint64 // its longest-freed address to hand out; 0: none
}

func (b block) tally() tally {
	taken, open, fresh := b.bitmap(mapTaken), b.open(), b.fresh()
	_, seq, _ := b.oldest(open)
	return tally{1, int64(taken.count()), int64(open.count()), !fresh.empty(), seq}
}

// seek returns the first open block of family f that ends at or after a.
func (s Space) seek(k *key, f Family, a netip.Addr) (b block, ok bool, err error) {
	found, raw := s.t.Seek(k.addr(tagBlock, f, a))
	rest, ok := under(found, tagBlock, f)
	if !ok {
		return block{}, false, nil
	}
	last, err := parseAddr(rest, f)
	if err != nil {
		return block{}, false, err
	}
	b, err = decodeBlock(found, last, raw)
	if err != nil {
		return block{}, false, fmt.Errorf("%w: block that ends at %v %w", ErrCorrupt, last, err)
	}
	return b, true, nil
}

// covering returns the open block that a lies in, or [ErrNoBlock].
func (s Space) covering(k *key, a netip.Addr) (block, error) {
	f := FamilyOf(a)
	if f == 0 {
		return block{}, ErrNoBlock
	}
	b, ok, err := s.seek(k, f, a)
	if err == nil && !(ok && b.prefix.Contains(a)) {
		err = ErrNoBlock
	}
	return b, err
}

// exactly returns the open block p, or [ErrNoBlock].
func (s Space) exactly(k *key, p netip.Prefix) (block, error) {
	b, err := s.covering(k, p.Addr())
	if err == nil && b.prefix != p {
		err = ErrNoBlock
	}
	return b, err
}

// blocks returns the open blocks of family f in order. Each is valid until the
// Table changes, which the loop may do.
func (s Space) blocks(f Family) iter.Seq2[block, error] {
	return func(yield func(block, error) bool) {
		k := new(key)
		for from := f.lowest(); from.IsValid(); {
			b, ok, err := s.seek(k, f, from)
			if err != nil {
				yield(block{}, err)
				return
			}
			if !ok {
				return
			}
			from = b.last.Next() // the zero Addr after the highest
			if !yield(b, nil) {
				return
			}
		}
	}
}

// replace writes b, in place of one with tally old, and all that follows from
// it. h is the family's head, its counter possibly already moved.
func (s Space) replace(k *key, f Family, old tally, b block, h head) error {
	if err := s.account(k, f, b.last, old, b.tally(), h); err != nil {
		return err
	}
	kk := k.addr(tagBlock, f, b.last)
	return s.t.Put(kk, b.seal(kk))
}

// remove deletes b and all that follows from it.
func (s Space) remove(k *key, b block) error {
	f := FamilyOf(b.last)
	h, err := s.head(k, f)
	if err != nil {
		return err
	}
	old, last := b.tally(), b.last
	if err := s.account(k, f, last, old, tally{}, h); err != nil {
		return err
	}
	return s.t.Delete(k.addr(tagBlock, f, last))
}

// account brings the indexes and the head in line with a block that ends at
// last and goes from tally old to tally now.
func (s Space) account(k *key, f Family, last netip.Addr, old, now tally, h head) error {
	h.blocks += now.blocks - old.blocks
	h.taken += now.taken - old.taken
	h.free += now.free - old.free
	if h.blocks < 0 || h.taken < 0 || h.free < 0 {
		return fmt.Errorf("%w: head of %v counts less than the block that ends at %v", ErrCorrupt, f, last)
	}
	if err := s.indexFresh(k, f, last, old.fresh, now.fresh); err != nil {
		return err
	}
	if err := s.indexOldest(k, f, last, old.oldest, now.oldest); err != nil {
		return err
	}
	return s.putHead(k, f, h)
}

package allocator

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"net/netip"
)

// Outcomes of a [Space]'s methods that a caller is expected to tell apart.
var (
	// ErrTaken is returned when the address is taken.
	ErrTaken = errors.New("address is taken")

	// ErrNotTaken is returned when the address to free is not taken.
	ErrNotTaken = errors.New("address is not taken")

	// ErrBarred is returned when the address to take is barred.
	ErrBarred = errors.New("address is barred")

	// ErrNoBlock is returned when no open block covers the address, or the block
	// is not open.
	ErrNoBlock = errors.New("block is not open")

	// ErrInUse is returned when the block to close has a taken address.
	ErrInUse = errors.New("block is in use")

	// ErrOverlap is returned when the block to open overlaps an open one.
	ErrOverlap = errors.New("block overlaps an open one")

	// ErrCorrupt is returned when the Table holds what no Space wrote.
	ErrCorrupt = errors.New("allocation state is corrupt")
)

// AddrState is where an address stands in a [Space].
type AddrState uint8

// The states of an address.
const (
	NoBlock AddrState = iota // no open block covers it
	Free                     // in an open block; may be taken
	Barred                   // in an open block; may not be taken
	Taken                    // taken
)

// String returns "NoBlock", "Free", "Barred" or "Taken".
func (s AddrState) String() string {
	names := [...]string{"NoBlock", "Free", "Barred", "Taken"}
	if int(s) >= len(names) {
		return fmt.Sprintf("AddrState(%d)", uint8(s))
	}
	return names[s]
}

// Space is which addresses of one pool one holder has handed out. It keeps all
// of its state in a [Table] and none in itself. Addresses can be taken only in
// open blocks, and come in this order:
//
//  1. ordinary addresses that were never handed out since their block was
//     opened, the lowest first;
//  2. ordinary addresses that were freed, the longest freed first, whatever
//     their block. An order, never a bar: who wants one that has rested for a
//     while, if there is one, asks [Space.FindRested] first.
//
// Every method but Blocks, Addresses, Reshape and Check costs O(log n) in the
// number of open blocks and of the shape's fragments, whatever the fill.
//
// A Space is as safe for concurrent use as its Table. It is as transactional,
// too: when a method returns an error of the Table, what it has already written
// stays, and the caller throws the transaction away. Errors of a Space's own,
// the sentinels of this package, come before anything is written.
type Space struct {
	t Table
	s *Shape
}

// NewSpace returns the Space that t holds, of a pool of shape s. It reads
// nothing. Where s may differ from the shape that t was last used with, call
// [Space.Reshape] before anything else.
func NewSpace(t Table, s *Shape) Space { return Space{t, s} }

// Open adds an empty block of at most [MaxBlockSize] addresses. It does nothing
// if the block is open. It fails with [ErrOverlap] if another open block, of
// another size, shares addresses with it.
func (s Space) Open(block netip.Prefix) error {
	f := FamilyOf(block.Addr())
	if f == 0 || block != block.Masked() || f.BitLen()-block.Bits() > maxLog {
		return fmt.Errorf("open block %v: want an aligned IPv4 or IPv6 prefix of at most %d addresses", block, MaxBlockSize)
	}
	k := new(key)
	b := newBlock(block, s.s.ordinaryIn(block))
	there, ok, err := s.seek(k, f, block.Addr())
	if err != nil {
		return fmt.Errorf("open block %v: %w", block, err)
	}
	if ok && there.prefix == block {
		return nil
	}
	if ok && there.prefix.Overlaps(block) {
		return fmt.Errorf("open block %v: %w: %v", block, ErrOverlap, there.prefix)
	}
	h, err := s.head(k, f)
	if err == nil {
		err = s.replace(k, f, tally{}, b, h)
	}
	if err != nil {
		return fmt.Errorf("open block %v: %w", block, err)
	}
	return nil
}

// Close removes an open block, and with it which of its addresses were freed or
// barred. It fails with [ErrInUse] if any of its addresses is taken, and with
// [ErrNoBlock] if it is not open.
func (s Space) Close(block netip.Prefix) error {
	k := new(key)
	b, err := s.exactly(k, block)
	if err == nil && b.tally().taken > 0 {
		err = ErrInUse
	}
	if err == nil {
		err = s.remove(k, b)
	}
	if err != nil {
		return fmt.Errorf("close block %v: %w", block, err)
	}
	return nil
}

// IsOpen reports whether exactly this block is open.
func (s Space) IsOpen(block netip.Prefix) (bool, error) {
	_, err := s.exactly(new(key), block)
	switch {
	case errors.Is(err, ErrNoBlock):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("block %v: %w", block, err)
	default:
		return true, nil
	}
}

// Find returns the address of family f, within v, that should be taken next. It
// takes nothing. ok is false where the open blocks have none.
//
// With a view that is not everything, it may also cost a step for each fragment
// of the view, and for each block that has room outside the view only.
func (s Space) Find(f Family, v View) (a netip.Addr, ok bool, err error) {
	return s.FindRested(f, v, maxSeq)
}

// FindRested is Find without the addresses that were freed after the first freed
// ones, in the count of [Space.Freed]. Which these are after some time, the caller has noted.
func (s Space) FindRested(f Family, v View, freed uint64) (a netip.Addr, ok bool, err error) {
	k := new(key)
	if a, ok, err = s.lowestFresh(k, f, v); err == nil && !ok {
		a, ok, err = s.longestFreed(k, f, v, freed)
	}
	if err != nil {
		return netip.Addr{}, false, fmt.Errorf("find %v address: %w", f, err)
	}
	return a, ok, nil
}

// Freed returns how often an address of family f was freed.
func (s Space) Freed(f Family) (uint64, error) {
	h, err := s.head(new(key), f)
	if err != nil {
		return 0, fmt.Errorf("%v count of freed addresses: %w", f, err)
	}
	return h.seq, nil
}

// Resting returns how many free addresses of an open block were freed after the
// first freed ones, in the count of [Space.Freed]. It fails with [ErrNoBlock] if the block
// is not open.
func (s Space) Resting(block netip.Prefix, freed uint64) (int, error) {
	b, err := s.exactly(new(key), block)
	if err != nil {
		return 0, fmt.Errorf("addresses of block %v that rest: %w", block, err)
	}
	return b.resting(freed), nil
}

// State returns where a stands. Whether a Free address is ordinary, or can be
// given at all, is the Shape's to say.
func (s Space) State(a netip.Addr) (AddrState, error) {
	b, err := s.covering(new(key), a)
	switch {
	case errors.Is(err, ErrNoBlock):
		return NoBlock, nil
	case err != nil:
		return NoBlock, fmt.Errorf("state of %v: %w", a, err)
	}
	switch off := offset(b.prefix, a); {
	case b.has(mapTaken, off):
		return Taken, nil
	case b.has(mapBarred, off):
		return Barred, nil
	default:
		return Free, nil
	}
}

// Take marks a as taken. It fails with [ErrTaken], [ErrBarred] or [ErrNoBlock].
// It does not ask the Shape: an address that is asked for by name must be
// Assignable, which is the caller's to check, while one that a pod already has
// must be taken even where the pool no longer wants it given.
func (s Space) Take(a netip.Addr) error {
	return s.edit("take", a, func(b *block, off int, _ *head) error {
		switch {
		case b.has(mapTaken, off):
			return ErrTaken
		case b.has(mapBarred, off):
			return ErrBarred
		}
		b.take(off)
		return nil
	})
}

// Free marks a as free; among freed addresses it comes last. It fails with
// [ErrNotTaken] or [ErrNoBlock].
func (s Space) Free(a netip.Addr) error {
	return s.edit("free", a, func(b *block, off int, h *head) error {
		if !b.has(mapTaken, off) {
			return ErrNotTaken
		}
		if h.seq >= maxSeq {
			return fmt.Errorf("%w: the counter is at its end", ErrCorrupt)
		}
		h.seq++
		b.free(off, h.seq)
		return nil
	})
}

// Bar keeps a from being found or taken, or ends that. A barred address keeps
// its place in the order. Bar does nothing if a stands so already; it fails with
// [ErrTaken] if a is taken and on is set, and with [ErrNoBlock].
func (s Space) Bar(a netip.Addr, on bool) error {
	return s.edit("bar", a, func(b *block, off int, _ *head) error {
		switch {
		case !on:
			b.unset(mapBarred, off)
		case b.has(mapTaken, off):
			return ErrTaken
		default:
			b.set(mapBarred, off)
		}
		return nil
	})
}

// edit applies change to a copy of the block that covers a, and writes it back
// unless change returns an error.
func (s Space) edit(verb string, a netip.Addr, change func(b *block, off int, h *head) error) error {
	k := new(key)
	b, err := s.covering(k, a)
	if err != nil {
		return fmt.Errorf("%s %v: %w", verb, a, err)
	}
	f := FamilyOf(a)
	h, err := s.head(k, f)
	if err != nil {
		return fmt.Errorf("%s %v: %w", verb, a, err)
	}
	was := b
	b = b.clone()
	err = change(&b, offset(b.prefix, a), &h)
	if err == nil && !bytes.Equal(b.raw, was.raw) {
		err = s.replace(k, f, was.tally(), b, h)
	}
	if err != nil {
		return fmt.Errorf("%s %v: %w", verb, a, err)
	}
	return nil
}

// BlockInfo is an open block and how full it is.
type BlockInfo struct {
	Prefix netip.Prefix
	Taken  int
	// Free are ordinary addresses that are neither taken nor barred.
	Free   int
	Barred int
}

// Blocks returns the open blocks of family f in the order of their addresses.
// The loop may change the Space. After an error there is nothing more.
func (s Space) Blocks(f Family) iter.Seq2[BlockInfo, error] {
	return func(yield func(BlockInfo, error) bool) {
		for b, err := range s.blocks(f) {
			if err != nil {
				yield(BlockInfo{}, fmt.Errorf("%v blocks: %w", f, err))
				return
			}
			barred, n := b.bitmap(mapBarred), b.tally()
			if !yield(BlockInfo{
				Prefix: b.prefix,
				Taken:  int(n.taken),
				Free:   int(n.free),
				Barred: barred.count(),
			}, nil) {
				return
			}
		}
	}
}

// Addresses returns the taken addresses of an open block, in order, as they were
// when the loop began: it may change the Space. A block that is not open gives
// the error [ErrNoBlock].
func (s Space) Addresses(block netip.Prefix) iter.Seq2[netip.Addr, error] {
	return func(yield func(netip.Addr, error) bool) {
		b, err := s.exactly(new(key), block)
		if err != nil {
			yield(netip.Addr{}, fmt.Errorf("addresses of block %v: %w", block, err))
			return
		}
		taken := b.bitmap(mapTaken)
		for off := range b.size() {
			if taken.has(off) && !yield(at(block, off), nil) {
				return
			}
		}
	}
}

// Counts are the sums of a family's open blocks.
type Counts struct {
	Blocks int
	Taken  int
	// Free are ordinary addresses that are neither taken nor barred.
	Free int
}

// Counts returns the sums of the open blocks of family f, which are kept, not
// counted.
func (s Space) Counts(f Family) (Counts, error) {
	h, err := s.head(new(key), f)
	if err != nil {
		return Counts{}, fmt.Errorf("%v counts: %w", f, err)
	}
	return Counts{Blocks: int(h.blocks), Taken: int(h.taken), Free: int(h.free)}, nil
}

// Reshape works out anew which addresses of every open block are ordinary. Call
// it when the pool's shape has changed. What is taken stays taken, also where
// the pool has no address any more. It writes only blocks that differ.
func (s Space) Reshape() error {
	k := new(key)
	for _, f := range Families() {
		for b, err := range s.blocks(f) {
			if err == nil {
				err = s.reshape(k, f, b)
			}
			if err != nil {
				return fmt.Errorf("reshape %v blocks: %w", f, err)
			}
		}
	}
	return nil
}

func (s Space) reshape(k *key, f Family, b block) error {
	ordinary := s.s.ordinaryIn(b.prefix)
	if b.bitmap(mapOrdinary) == ordinary {
		return nil
	}
	h, err := s.head(k, f)
	if err != nil {
		return err
	}
	old := b.tally()
	b = b.clone()
	b.setBitmap(mapOrdinary, ordinary)
	return s.replace(k, f, old, b, h)
}

package allocator

import (
	"fmt"
	"math"
	"net/netip"
)

// indexFresh brings the index of blocks with fresh addresses from old to now.
func (s Space) indexFresh(k *key, f Family, last netip.Addr, old, now bool) error {
	switch {
	case old == now:
		return nil
	case now:
		return s.t.Put(k.addr(tagFresh, f, last), []byte{indexVersion})
	default:
		return s.t.Delete(k.addr(tagFresh, f, last))
	}
}

// indexOldest brings the index of longest-freed addresses from old to now.
func (s Space) indexOldest(k *key, f Family, last netip.Addr, old, now uint64) error {
	if old == now {
		return nil
	}
	if old != 0 {
		if err := s.t.Delete(k.number(f, old)); err != nil {
			return err
		}
	}
	if now == 0 {
		return nil
	}
	return s.t.Put(k.number(f, now), appendAddr([]byte{indexVersion}, last))
}

// freshAfter returns the first block that ends at or after a and has a fresh
// address to hand out.
func (s Space) freshAfter(k *key, f Family, a netip.Addr) (b block, ok bool, err error) {
	found, v := s.t.Seek(k.addr(tagFresh, f, a))
	rest, ok := under(found, tagFresh, f)
	if !ok {
		return block{}, false, nil
	}
	last, err := parseAddr(rest, f)
	if err != nil {
		return block{}, false, err
	}
	if len(v) != 1 || v[0] != indexVersion {
		return block{}, false, fmt.Errorf("%w: entry of %v among fresh blocks is %x", ErrCorrupt, last, v)
	}
	b, ok, err = s.seek(k, f, last)
	if err == nil && !(ok && b.last == last && b.tally().fresh) {
		err = fmt.Errorf("%w: block that ends at %v is listed as fresh but is not", ErrCorrupt, last)
	}
	return b, err == nil, err
}

// oldestAfter returns the block whose longest-freed address was freed first at
// or after seq, and that number.
func (s Space) oldestAfter(k *key, f Family, seq uint64) (b block, at uint64, ok bool, err error) {
	found, v := s.t.Seek(k.number(f, seq))
	rest, ok := under(found, tagOld, f)
	if !ok {
		return block{}, 0, false, nil
	}
	if len(rest) != 8 || len(v) == 0 || v[0] != indexVersion {
		return block{}, 0, false, fmt.Errorf("%w: entry %x among freed addresses is %x", ErrCorrupt, rest, v)
	}
	last, err := parseAddr(v[1:], f)
	if err != nil {
		return block{}, 0, false, err
	}
	for _, x := range rest {
		at = at<<8 | uint64(x)
	}
	b, ok, err = s.seek(k, f, last)
	if err == nil && !(ok && b.last == last && b.tally().oldest == at) {
		err = fmt.Errorf("%w: block that ends at %v has not the address freed as %d", ErrCorrupt, last, at)
	}
	return b, at, err == nil, err
}

// lowestFresh returns the lowest fresh address within v. A block wholly within v
// ends the search, so it looks at no more than the blocks at the edges of the
// view's fragments, and one.
func (s Space) lowestFresh(k *key, f Family, v View) (netip.Addr, bool, error) {
	for from, ok := v.next(f, f.lowest()); ok; from, ok = v.next(f, from) {
		b, ok, err := s.freshAfter(k, f, from)
		if err != nil || !ok {
			return netip.Addr{}, false, err
		}
		m := v.clip(b.fresh(), b.prefix)
		if off, ok := m.first(); ok {
			return b.at(off), true, nil
		}
		if from = b.last.Next(); !from.IsValid() {
			break
		}
	}
	return netip.Addr{}, false, nil
}

// candidate is the longest-freed address met so far.
type candidate struct {
	seq  uint64 // math.MaxUint64: none met
	addr netip.Addr
}

// meet makes the longest-freed address of b within v the candidate, if it was
// freed earlier.
func (c *candidate) meet(b block, v View) {
	within := v.clip(b.open(), b.prefix)
	if off, seq, ok := b.oldest(within); ok && seq < c.seq {
		*c = candidate{seq, b.at(off)}
	}
}

// longestFreed returns the longest-freed address within v, if it was freed as number upTo
// or earlier.
//
// The index has the blocks by the age of their oldest address. If v is
// everything, its first entry is the answer. If not, that address may lie
// outside v, and so may those of any number of blocks that follow: a view of a
// few blocks in a large pool would walk them all. So the blocks that meet v are
// walked as well, a step of each walk in turn, until one of them has an answer
// that is known to be the best.
func (s Space) longestFreed(k *key, f Family, v View, upTo uint64) (netip.Addr, bool, error) {
	best := candidate{seq: math.MaxUint64}
	place, more := v.next(f, f.lowest())
	for age := uint64(0); more; {
		b, at, ok, err := s.oldestAfter(k, f, age)
		if err != nil {
			return netip.Addr{}, false, err
		}
		if !ok || at > min(best.seq, upTo) {
			break // what is left was freed later
		}
		best.meet(b, v)
		age = at + 1

		if v.IsAll() {
			break
		}
		if place, more, err = s.meetNext(k, f, v, place, &best); err != nil {
			return netip.Addr{}, false, err
		}
	}
	if !best.addr.IsValid() || best.seq > upTo {
		return netip.Addr{}, false, nil
	}
	return best.addr, true, nil
}

// meetNext has c meet the first block that ends at or after place, which lies in
// v. It returns where the next one may be; more is false where none is.
func (s Space) meetNext(k *key, f Family, v View, place netip.Addr, c *candidate) (next netip.Addr, more bool, err error) {
	b, ok, err := s.seek(k, f, place)
	if err != nil || !ok {
		return netip.Addr{}, false, err
	}
	c.meet(b, v)
	if next = b.last.Next(); !next.IsValid() {
		return next, false, nil
	}
	next, more = v.next(f, next)
	return next, more, nil
}

package allocator

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Check compares everything that the Space keeps twice: blocks with each other,
// with the indexes and with the counts. It returns every fault, joined; each is
// an [ErrCorrupt]. It does not compare with the Shape, which may have changed
// meanwhile. It reads the whole Table.
func (s Space) Check() error {
	var c spaceCheck
	for _, f := range Families() {
		c.family(s, f)
	}
	c.strangers(s.t)
	return errors.Join(c.errs...)
}

// spaceCheck collects faults, and what a Table must hold.
type spaceCheck struct {
	errs []error
	seen map[string]bool // keys that have been accounted for
}

func (c *spaceCheck) fault(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("%w: %w", ErrCorrupt, fmt.Errorf(format, args...)))
}

// mark says that k belongs to the Space.
func (c *spaceCheck) mark(k []byte) {
	if c.seen == nil {
		c.seen = map[string]bool{}
	}
	c.seen[string(k)] = true
}

// family checks one family's blocks, and that its head and indexes have what
// these say.
func (c *spaceCheck) family(s Space, f Family) {
	k := new(key)
	var sum head
	var before netip.Addr
	for b, err := range s.decodable(c, f) {
		if err != nil {
			c.fault("%v: %w", f, err)
			continue
		}
		if before.IsValid() && !before.Less(b.prefix.Addr()) {
			c.fault("block %v overlaps the one that ends at %v", b.prefix, before)
		}
		before = b.last
		n := b.tally()
		sum.blocks += n.blocks
		sum.taken += n.taken
		sum.free += n.free
		if len := b.freedLen(); len > 0 {
			_, seq := b.freedAt(len - 1)
			sum.seq = max(sum.seq, seq)
		}
		if n.fresh {
			c.entry(s.t, k.addr(tagFresh, f, b.last), []byte{indexVersion}, b)
		}
		if n.oldest != 0 {
			c.entry(s.t, k.number(f, n.oldest), appendAddr([]byte{indexVersion}, b.last), b)
		}
	}
	c.head(s, f, sum)
}

// head checks the head of family f against the sum of its blocks.
func (c *spaceCheck) head(s Space, f Family, sum head) {
	k := new(key)
	c.mark(k.head(f))
	h, err := s.head(k, f)
	if err != nil {
		c.errs = append(c.errs, err)
		return
	}
	if h.seq < sum.seq {
		c.fault("the counter of %v is %d, but an address was freed as %d", f, h.seq, sum.seq)
	}
	if h.seq = sum.seq; h != sum {
		c.fault("head of %v counts %d blocks, %d taken, %d free; the blocks have %d, %d, %d",
			f, h.blocks, h.taken, h.free, sum.blocks, sum.taken, sum.free)
	}
}

// entry checks that the index entry k of block b has the value want.
func (c *spaceCheck) entry(t Table, k, want []byte, b block) {
	c.mark(k)
	if got := t.Get(k); !slices.Equal(got, want) {
		c.fault("index entry %x of block %v is %x, want %x", k, b.prefix, got, want)
	}
}

// strangers finds entries that no block accounts for.
func (c *spaceCheck) strangers(t Table) {
	for k, _ := t.Seek(nil); k != nil; {
		if !c.seen[string(k)] {
			c.fault("entry %x belongs to no block", k)
		}
		k, _ = t.Seek(append(slices.Clone(k), 0))
	}
}

// decodable returns the blocks of family f like [Space.blocks], but goes on
// after one that cannot be decoded.
func (s Space) decodable(c *spaceCheck, f Family) func(func(block, error) bool) {
	return func(yield func(block, error) bool) {
		for found, raw := s.t.Seek([]byte{tagBlock, byte(f)}); ; {
			rest, ok := under(found, tagBlock, f)
			if !ok {
				return
			}
			c.mark(found)
			next := append(slices.Clone(found), 0)
			last, err := parseAddr(rest, f)
			var b block
			if err == nil {
				if b, err = decodeBlock(found, last, raw); err != nil {
					err = fmt.Errorf("block that ends at %v %w", last, err)
				}
			}
			if !yield(b, err) {
				return
			}
			found, raw = s.t.Seek(next)
		}
	}
}

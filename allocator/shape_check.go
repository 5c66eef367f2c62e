package allocator

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// A RangeError is one fault of the ranges given to [NewShape].
type RangeError struct {
	// Index is which of the ranges is at fault.
	Index int
	// Field names what of it: "prefix", "start", "end", "exclude[2]",
	// "staticOnly[0]" or "gateway".
	Field string
	// Reason says what is wrong, with the values.
	Reason string
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("ranges[%d].%s: %s", e.Index, e.Field, e.Reason)
}

// checker collects the faults of ranges.
type checker struct {
	ranges []Range
	bad    []bool // whose Start–End cannot be compared with others'
	errs   []error
}

func (c *checker) fault(i int, field, format string, args ...any) {
	c.errs = append(c.errs, &RangeError{Index: i, Field: field, Reason: fmt.Sprintf(format, args...)})
}

// check returns a copy of ranges with Start and End filled in, or every fault.
func check(ranges []Range) ([]Range, error) {
	c := checker{ranges: slices.Clone(ranges), bad: make([]bool, len(ranges))}
	for i := range c.ranges {
		c.one(i)
	}
	c.prefixes()
	c.spans()
	return c.ranges, errors.Join(c.errs...)
}

// one checks range i by itself and fills it in.
func (c *checker) one(i int) {
	r := &c.ranges[i]
	r.Exclude, r.StaticOnly = slices.Clone(r.Exclude), slices.Clone(r.StaticOnly)
	for j, x := range r.Exclude {
		c.validRange(i, fmt.Sprintf("exclude[%d]", j), x)
	}
	for j, x := range r.StaticOnly {
		c.validRange(i, fmt.Sprintf("staticOnly[%d]", j), x)
	}
	p := r.Prefix
	if !p.IsValid() || FamilyOf(p.Addr()) == 0 {
		c.fault(i, "prefix", "%v is not an IPv4 or IPv6 CIDR", p)
		c.bad[i] = true
		return
	}
	if p != p.Masked() {
		c.fault(i, "prefix", "%v has host bits set, want %v", p, p.Masked())
		r.Prefix, p = p.Masked(), p.Masked()
	}
	whole := netipx.RangeOfPrefix(p)
	startOK := c.inside(i, "start", &r.Start, whole.From())
	endOK := c.inside(i, "end", &r.End, whole.To())
	switch {
	case !startOK || !endOK:
		c.bad[i] = true
	case r.End.Less(r.Start):
		c.fault(i, "start", "%v comes after the end %v", r.Start, r.End)
		c.bad[i] = true
	}
	if gw := r.Gateway; gw.IsValid() && FamilyOf(gw) != FamilyOf(p.Addr()) {
		c.fault(i, "gateway", "%v is of another family than %v", gw, p)
	}
}

// inside reports whether *a lies in the CIDR of range i. A zero *a becomes
// unset, which does.
func (c *checker) inside(i int, field string, a *netip.Addr, unset netip.Addr) bool {
	if !a.IsValid() {
		*a = unset
		return true
	}
	if p := c.ranges[i].Prefix; FamilyOf(*a) == 0 || !p.Contains(*a) {
		c.fault(i, field, "%v lies outside %v", *a, p)
		return false
	}
	return true
}

func (c *checker) validRange(i int, field string, r netipx.IPRange) {
	if !r.IsValid() || FamilyOf(r.From()) == 0 || FamilyOf(r.To()) == 0 {
		c.fault(i, field, "%v-%v is not a range of IPv4 or IPv6 addresses", r.From(), r.To())
	}
}

// prefixes checks that CIDRs are disjoint or equal. One CIDR cannot overlap
// another without one containing the other, so in order of address, widest
// first, each needs to be compared only with the widest one before it.
func (c *checker) prefixes() {
	outer := -1
	for _, i := range c.order(func(a, b Range) int {
		return cmp.Or(a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()))
	}) {
		p := c.ranges[i].Prefix
		switch {
		case !p.IsValid():
		case outer < 0 || !c.ranges[outer].Prefix.Overlaps(p):
			outer = i
		case c.ranges[outer].Prefix != p:
			c.fault(i, "prefix", "%v overlaps %v of ranges[%d]", p, c.ranges[outer].Prefix, outer)
			c.bad[i] = true // said once
		}
	}
}

// spans checks that no address lies from Start to End of two ranges.
func (c *checker) spans() {
	before := -1 // the range that reaches furthest so far
	for _, i := range c.order(func(a, b Range) int { return a.Start.Compare(b.Start) }) {
		if c.bad[i] {
			continue
		}
		r := c.ranges[i]
		if before < 0 {
			before = i
			continue
		}
		b := c.ranges[before]
		if !b.End.Less(r.Start) {
			c.fault(i, "start", "%v-%v overlaps %v-%v of ranges[%d]", r.Start, r.End, b.Start, b.End, before)
		}
		if b.End.Less(r.End) {
			before = i
		}
	}
}

// order returns the indexes of the ranges, sorted by compare and then by index.
func (c *checker) order(compare func(a, b Range) int) []int {
	idx := make([]int, len(c.ranges))
	for i := range idx {
		idx[i] = i
	}
	slices.SortStableFunc(idx, func(i, j int) int { return compare(c.ranges[i], c.ranges[j]) })
	return idx
}

package allocator

import (
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// OrdinaryCapacity returns how many addresses of family f may be handed out
// unasked, or [math.MaxInt64] where that does not fit.
func (s *Shape) OrdinaryCapacity(f Family) int64 {
	if s == nil {
		return 0
	}
	return s.ordinary.of(f).count()
}

// OrdinaryIn returns how many of the addresses of block, which has at most
// [MaxBlockSize], may be handed out unasked.
func (s *Shape) OrdinaryIn(block netip.Prefix) int {
	if FamilyOf(block.Addr()).BitLen()-block.Bits() > maxLog {
		return 0
	}
	m := s.ordinaryIn(block.Masked())
	return m.count()
}

// OrdinaryWithin returns the addresses of family f within v that may be handed out
// unasked, as ranges in order.
func (s *Shape) OrdinaryWithin(f Family, v View) []netipx.IPRange {
	if s == nil {
		return nil
	}
	if v.set == nil {
		return slices.Clone(s.ordinary.of(f))
	}
	return intersect(s.ordinary.of(f), v.set.of(f))
}

// SpansWithin returns, for each range of v that has such addresses, those from the
// first to the last of them, in order. What lies in between and may not be handed out
// unasked is not kept out by v: only the pool says so.
func (s *Shape) SpansWithin(f Family, v View) []netipx.IPRange {
	var spans []netipx.IPRange
	last := -1
	for _, r := range s.OrdinaryWithin(f, v) {
		of := 0 // the range of v that r lies in
		if v.set != nil {
			of = v.set.of(f).seek(r.From())
		}
		if of != last {
			spans, last = append(spans, r), of
			continue
		}
		span := &spans[len(spans)-1]
		*span = netipx.IPRangeFrom(span.From(), r.To())
	}
	return spans
}

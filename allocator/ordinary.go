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

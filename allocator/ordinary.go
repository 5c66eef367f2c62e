package allocator

import "net/netip"

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

package pools

import (
	"encoding/hex"
	"net/netip"
	"strings"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// condensed marks the one allocation of a lease that [Condense] has written.
const condensed = "condensed "

// Condense replaces the allocations in l's status, which say who has which address, by a bitmap
// of those that are taken. Only that is needed here, and it takes a hundredth of the memory. A
// status that is condensed already stays as it is.
func Condense(l *v1alpha1.IPLease) {
	block, err := netip.ParsePrefix(l.Spec.Block)
	if err != nil || len(l.Status.Allocations) == 0 || strings.HasPrefix(l.Status.Allocations[0], condensed) {
		return
	}
	var taken [allocator.MaxBlockSize / 8]byte
	for _, allocation := range l.Status.Allocations {
		addr, _, _ := strings.Cut(allocation, " ")
		if a, err := netip.ParseAddr(addr); err == nil && block.Contains(a) {
			if i := offset(block, a); i < allocator.MaxBlockSize {
				taken[i/8] |= 1 << (i % 8)
			}
		}
	}
	l.Status.Allocations = []string{condensed + strings.TrimRight(hex.EncodeToString(taken[:]), "0")}
}

// offset returns the place of a, which block contains, in it.
func offset(block netip.Prefix, a netip.Addr) int {
	base, addr := block.Addr().As16(), a.As16()
	return int(addr[14]-base[14])<<8 + int(addr[15]) - int(base[15])
}

// outside returns how many addresses of block are taken, by what its lease's status
// said when it was condensed, that shape does not have.
func outside(l *v1alpha1.IPLease, block netip.Prefix, shape *allocator.Shape) (n int) {
	if shape == nil {
		return 0
	}
	for a := range takenOf(l, block) {
		if shape.Assignable(a) != nil {
			n++
		}
	}
	return n
}

// takenOf returns the addresses of block that are taken, by what its lease's status said when it
// was condensed.
func takenOf(l *v1alpha1.IPLease, block netip.Prefix) map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	if len(l.Status.Allocations) != 1 {
		return all
	}
	digits, ok := strings.CutPrefix(l.Status.Allocations[0], condensed)
	if !ok {
		return all
	}
	taken, err := hex.DecodeString(digits + strings.Repeat("0", len(digits)%2))
	if err != nil {
		return all
	}
	a := block.Addr()
	for i := 0; i < len(taken)*8; i, a = i+1, a.Next() {
		if taken[i/8]>>(i%8)&1 != 0 {
			all[a] = true
		}
	}
	return all
}

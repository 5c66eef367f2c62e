package protocol

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// LeaseName returns the name of the lease of block in pool:
// "<pool>.<base address in fixed-width hex>.<prefix length>".
func LeaseName(pool PoolName, block netip.Prefix) string {
	return fmt.Sprintf("%s.%x.%d", pool, block.Addr().AsSlice(), block.Bits())
}

// ParseLeaseName is the inverse of [LeaseName]. A block has one name: that of an
// IPv4 block as IPv6 is none.
func ParseLeaseName(name string) (PoolName, netip.Prefix, error) {
	bad := func() (PoolName, netip.Prefix, error) {
		return "", netip.Prefix{}, fmt.Errorf("lease name %q: want <pool>.<hex address>.<prefix length>", name)
	}
	rest, length, ok := cutLast(name, ".")
	if !ok {
		return bad()
	}
	pool, base, ok := cutLast(rest, ".")
	if !ok || pool == "" {
		return bad()
	}
	var raw []byte
	if n, err := fmt.Sscanf(base, "%x", &raw); n != 1 || err != nil {
		return bad()
	}
	addr, ok := netip.AddrFromSlice(raw)
	if !ok {
		return bad()
	}
	bits, err := strconv.Atoi(length)
	if err != nil {
		return bad()
	}
	block := netip.PrefixFrom(addr, bits)
	if addr.Is4In6() || !block.IsValid() || block != block.Masked() || LeaseName(PoolName(pool), block) != name {
		return bad()
	}
	return PoolName(pool), block, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

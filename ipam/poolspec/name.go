package poolspec

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"strings"
)

// maxPoolName is the longest name of a pool: a DNS label, because a block
// lease's name is the pool's and more.
const maxPoolName = 63

// poolName returns the name of the implicit pool for s. It is s if that can be the name of a pool.
// Otherwise it is a similar name with a hash of s, so that different names stay different.
//
//	blue      -> blue
//	Blue_Net  -> blue-net-374dc56352
func poolName(s string) string {
	if isPoolName(s) {
		return s
	}
	h := fnv.New64a()
	h.Write([]byte(s)) // never fails
	suffix := fmt.Sprintf("-%016x", h.Sum64())[:11]

	base := strings.Trim(strings.Map(labelRune, s), "-")
	base = strings.TrimRight(base[:min(len(base), maxPoolName-len(suffix))], "-")
	if base == "" {
		base = "pool"
	}
	return base + suffix
}

// isPoolName reports whether s is a DNS label.
func isPoolName(s string) bool {
	return s != "" && len(s) <= maxPoolName && strings.Map(labelRune, s) == s &&
		s[0] != '-' && s[len(s)-1] != '-'
}

// labelRune returns r as it may stand in a DNS label.
func labelRune(r rune) rune {
	switch {
	case 'a' <= r && r <= 'z', '0' <= r && r <= '9', r == '-':
		return r
	case 'A' <= r && r <= 'Z':
		return r - 'A' + 'a'
	default:
		return '-'
	}
}

// rangeName returns p as part of a pool's name. Two prefixes have two names.
//
//	10.1.0.0/16 -> 10-1-0-0-16
//	fd00::/64   -> fd00---64
func rangeName(p netip.Prefix) string {
	return strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(p.String())
}

// isNetworkName reports whether s can be a network's name by the CNI
// specification: letters, digits, "_", "." and "-", the first a letter or digit.
func isNetworkName(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case i > 0 && (c == '_' || c == '.' || c == '-'):
		default:
			return false
		}
	}
	return s != ""
}

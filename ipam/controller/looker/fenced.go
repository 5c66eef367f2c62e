package looker

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
)

// An item of a fence is the name of an IPPool of whereabouts', or a range of which it makes no
// reservations. That is written as a reservation is called, with a CIDR for the address: after the
// network_name and '-', if there is one.

// isRange reports whether an item of a fence is a range, and not the name of an IPPool.
func isRange(fenced string) bool { return strings.Contains(fenced, "/") }

// parseRange returns the range that an item of a fence is, and what is before it.
func parseRange(fenced string) (network string, c netip.Prefix, ok bool) {
	i := strings.LastIndex(fenced, "-") + 1
	c, err := netip.ParsePrefix(fenced[i:])
	return fenced[:i], c, err == nil
}

// before returns what the names of reservations of a network_name begin with.
func before(network string) string {
	if network == "" {
		return ""
	}
	return network + "-"
}

// reserved returns the range that a text of a fence names, if it is one of reservations of a
// network_name.
func reserved(text, network string) (c netip.Prefix, ok bool) {
	rest, ok := strings.CutPrefix(text, before(network))
	if !ok {
		return c, false
	}
	c, err := netip.ParsePrefix(rest)
	return c, err == nil
}

// added returns what a fence has that it had not before, where ranges may be cut otherwise.
func added(had, fence []string) []string {
	names, ranges := map[string]bool{}, map[string]*netipx.IPSetBuilder{}
	for _, text := range had {
		if network, c, ok := parseRange(text); ok {
			if ranges[network] == nil {
				ranges[network] = new(netipx.IPSetBuilder)
			}
			ranges[network].AddPrefix(c)
		}
		names[text] = true
	}
	sets := map[string]*netipx.IPSet{}
	for network, b := range ranges {
		sets[network], _ = b.IPSet() // of valid prefixes alone
	}
	return slices.DeleteFunc(slices.Clone(fence), func(text string) bool {
		network, c, ok := parseRange(text)
		return names[text] || ok && sets[network] != nil && sets[network].ContainsPrefix(c)
	})
}

// newly says what a fence has that it had not before, where it had something.
func newly(had, fence []string) string {
	more := added(had, fence)
	if len(more) == 0 || len(had) == 0 {
		return ""
	}
	return fmt.Sprintf("; what is kept from whereabouts has changed, by %.60s: where a definition of that name is written again and again, name it in spec.shareWith, which says that it is of another network", more[0])
}

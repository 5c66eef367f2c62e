package requests

import (
	"fmt"
	"net/netip"
	"strings"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// askOf returns what a request asks for. The error says, for people, what of it
// cannot be understood.
func askOf(s protocol.SubLease) (grants.Ask, error) {
	ask := grants.Ask{To: granteeOf(s), Pod: protocol.Grantee{Kind: protocol.GranteePod, UID: s.Request.Pod.UID, Node: s.Node}, Stamp: s.Revision}
	for _, w := range s.Request.Wants {
		src, err := sourceOf(w)
		if err != nil {
			return grants.Ask{}, err
		}
		ask.From = append(ask.From, src)
	}
	return ask, nil
}

// restoring returns an ask for exactly what the status of s names.
func restoring(s protocol.SubLease) (grants.Ask, error) {
	ask, err := askOf(s)
	if err != nil {
		return ask, err
	}
	if len(s.Granted) != len(ask.From) {
		return ask, fmt.Errorf("the status has %d addresses for %d wants", len(s.Granted), len(ask.From))
	}
	for i, g := range s.Granted {
		ask.From[i].Addr, ask.From[i].Families = g.Addr, []allocator.Family{allocator.FamilyOf(g.Addr)}
	}
	return ask, nil
}

func granteeOf(s protocol.SubLease) protocol.Grantee {
	return protocol.Grantee{Kind: protocol.GranteeSubLease, UID: s.UID, Name: s.Name}
}

// sourceOf reads one want. A want of one address is for that one, ordinary or not.
func sourceOf(w protocol.Wanted) (grants.Source, error) {
	var set netipx.IPSetBuilder
	family := allocator.Family(0)
	for _, text := range w.Ranges {
		r, err := parseRange(text)
		if err != nil {
			return grants.Source{}, fmt.Errorf("pool %s: %w", w.Pool, err)
		}
		f := allocator.FamilyOf(r.From())
		if family != 0 && f != family {
			return grants.Source{}, fmt.Errorf("pool %s: one want has ranges of both families", w.Pool)
		}
		family = f
		set.AddRange(r)
	}
	if family == 0 {
		return grants.Source{}, fmt.Errorf("pool %s: a want has no ranges", w.Pool)
	}
	built, err := set.IPSet()
	if err != nil {
		return grants.Source{}, fmt.Errorf("pool %s: %w", w.Pool, err)
	}
	src := grants.Source{Pool: w.Pool, View: allocator.NewView(built), Families: []allocator.Family{family}}
	if rr := built.Ranges(); len(rr) == 1 && rr[0].From() == rr[0].To() {
		src.Addr = rr[0].From()
	}
	return src, nil
}

// parseRange reads "first-last".
func parseRange(text string) (netipx.IPRange, error) {
	first, last, _ := strings.Cut(text, "-")
	from, err := netip.ParseAddr(first)
	if err != nil {
		return netipx.IPRange{}, fmt.Errorf("%q is not a range of addresses", text)
	}
	to, err := netip.ParseAddr(last)
	if err != nil {
		return netipx.IPRange{}, fmt.Errorf("%q is not a range of addresses", text)
	}
	r := netipx.IPRangeFrom(from, to)
	if !r.IsValid() || from.Is4In6() || to.Is4In6() || from.Zone() != "" || to.Zone() != "" {
		return netipx.IPRange{}, fmt.Errorf("%q is not a range of addresses of one family, the lower first", text)
	}
	return r, nil
}

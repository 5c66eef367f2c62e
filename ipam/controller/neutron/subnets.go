package neutron

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"go4.org/netipx"
)

// A Subnet is a subnet as Neutron has it.
type Subnet struct {
	ID string

	// Gone tells that Neutron has no such subnet, or shows the project none. All other fields
	// but ID are then zero.
	Gone bool

	Network string           // its network's ID
	Prefix  netip.Prefix     // the CIDR, which says the family as well
	Pools   []netipx.IPRange // from which Neutron gives addresses that nobody asked for
	Gateway netip.Addr       // zero: none
	DNS     []netip.Addr
	Routes  []Route
	SLAAC   bool // addresses follow from MAC addresses, and none can be asked for
}

// A Route is a route to hosts on a subnet.
type Route struct {
	To  netip.Prefix
	Via netip.Addr
}

// listed is what lists of subnets and of networks have. Text is parsed as it is read.
type listed struct {
	ID          string `json:"id"`
	Description string `json:"description"`
	Project     string `json:"project_id"`
	NetworkID   string `json:"network_id"`
	CIDR        string `json:"cidr"`
	Pools       []struct {
		Start netip.Addr `json:"start"`
		End   netip.Addr `json:"end"`
	} `json:"allocation_pools"`
	Gateway netip.Addr   `json:"gateway_ip"`
	DNS     []netip.Addr `json:"dns_nameservers"`
	Routes  []struct {
		To  netip.Prefix `json:"destination"`
		Via netip.Addr   `json:"nexthop"`
	} `json:"host_routes"`
	Mode string `json:"ipv6_address_mode"`
}

// Subnets returns the subnets with these IDs, in their order. One that is not there is
// [Subnet.Gone], which is no error.
func (c *Client) Subnets(ctx context.Context, ids []string) ([]Subnet, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	ctx, cancel, b := c.begin(ctx)
	defer cancel()
	subnets := map[string]listed{}
	// So many make a URL that every server takes.
	for part := range slices.Chunk(ids, 50) {
		all, err := b.listed(ctx, "list subnets "+strings.Join(part, ", "), "subnets", url.Values{"id": part})
		if err != nil {
			return nil, err
		}
		for _, l := range all {
			subnets[l.ID] = l
		}
	}
	all := make([]Subnet, 0, len(ids))
	for _, id := range ids {
		found, ok := subnets[id]
		if !ok {
			all = append(all, Subnet{ID: id, Gone: true})
			continue
		}
		s, err := found.subnet()
		if err != nil {
			return nil, &Error{Reason: Rejected, Message: fmt.Sprintf("subnet %s: %v: Neutron says what we cannot read", id, err), err: err}
		}
		all = append(all, s)
	}
	return all, nil
}

// listed returns the subnets or the networks, which kind says, that q selects.
func (b *budget) listed(ctx context.Context, op, kind string, q url.Values) ([]listed, error) {
	return pages(ctx, b, op, kind, q, func(l listed) string { return l.ID })
}

// subnet returns l, which is a subnet, as we have it.
func (l listed) subnet() (Subnet, error) {
	prefix, err := netip.ParsePrefix(l.CIDR)
	if err != nil {
		return Subnet{}, err
	}
	s := Subnet{
		ID: l.ID, Network: l.NetworkID, Prefix: prefix, Gateway: l.Gateway, DNS: l.DNS,
		SLAAC: l.Mode == "slaac" || l.Mode == "dhcpv6-stateless",
	}
	for _, p := range l.Pools {
		r := netipx.IPRangeFrom(p.Start, p.End)
		if !r.IsValid() {
			return Subnet{}, fmt.Errorf("its allocation pool from %v to %v is no range", p.Start, p.End)
		}
		s.Pools = append(s.Pools, r)
	}
	for _, r := range l.Routes {
		s.Routes = append(s.Routes, Route{To: r.To, Via: r.Via})
	}
	return s, nil
}

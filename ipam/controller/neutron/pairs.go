package neutron

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
)

// A Pair is an allowed address pair of a port, as Neutron has it: the address may be a CIDR.
type Pair struct{ Addr, MAC string }

// A ServerPort is the port of a virtual machine. Its port security lets pass what the machine
// sends with its own addresses, and what its pairs allow.
type ServerPort struct {
	ID       string
	Server   string // the machine's UUID
	Pairs    []Pair
	Revision int
}

// PortsOfServers returns the ports that virtual machines have on a network.
func (c *Client) PortsOfServers(ctx context.Context, network string, servers []string) (all []ServerPort, err error) {
	ctx, cancel, b := c.begin(ctx)
	defer cancel()
	for part := range slices.Chunk(servers, 50) { // so many make a URL that every server takes
		found, err := b.list(ctx, "list the ports of nodes on network "+network, url.Values{"network_id": {network}, "device_id": part})
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			if !strings.HasPrefix(p.Owner, "tenure:") {
				all = append(all, ServerPort{ID: p.ID, Server: p.Claim, Pairs: p.pairs, Revision: p.Revision})
			}
		}
	}
	return all, nil
}

// SetPairs has a port as it was read have these pairs and no others. If it has changed since,
// that is the error [Changed]: read it again.
func (c *Client) SetPairs(ctx context.Context, p ServerPort, pairs []Pair) error {
	ctx, cancel, b := c.begin(ctx)
	defer cancel()
	wanted := make([]ports.AddressPair, 0, len(pairs))
	for _, x := range pairs {
		wanted = append(wanted, ports.AddressPair{IPAddress: x.Addr, MACAddress: x.MAC})
	}
	return b.repeat(ctx, fmt.Sprintf("allow %d addresses on port %s", len(pairs), p.ID), func(ctx context.Context, s *gophercloud.ServiceClient) error {
		return ports.Update(ctx, s, p.ID, ports.UpdateOpts{AllowedAddressPairs: &wanted, RevisionNumber: &p.Revision}).Err
	})
}

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
	Project  string
	Pairs    []Pair
	Revision int

	// Doubt is an [Error] that says why nobody knows whether the port is the machine's; nil: it is.
	Doubt error
}

// PortsOfServers returns the ports that virtual machines have on a network. Who may use the network
// may make a port there that names any machine: see ofMachines.
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
				all = append(all, ServerPort{ID: p.ID, Server: p.Claim, Project: p.Project, Pairs: p.pairs, Revision: p.Revision})
			}
		}
	}
	ours, err := c.project(ctx)
	return ofMachines(all, ours), err
}

// ofMachines returns those of the ports that name machines which are the machines'. Where there are
// ports of our project they are those. Else the machines are of another project. Where one machine
// has ports of several, nobody knows which are its own.
func ofMachines(all []ServerPort, ours string) []ServerPort {
	if slices.ContainsFunc(all, func(p ServerPort) bool { return p.Project == ours }) {
		return slices.DeleteFunc(all, func(p ServerPort) bool { return p.Project != ours })
	}
	for i, p := range all {
		if j := slices.IndexFunc(all, func(o ServerPort) bool { return o.Server == p.Server && o.Project != p.Project }); j >= 0 {
			all[i].Doubt = &Error{Reason: NotOurs, Message: fmt.Sprintf(
				"ports %s of project %s and %s of project %s are both said to be machine %s's, and addresses are allowed on neither: delete the one that is not",
				p.ID, p.Project, all[j].ID, all[j].Project, p.Server)}
		}
	}
	return all
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

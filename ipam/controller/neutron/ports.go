package neutron

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
)

// FixedIP is one address of a port.
type FixedIP struct {
	Subnet string     // its ID
	Addr   netip.Addr // of a [Want], the zero Addr is any that is free
}

// Want is the port that a claim needs.
type Want struct {
	// Claim is the claim's UID, which becomes the port's device_id. It must not be empty.
	Claim string
	// Network is the ID of the network. It must not be empty.
	Network string
	// Addresses are what the port must have, at most one for a subnet. With none, Neutron
	// chooses: one IPv4 address and one IPv6 address of the network's subnets. Whether an
	// address is in the allocation pools is for the caller to check: Neutron gives any that
	// the subnet has, the gateway's included.
	Addresses []FixedIP
	// MAC, if there is one, is what a port is made with. One that has another fits as well.
	MAC net.HardwareAddr
	// Name and Description are for people, at most 255 characters each.
	Name, Description string
	// Port is the ID of the port that the claim has been told of, if it has. Among several
	// that fit, this one stays.
	Port string
}

// A Port is a port as Neutron has it.
type Port struct {
	ID        string
	Network   string
	Claim     string // the device_id: of a port of ours, its claim's UID
	Owner     string // the device_owner
	Project   string
	MAC       net.HardwareAddr
	Addresses []FixedIP
	Revision  int
	Created   time.Time // in whole seconds

	// Surplus are the IDs of what else the claim has, which the caller deletes once it has
	// recorded this port. [Client.Ensure] and [Client.EnsureMany] alone set it.
	Surplus []string

	pairs []Pair
}

// fits reports whether p is what w needs.
func (p Port) fits(w Want) bool {
	has := func(want FixedIP) bool {
		return slices.ContainsFunc(p.Addresses, func(a FixedIP) bool {
			return a.Subnet == want.Subnet && (!want.Addr.IsValid() || a.Addr == want.Addr)
		})
	}
	return p.Network == w.Network && !slices.ContainsFunc(w.Addresses, func(a FixedIP) bool { return !has(a) })
}

// choose returns that of a claim's ports which it keeps: the one it has been told of, else the
// oldest, else that with the lowest ID. Ok is false if none fits. The others are surplus,
// those included that do not fit.
func choose(w Want, all []Port) (chosen Port, ok bool) {
	all = slices.Clone(all)
	rank := func(p Port) int {
		switch {
		case !p.fits(w):
			return 2
		case p.ID == w.Port:
			return 0
		}
		return 1
	}
	slices.SortFunc(all, func(a, b Port) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	if len(all) == 0 || !all[0].fits(w) {
		return Port{}, false
	}
	chosen = all[0]
	for _, other := range all[1:] {
		chosen.Surplus = append(chosen.Surplus, other.ID)
	}
	return chosen, true
}

// check returns what makes w no port at all.
func (w Want) check() error {
	if w.Claim == "" || w.Network == "" {
		return &Error{Reason: Rejected, Message: fmt.Sprintf("claim %q on network %q: neither may be empty", w.Claim, w.Network)}
	}
	return nil
}

// body is what w is in a request that makes its port. It has no security groups: nothing
// would enforce them. Port security is as the network has it.
func (w Want) body(owner string) ports.CreateOpts {
	opts := ports.CreateOpts{
		NetworkID: w.Network, Name: w.Name, Description: w.Description,
		DeviceID: w.Claim, DeviceOwner: owner, SecurityGroups: &[]string{}, MACAddress: w.MAC.String(),
	}
	if len(w.Addresses) > 0 {
		opts.FixedIPs = fixedIPs(w.Addresses)
	}
	return opts
}

func fixedIPs(addrs []FixedIP) []map[string]string {
	all := make([]map[string]string, 0, len(addrs))
	for _, a := range addrs {
		one := map[string]string{"subnet_id": a.Subnet}
		if a.Addr.IsValid() {
			one["ip_address"] = a.Addr.String()
		}
		all = append(all, one)
	}
	return all
}

// damaged returns a port that somebody has taken addresses off: it has some of those that w names,
// or it is the one that the claim was told of, and has none. No other can be made beside it: that
// would need its addresses, or its hardware address.
func damaged(w Want, all []Port) (Port, bool) {
	i := slices.IndexFunc(all, func(p Port) bool {
		if p.Network != w.Network || p.fits(w) {
			return false
		}
		return p.ID == w.Port && len(p.Addresses) == 0 ||
			slices.ContainsFunc(p.Addresses, func(a FixedIP) bool { return slices.Contains(w.Addresses, a) })
	})
	if i < 0 {
		return Port{}, false
	}
	return all[i], true
}

// repair is what p, which is damaged, is in a request that has it fit w again. What p has of other
// subnets stays: a pod may use it.
func (w Want) repair(p Port) ports.UpdateOpts {
	addrs := slices.Clone(w.Addresses)
	for _, has := range p.Addresses {
		i := slices.IndexFunc(addrs, func(a FixedIP) bool { return a.Subnet == has.Subnet })
		switch {
		case i < 0:
			addrs = append(addrs, has)
		case !addrs[i].Addr.IsValid():
			addrs[i] = has
		}
	}
	return ports.UpdateOpts{FixedIPs: fixedIPs(addrs), RevisionNumber: &p.Revision}
}

// list returns the ports that q selects.
func (b *budget) list(ctx context.Context, op string, q url.Values) (all []Port, err error) {
	found, err := pages(ctx, b, op, "ports", q, func(p ports.Port) string { return p.ID })
	for _, p := range found {
		all = append(all, portOf(p))
	}
	return all, err
}

// ours returns the ports of this cluster that q selects. Any project may write our owner on a port
// that it makes, so only those of the credentials' project count.
func (b *budget) ours(ctx context.Context, op string, q url.Values) ([]Port, error) {
	q.Set("device_owner", b.c.owner())
	all, err := b.list(ctx, op, q)
	if err != nil {
		return nil, err
	}
	project, err := b.c.project(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(p Port) bool { return p.Owner != b.c.owner() || project != "" && p.Project != project }), nil
}

// portOf returns a port as we have it. What is no address is left out.
func portOf(p ports.Port) Port {
	mac, _ := net.ParseMAC(p.MACAddress)
	port := Port{
		ID: p.ID, Network: p.NetworkID, Claim: p.DeviceID, Owner: p.DeviceOwner, Project: p.ProjectID,
		MAC: mac, Revision: p.RevisionNumber, Created: p.CreatedAt,
	}
	for _, pair := range p.AllowedAddressPairs {
		port.pairs = append(port.pairs, Pair{Addr: pair.IPAddress, MAC: pair.MACAddress})
	}
	for _, f := range p.FixedIPs {
		if addr, err := netip.ParseAddr(f.IPAddress); err == nil {
			port.Addresses = append(port.Addresses, FixedIP{Subnet: f.SubnetID, Addr: addr})
		}
	}
	return port
}

// Ours returns all ports of this cluster, or those on networks, whatever claims they are of.
func (c *Client) Ours(ctx context.Context, networks ...string) ([]Port, error) {
	ctx, cancel, b := c.begin(ctx)
	defer cancel()
	return b.ours(ctx, "list the cluster's ports", url.Values{"network_id": networks})
}

// Delete deletes a port of a claim. It looks at the port before, and leaves one that is not
// this cluster's and this claim's alone: that is the error NotOurs. A port that is not there
// is success.
func (c *Client) Delete(ctx context.Context, portID, claim string) error {
	ctx, cancel, b := c.begin(ctx)
	defer cancel()
	op := "delete port " + portID
	for {
		var found *ports.Port
		err := b.repeat(ctx, op, func(ctx context.Context, s *gophercloud.ServiceClient) (err error) {
			found, err = ports.Get(ctx, s, portID).Extract()
			return err
		})
		switch {
		case reasonOf(err) == NotFound:
			return nil
		case err != nil:
			return err
		case found.DeviceOwner != c.owner() || found.DeviceID != claim:
			return &Error{Reason: NotOurs, Message: fmt.Sprintf("%s: it is of device %q, %q, not of claim %s of this cluster: it stays",
				op, found.DeviceID, found.DeviceOwner, claim)}
		}
		err = b.deleteRevision(ctx, portID, found.RevisionNumber)
		switch {
		case err == nil || reasonOf(err) == NotFound:
			return nil
		case !gophercloud.ResponseCodeIs(err, http.StatusPreconditionFailed) || b.retries == 0:
			return err
		}
		b.retries--
	}
}

// DeleteOf deletes all ports of claims. It returns, in their order, why those of one could not be
// deleted. None is success.
func (c *Client) DeleteOf(ctx context.Context, claims []string) []error {
	failed := make([]error, len(claims))
	for from := 0; from < len(claims); from += bulk {
		to := min(from+bulk, len(claims))
		c.deleteChunk(ctx, claims[from:to], failed[from:to])
	}
	return failed
}

func (c *Client) deleteChunk(ctx context.Context, claims []string, failed []error) {
	listing, cancel, b := c.begin(ctx)
	defer cancel()
	wants := make([]Want, len(claims))
	for i, claim := range claims {
		wants[i].Claim = claim
	}
	of, err := b.portsOf(listing, wants...)
	for i, claim := range claims {
		if err != nil || claim == "" {
			failed[i] = cmp.Or(err, error(&Error{Reason: Rejected, Message: "delete the ports of a claim without a UID"}))
			continue
		}
		for _, p := range of[claim] {
			if failed[i] = c.deleteSeen(ctx, p, claim); failed[i] != nil {
				break
			}
		}
	}
}

// deleteSeen deletes a port of a claim as it was listed. One that has changed since is looked at
// again.
func (c *Client) deleteSeen(ctx context.Context, p Port, claim string) error {
	ctx, cancel, b := c.begin(ctx)
	defer cancel()
	err := b.deleteRevision(ctx, p.ID, p.Revision)
	switch {
	case err == nil || reasonOf(err) == NotFound:
		return nil
	case gophercloud.ResponseCodeIs(err, http.StatusPreconditionFailed):
		return c.Delete(ctx, p.ID, claim)
	}
	return err
}

// deleteRevision deletes a port if it is as it was: who has changed it meanwhile may have made it
// another's.
func (b *budget) deleteRevision(ctx context.Context, id string, revision int) error {
	same := map[string]string{"If-Match": fmt.Sprintf("revision_number=%d", revision)}
	return b.repeat(ctx, "delete port "+id, func(ctx context.Context, s *gophercloud.ServiceClient) error {
		resp, err := s.Delete(ctx, s.ServiceURL("ports", id), &gophercloud.RequestOpts{MoreHeaders: same})
		if err == nil {
			resp.Body.Close()
		}
		return err
	})
}

package neutron

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"
)

// NewSubnet is a subnet that is to be made.
type NewSubnet struct {
	// Key tells it from others of the cluster: at most 100 characters. It is in the
	// description of what is made, by which that is known as ours.
	Key string
	// Name is for people, at most 255 characters.
	Name    string
	Prefix  netip.Prefix
	Gateway netip.Addr // zero: Neutron takes the first address
	Network string     // the ID of the network; empty: one is made
}

// mark is the description of what is made for a key.
func (c *Client) mark(key string) string { return c.owner() + " " + key }

// EnsureSubnet returns the ID of the subnet of that key, and makes it, and a network for it, if
// there is none. What is there is listed before and after, so that of several that were made at
// once all choose the same: that with the lowest ID. The others go with [Client.DeleteSubnet].
func (c *Client) EnsureSubnet(ctx context.Context, s NewSubnet) (string, error) {
	ctx, cancel, b := c.begin(ctx)
	defer cancel()
	off, network := false, s.Network
	if network == "" {
		id, err := b.ensure(ctx, "network", c.mark(s.Key), "", func(ctx context.Context, sc *gophercloud.ServiceClient) error {
			return networks.Create(ctx, sc, networks.CreateOpts{Name: s.Name, Description: c.mark(s.Key)}).Err
		})
		if err != nil {
			return "", err
		}
		network = id
	}
	version := gophercloud.IPv4
	if s.Prefix.Addr().Is6() {
		version = gophercloud.IPv6
	}
	opts := subnets.CreateOpts{NetworkID: network, CIDR: s.Prefix.String(), IPVersion: version, EnableDHCP: &off, Name: s.Name, Description: c.mark(s.Key)}
	if s.Gateway.IsValid() {
		opts.GatewayIP = new(s.Gateway.String())
	}
	return b.ensure(ctx, "subnet", c.mark(s.Key), network, func(ctx context.Context, sc *gophercloud.ServiceClient) error {
		return subnets.Create(ctx, sc, opts).Err
	})
}

// ensure returns the ID of the object of a kind that has a mark, and has it made if there is none.
// If a network is named, those of that network count alone.
func (b *budget) ensure(ctx context.Context, kind, mark, network string, create func(context.Context, *gophercloud.ServiceClient) error) (string, error) {
	for {
		ids, err := b.idsOf(ctx, kind, mark, network)
		if err != nil || len(ids) > 0 {
			return first(ids), err
		}
		failed := b.request(ctx, b.c.cfg.CallTimeout, create)
		if failed != nil && !b.again(ctx, failed) {
			return "", explain("make a "+kind, failed)
		}
		if failed == nil {
			if ids, err = b.idsOf(ctx, kind, mark, network); err != nil || len(ids) > 0 {
				return first(ids), err
			}
			return "", &Error{Reason: Unavailable, Message: "make a " + kind + ": it was made, and somebody has deleted or changed it: see who does"}
		}
	}
}

func first(ids []string) string {
	if len(ids) == 0 {
		return ""
	}
	return slices.Min(ids)
}

// idsOf returns the IDs of the objects of a kind, such as subnet, that have a mark: of one network,
// if it is named. Neutron lists others as well where it does not know the filter.
func (b *budget) idsOf(ctx context.Context, kind, mark, network string) (ids []string, err error) {
	q := url.Values{"description": {mark}}
	if network != "" {
		q.Set("network_id", network)
	}
	all, err := b.made(ctx, kind+"s", q)
	for _, l := range all {
		if l.Description == mark && (network == "" || l.NetworkID == network) {
			ids = append(ids, l.ID)
		}
	}
	return ids, err
}

// made returns the subnets or the networks, which kind says, that q selects and that are of the
// credentials' project. Any project may write our mark on what it makes, and share that with ours.
func (b *budget) made(ctx context.Context, kind string, q url.Values) ([]listed, error) {
	all, err := b.listed(ctx, "list "+kind, kind, q)
	if err != nil {
		return nil, err
	}
	project, err := b.c.project(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(l listed) bool { return project != "" && l.Project != project }), nil
}

// SubnetKeys returns the keys of all subnets and networks that [Client.EnsureSubnet] has made for
// this cluster, each once.
func (c *Client) SubnetKeys(ctx context.Context) (keys []string, err error) {
	ctx, cancel, b := c.begin(ctx)
	defer cancel()
	for _, kind := range []string{"networks", "subnets"} {
		all, err := b.made(ctx, kind, url.Values{"fields": {"id", "description", "project_id"}})
		if err != nil {
			return nil, err
		}
		for _, l := range all {
			if key, ours := strings.CutPrefix(l.Description, c.mark("")); ours && key != "" {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys), nil
}

// DeleteSubnet deletes what was made for a key: subnets, and networks. What is not there is
// success. While ports use it, Neutron refuses.
func (c *Client) DeleteSubnet(ctx context.Context, key string) error {
	if key == "" {
		return errors.New("DeleteSubnet without a key")
	}
	ctx, cancel, b := c.begin(ctx)
	defer cancel()
	for _, kind := range []string{"subnet", "network"} {
		ids, err := b.idsOf(ctx, kind, c.mark(key), "")
		if err != nil {
			return err
		}
		for _, id := range ids {
			err := b.repeat(ctx, fmt.Sprintf("delete %s %s", kind, id), func(ctx context.Context, s *gophercloud.ServiceClient) error {
				resp, err := s.Delete(ctx, s.ServiceURL(kind+"s", id), nil)
				if err == nil {
					resp.Body.Close()
				}
				return err
			})
			if err != nil && reasonOf(err) != NotFound {
				return err
			}
		}
	}
	return nil
}

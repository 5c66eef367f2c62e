package neutron

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
)

// Ensure returns the claim's port, and makes it if there is none that fits. It may be called
// again, and by several at once, for one claim.
//
// The claim's ports are listed before one is made, and after. So an answer that was lost makes
// no second port, and if two made one each, both see both, and choose the same unless one has
// been told of another ([Want.Port]). What then is too many is in [Port.Surplus]. A port that
// Neutron makes after it has let the time limit of the request pass is seen by the next call.
//
// A port of the claim that somebody has taken addresses off gets them again.
func (c *Client) Ensure(ctx context.Context, w Want) (Port, error) {
	if err := w.check(); err != nil {
		return Port{}, err
	}
	ctx, cancel, b := c.begin(ctx)
	defer cancel()
	op := fmt.Sprintf("make a port for claim %s on network %s", w.Claim, w.Network)
	for {
		found, err := b.portsOf(ctx, w)
		if err != nil {
			return Port{}, err
		}
		if p, ok := choose(w, found[w.Claim]); ok {
			return p, nil
		}
		var made *ports.Port
		failed := b.request(ctx, c.cfg.CallTimeout, func(ctx context.Context, s *gophercloud.ServiceClient) (err error) {
			if p, ok := damaged(w, found[w.Claim]); ok {
				made, err = ports.Update(ctx, s, p.ID, w.repair(p)).Extract()
				return err
			}
			made, err = ports.Create(ctx, s, w.body(c.owner())).Extract()
			return err
		})
		reason := reasonOf(explain(op, failed))
		switch {
		case reason == Unavailable && b.again(ctx, failed):
			continue
		case reason == Changed && b.retries > 0:
			b.retries--
			continue
		case failed != nil && reason != AddressInUse:
			return Port{}, explain(op, failed)
		}
		// Another one may have been made meanwhile, and have the address.
		found, err = b.portsOf(ctx, w)
		if p, ok := choose(w, found[w.Claim]); ok {
			return p, nil
		}
		if failed != nil {
			return Port{}, b.withHolder(ctx, w, explain(op, failed))
		}
		if err != nil {
			return portOf(*made), nil // it is there; whether others are, the next call sees
		}
		return Port{}, &Error{Reason: Unavailable, Message: op + ": it was made, and somebody has deleted or changed it: see who does"}
	}
}

// portsOf returns the ports that the claims of all have, by claim.
func (b *budget) portsOf(ctx context.Context, all ...Want) (map[string][]Port, error) {
	q := url.Values{}
	for _, w := range all {
		q.Add("device_id", w.Claim)
	}
	op := "list the ports of claim " + all[0].Claim
	if len(all) > 1 {
		op = fmt.Sprintf("list the ports of %d claims", len(all))
	}
	found, err := b.ours(ctx, op, q)
	of := map[string][]Port{}
	for _, p := range found {
		of[p.Claim] = append(of[p.Claim], p)
	}
	return of, err
}

// withHolder returns err, which says that an address of w is in use, with the port that has
// it, if Neutron shows that.
func (b *budget) withHolder(ctx context.Context, w Want, err error) error {
	inUse, q := err.(*Error), url.Values{"network_id": {w.Network}} //nolint:errorlint // of explain, which wraps none
	for _, a := range w.Addresses {
		if a.Addr.IsValid() {
			q.Add("fixed_ips", "ip_address="+a.Addr.String())
		}
	}
	if q.Get("fixed_ips") == "" {
		return err
	}
	found, listErr := b.list(ctx, "look for who has the address", q)
	found = slices.DeleteFunc(found, func(p Port) bool { return p.Owner == b.c.owner() && p.Claim == w.Claim })
	if listErr != nil || len(found) == 0 {
		return err // who has it is an addition
	}
	p := found[0]
	inUse.Holder = &Holder{PortID: p.ID, DeviceID: p.Claim, DeviceOwner: p.Owner}
	inUse.Message += fmt.Sprintf("; port %s of device %q, %q, has it", p.ID, p.Claim, p.Owner)
	return inUse
}

// Ensured is what [Client.EnsureMany] has for one claim.
type Ensured struct {
	Port Port
	Err  error // an [Error], as Ensure has them
}

// bulk is how many ports are asked for in one request: so many that listing before and after
// costs little, and so few that a slow Neutron, which makes eight a second, is soon done.
const bulk = 20

// EnsureMany is [Client.Ensure] of many claims, which must differ: the answer has one element
// for each, in their order. It makes ports by 20 in one request, of which Neutron makes all or
// none: where it refuses, each claim is tried by itself, so that one does not fail the others.
// Once Neutron is [Unavailable], or does not let us list, what is left fails with that and is
// not tried. Each 20 claims, and each that is tried by itself, have a budget of their own.
func (c *Client) EnsureMany(ctx context.Context, wants []Want) []Ensured {
	all := make([]Ensured, len(wants))
	var away error
	for from := 0; from < len(wants); from += bulk {
		chunk, done := wants[from:min(from+bulk, len(wants))], all[from:]
		if away == nil {
			away = c.ensureChunk(ctx, chunk, done)
		}
		for i, w := range chunk {
			switch {
			case done[i].Port.ID != "" || done[i].Err != nil:
			case away != nil:
				done[i].Err = away
			default:
				done[i].Port, done[i].Err = c.Ensure(ctx, w)
				if reasonOf(done[i].Err) == Unavailable {
					away = done[i].Err
				}
			}
		}
	}
	return all
}

// ensureChunk writes into done what ports there are for wants after it has made in one request
// those that are missing. It leaves out what it could not make. Its error is why nothing else
// is worth a try.
func (c *Client) ensureChunk(ctx context.Context, wants []Want, done []Ensured) error {
	ctx, cancel, b := c.begin(ctx)
	defer cancel()
	for {
		missing, err := b.collect(ctx, wants, done)
		if err != nil || len(missing) < 2 {
			return err
		}
		op := fmt.Sprintf("make %d ports at once", len(missing))
		err = explain(op, b.request(ctx, c.cfg.Timeout, func(ctx context.Context, s *gophercloud.ServiceClient) error {
			return c.createAll(ctx, s, missing)
		}))
		if reasonOf(err) != Unavailable {
			_, err := b.collect(ctx, wants, done)
			return err
		}
		if !b.again(ctx, err) {
			return err
		}
	}
}

// collect writes into done the ports that wants have, and returns those that have none. It leaves
// out those whose port is damaged.
func (b *budget) collect(ctx context.Context, wants []Want, done []Ensured) (missing []Want, err error) {
	sound := slices.DeleteFunc(slices.Clone(wants), func(w Want) bool { return w.check() != nil })
	if len(sound) == 0 {
		return nil, nil
	}
	found, err := b.portsOf(ctx, sound...)
	if err != nil {
		return nil, err
	}
	for i, w := range wants {
		if p, ok := choose(w, found[w.Claim]); ok {
			done[i].Port = p
		} else if _, broken := damaged(w, found[w.Claim]); !broken && w.check() == nil {
			missing = append(missing, w)
		}
	}
	return missing, nil
}

// createAll makes the ports of wants in one request.
func (c *Client) createAll(ctx context.Context, s *gophercloud.ServiceClient, wants []Want) error {
	bodies := make([]any, 0, len(wants))
	for _, w := range wants {
		body, err := w.body(c.owner()).ToPortCreateMap()
		if err != nil {
			return err
		}
		bodies = append(bodies, body["port"])
	}
	// What was made is listed afterwards.
	resp, err := s.Post(ctx, s.ServiceURL("ports"), map[string]any{"ports": bodies}, nil, &gophercloud.RequestOpts{OkCodes: []int{http.StatusCreated}})
	if err == nil {
		resp.Body.Close()
	}
	return err
}

package agent

import (
	"net/netip"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// result returns what the plugin is told: the attachment's addresses, with routes
// and DNS of the configuration, then of its pools. What the configuration says of
// a destination, or of DNS, its pools do not say again. A pool's route comes only with
// an address of that pool and of its own family: interface plugins fail with any other.
func (a *Agent) result(conf *poolspec.Config, att store.Attachment) (*agentapi.Result, error) {
	res, err := assign.Result(conf, att)
	if err != nil {
		return nil, err
	}
	said := map[netip.Prefix]bool{}
	for _, r := range res.Routes {
		said[r.Dst] = true
	}
	for _, addr := range att.Addresses {
		known, _, _ := a.pools.get(addr.Pool).now()
		if known == nil {
			return nil, &notReadyError{Pool: addr.Pool, Why: "has not been read yet: its routes are not known"}
		}
		for _, r := range known.Routes {
			if said[r.Dst] || allocator.FamilyOf(r.Dst.Addr()) != allocator.FamilyOf(addr.Addr) {
				continue
			}
			said[r.Dst] = true
			if !r.GW.IsValid() {
				r.GW = addr.Gateway // left out, the plugins take that of the interface's first address
			}
			res.Routes = append(res.Routes, agentapi.Route(r))
		}
		if res.DNS.IsZero() && conf.ResolvConf == "" {
			res.DNS = agentapi.DNS(known.DNS)
		}
	}
	return res, assign.Reach(conf, res)
}

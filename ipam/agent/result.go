package agent

import (
	"net/netip"

	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/store"
	"github.com/tenure-ipam/tenure/ipam/wire"
)

// result returns what the plugin is told: the attachment's addresses, and routes
// and DNS of the configuration, then of its pools.
func (a *Agent) result(conf *poolspec.Config, att store.Attachment) *wire.Result {
	res := &wire.Result{}
	for _, addr := range att.Addresses {
		res.IPs = append(res.IPs, wire.IP{Address: netip.PrefixFrom(addr.Addr, addr.Bits), Gateway: addr.Gateway})
	}
	res.DNS = wire.DNS(conf.DNS)
	has := map[netip.Prefix]bool{}
	for _, r := range conf.Routes {
		has[r.Dst] = true
		res.Routes = append(res.Routes, wire.Route(r))
	}
	for _, addr := range att.Addresses {
		p, err := a.pool(addr.Pool)
		if err != nil {
			continue
		}
		known, _, _ := p.now()
		if known == nil {
			continue
		}
		for _, r := range known.Routes {
			if !has[r.Dst] {
				has[r.Dst] = true
				res.Routes = append(res.Routes, wire.Route(r))
			}
		}
		if res.DNS.IsZero() && conf.ResolvConf == "" {
			res.DNS = wire.DNS(known.DNS)
		}
	}
	return res
}

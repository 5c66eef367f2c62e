package plugin

import (
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/lean/plainjson"
)

// printResult prints r in a version of CNI, the configuration's. An IPAM plugin's result
// has no interfaces.
func (c *call) printResult(r agentapi.Result, version string) error {
	switch version {
	case "1.0.0", "1.1.0": // by hand: the CNI library takes 0.1 ms for it
		b := plainjson.AppendText([]byte(`{"cniVersion":`), version)
		_, err := c.Stdout.Write(append(r.AppendMembers(b), '}', '\n'))
		return err
	}
	versioned, err := libraryResult(r).GetAsVersion(version)
	if err != nil {
		return err
	}
	return versioned.PrintTo(c.Stdout)
}

// libraryResult returns r as the CNI library has it.
func libraryResult(r agentapi.Result) *types100.Result {
	result := &types100.Result{CNIVersion: types100.ImplementedSpecVersion, DNS: types.DNS(r.DNS)}
	for _, ip := range r.IPs {
		result.IPs = append(result.IPs, &types100.IPConfig{Address: ipNet(ip.Address), Gateway: ip.Gateway.AsSlice()})
	}
	for _, route := range r.Routes {
		result.Routes = append(result.Routes, &types.Route{
			Dst: ipNet(route.Dst), GW: route.GW.AsSlice(),
			MTU: route.MTU, AdvMSS: route.AdvMSS, Priority: route.Priority, Table: route.Table, Scope: route.Scope,
		})
	}
	return result
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

package npwg

import (
	"net/netip"
	"slices"
)

// StatusOf builds the status of an attachment from its result (5.1.1); nil stands
// for an ADD that answered none.
func StatusOf(a Attachment, r *Result) Status {
	s := Status{Name: a.Name, Interface: a.IfName, Default: a.Default, DeviceInfo: a.DeviceInfo, GUID: a.GUID}
	if r == nil {
		s.Interface = "" // the minimal map
		return s
	}
	first := slices.IndexFunc(r.Interfaces, func(i Interface) bool { return i.Sandbox != "" })
	if first >= 0 && r.Interfaces[first].Name != "" {
		s.Interface, s.MAC = r.Interfaces[first].Name, r.Interfaces[first].MAC
	}
	for _, ip := range statusIPs(r, first) {
		text := ip.Address.Addr().String()
		if a.CIDRs {
			text = ip.Address.String()
		}
		s.IPs = append(s.IPs, text)
	}
	if d := r.DNS; len(d.Nameservers) > 0 || d.Domain != "" || len(d.Search) > 0 {
		s.DNS = &d
	}
	gateways := gateways(a, r)
	s.Gateway = gateways
	if a.DefaultRoute != nil {
		s.DefaultRoute = gateways
	}
	return s
}

// statusIPs returns the addresses of the interface with index first, which is -1
// if no interface of the result is the pod's (5.3.3.1). It goes beyond the text in
// two points: all addresses of an interface are shown, not one; and if no address
// has an index, they are taken for the first interface's, as many plugins mean it.
func statusIPs(r *Result, first int) (ips []IP) {
	indexed := slices.ContainsFunc(r.IPs, func(ip IP) bool { return ip.hasIndex() })
	var seen [2]bool // by family
	for _, ip := range r.IPs {
		switch {
		case first >= 0 && ip.hasIndex():
			if *ip.Interface == first {
				ips = append(ips, ip)
			}
		case ip.hasIndex() || first >= 0 && indexed:
		case first >= 0:
			ips = append(ips, ip)
		default: // rule 2: the first one, of each family
			family := 0
			if ip.Address.Addr().Is6() {
				family = 1
			}
			if !seen[family] {
				seen[family] = true
				ips = append(ips, ip)
			}
		}
	}
	return ips
}

func (ip IP) hasIndex() bool { return ip.Interface != nil && *ip.Interface >= 0 }

// gateways returns the gateways of an attachment's default routes: those asked
// for, else those of the result.
func gateways(a Attachment, r *Result) (all []string) {
	if a.DefaultRoute != nil && len(*a.DefaultRoute) > 0 {
		for _, gateway := range *a.DefaultRoute {
			all = append(all, gateway.String())
		}
		return all
	}
	for _, route := range r.Routes {
		if !IsDefault(route.Dst) {
			continue
		}
		gateway := route.Gateway
		if !gateway.IsValid() {
			gateway = r.gatewayOf(route.Dst)
		}
		if text := gateway.String(); gateway.IsValid() && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

// gatewayOf returns the gateway of the result's first address of dst's family that
// has one: a route without a gateway of its own goes there.
func (r *Result) gatewayOf(dst netip.Prefix) netip.Addr {
	for _, ip := range r.IPs {
		if ip.Gateway.IsValid() && ip.Gateway.Is4() == dst.Addr().Is4() {
			return ip.Gateway
		}
	}
	return netip.Addr{}
}

// IsDefault reports whether dst is everything of its family: 0.0.0.0/0 or ::/0, but
// not one half of it as in 0.0.0.0/1.
func IsDefault(dst netip.Prefix) bool {
	return dst.IsValid() && dst.Bits() == 0
}

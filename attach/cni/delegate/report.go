package delegate

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/attach/facts"
)

// ReasonDevice is of the warning that a device's information cannot be shown.
const ReasonDevice = "InvalidDeviceInfo"

// report returns what the agent is told of a plan that was carried out.
func (a *attaching) report() (r facts.Report, err error) {
	r = facts.Report{Pod: a.Plan.Pod, ContainerID: a.ContainerID, Made: a.now(), Warnings: slices.Clone(a.Plan.Warnings)}
	var noDevice []facts.Warning
	list := make([]npwg.Status, len(a.done))
	for i, s := range a.Plan.Steps {
		device := a.done[i].device
		if device != nil {
			if err := npwg.CheckDeviceInfo(device); err != nil {
				device = nil
				noDevice = append(noDevice, facts.Warning{Reason: ReasonDevice, Message: fmt.Sprintf("network %s, interface %s: not shown in the status: %v", s.Name, s.IfName, err)})
			}
		}
		list[i] = npwg.StatusOf(npwg.Attachment{
			Name: s.Name, IfName: s.IfName, Default: s.Default, DefaultRoute: s.DefaultRoute, GUID: s.GUID,
			DeviceInfo: device, CIDRs: a.CIDRs,
		}, plain(a.done[i].full))
		if s.Default {
			for _, w := range a.Plan.Warnings {
				list[i].Warnings = append(list[i].Warnings, w.Message)
			}
		}
	}
	r.Warnings = append(r.Warnings, facts.Limit(noDevice)...)
	if r.PodIPs, err = a.podIPs(); err != nil {
		return r, err
	}
	r.Status, err = json.Marshal(list)
	return r, err
}

// podIPs returns the addresses of a pod that lists PodNetworks, for its annotation; nil of any
// other.
func (a *attaching) podIPs() (json.RawMessage, error) {
	all := []podnetwork.PodIP{} // where there are none, the annotation is an empty list
	lists := false
	for i, s := range a.Plan.Steps {
		if s.PodNetwork == "" {
			continue
		}
		lists = true
		for _, ip := range podAddresses(a.done[i].full) {
			all = append(all, podnetwork.PodIP{IP: ip, Network: s.PodNetwork, Interface: s.IfName})
		}
	}
	if !lists {
		return nil, nil
	}
	return json.Marshal(all)
}

// now returns the time by which reports are put in order.
func (r *Runner) now() facts.Made {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return facts.Made{} // of unknown age
	}
	return facts.Made{Boot: r.Boot, After: ts.Nano()}
}

// plain returns a result in the terms of the specification's status, nil for one
// that says nothing.
func plain(r *types100.Result) *npwg.Result {
	if saysNothing(r) {
		return nil
	}
	p := &npwg.Result{DNS: npwg.DNS{Nameservers: r.DNS.Nameservers, Domain: r.DNS.Domain, Search: r.DNS.Search}}
	for _, i := range r.Interfaces {
		p.Interfaces = append(p.Interfaces, npwg.Interface{Name: i.Name, MAC: i.Mac, Sandbox: i.Sandbox})
	}
	for _, ip := range r.IPs {
		p.IPs = append(p.IPs, npwg.IP{Address: prefix(ip.Address), Gateway: addr(ip.Gateway), Interface: ip.Interface})
	}
	for _, to := range r.Routes {
		p.Routes = append(p.Routes, npwg.Route{Dst: prefix(to.Dst), Gateway: addr(to.GW)})
	}
	return p
}

func saysNothing(r *types100.Result) bool {
	return len(r.Interfaces)+len(r.IPs)+len(r.Routes) == 0 && r.DNS.IsEmpty()
}

// addr is where the library's addresses become typed; none is the zero Addr.
func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

func prefix(n net.IPNet) netip.Prefix {
	a := addr(n.IP)
	ones, bits := n.Mask.Size()
	return netip.PrefixFrom(a, ones-bits+a.BitLen()) // an IPv4 address may be written as one of IPv6
}

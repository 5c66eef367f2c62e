package delegate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/tenure-ipam/tenure/attach/cni/route"
	"github.com/tenure-ipam/tenure/attach/plan"
)

// verify reports whether a result shows what the selection asked for (version 1,
// 4.1.2.1.3.2 and 4.1.2.1.4.2; checked in every version, since a plugin may declare
// a capability and ignore it).
func verify(s plan.Step, r *types100.Result, netns string) error {
	if s.PodNetwork != "" && !s.Default {
		if err := onePerFamily(podAddresses(r)); err != nil {
			return err
		}
	}
	own := ownInterface(s, r)
	got := addressesOf(own, r)
	for _, want := range s.Requested.IPs {
		if !slices.Contains(got, want) {
			return fmt.Errorf("address %s was asked for, and the result has %v on the attachment's interface: does the network's IPAM plugin honour requested addresses?", want, got)
		}
	}
	if s.Requested.MAC == "" {
		return nil
	}
	mac := ""
	if own >= 0 {
		mac = r.Interfaces[own].Mac
	}
	if mac == "" { // results older than 0.3.0 have none
		var err error
		if mac, err = route.HardwareAddr(netns, s.IfName); err != nil {
			return fmt.Errorf("hardware address %s was asked for, and the result has none: %w", s.Requested.MAC, err)
		}
	}
	if !strings.EqualFold(mac, s.Requested.MAC) {
		return fmt.Errorf("hardware address %s was asked for, and the interface has %s: does a plugin of the network honour requested hardware addresses?", s.Requested.MAC, mac)
	}
	return nil
}

// onePerFamily reports whether there are two addresses of one family: a pod has one at most of a
// PodNetwork.
func onePerFamily(all []netip.Addr) error {
	for i, a := range all {
		for _, b := range all[i+1:] {
			if a.Is4() == b.Is4() {
				return fmt.Errorf("it gave the addresses %s and %s; a pod has one address of a family of a PodNetwork: change the network's configuration", a, b)
			}
		}
	}
	return nil
}

// podAddresses returns the addresses of a result but for those that it says are
// the host's.
func podAddresses(r *types100.Result) (addrs []netip.Addr) {
	for _, ip := range r.IPs {
		if i := ip.Interface; i != nil && *i >= 0 && *i < len(r.Interfaces) && r.Interfaces[*i].Sandbox == "" {
			continue
		}
		if a, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			addrs = append(addrs, a.Unmap())
		}
	}
	return addrs
}

// ownInterface returns the index of the attachment's interface: that with its name, else the pod's
// first. It is -1 if no interface of the result is the pod's.
func ownInterface(s plan.Step, r *types100.Result) int {
	first := -1
	for n, i := range r.Interfaces {
		switch {
		case i.Sandbox == "":
		case i.Name == s.IfName:
			return n
		case first < 0:
			first = n
		}
	}
	return first
}

// addressesOf returns the addresses of the interface with that index, as the status shows them. If
// the result names an interface for no address, all of them are this interface's: many plugins mean
// that.
func addressesOf(own int, r *types100.Result) (addrs []netip.Addr) {
	hasIndex := func(ip *types100.IPConfig) bool { return ip.Interface != nil && *ip.Interface >= 0 }
	indexed := own >= 0 && slices.ContainsFunc(r.IPs, hasIndex)
	for _, ip := range r.IPs {
		if hasIndex(ip) && *ip.Interface != own || !hasIndex(ip) && indexed {
			continue
		}
		if a := addr(ip.Address.IP); a.IsValid() {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

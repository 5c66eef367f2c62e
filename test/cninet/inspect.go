package cninet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Route is one route of a namespace's main table.
type Route struct {
	Dst       netip.Prefix // 0.0.0.0/0 or ::/0 for a default route
	Via       netip.Addr   // invalid if Dst is on the link
	Interface string
}

// Interfaces returns the names of the namespace's interfaces.
func (n NS) Interfaces() (names []string, err error) {
	err = n.inspect(func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			names = append(names, l.Attrs().Name)
		}
		return err
	})
	return names, err
}

// HasInterface reports whether the namespace has the interface ifName.
func (n NS) HasInterface(ifName string) (ok bool, err error) {
	err = n.inspect(func() error {
		_, err := netlink.LinkByName(ifName)
		ok = err == nil
		if _, absent := errors.AsType[netlink.LinkNotFoundError](err); absent {
			return nil
		}
		return err
	})
	return ok, err
}

// Addrs returns the addresses of the interface ifName with their prefix
// lengths, IPv4 first. Link-local IPv6 addresses, which every interface has,
// are left out.
func (n NS) Addrs(ifName string) (addrs []netip.Prefix, err error) {
	err = n.inspect(func() error {
		link, err := netlink.LinkByName(ifName)
		if err != nil {
			return err
		}
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			list, err := netlink.AddrList(link, family)
			if err != nil {
				return err
			}
			for _, a := range list {
				if p := prefix(a.IPNet); !p.Addr().IsLinkLocalUnicast() {
					addrs = append(addrs, p)
				}
			}
		}
		return nil
	})
	return addrs, err
}

// Routes returns the routes of the main table, IPv4 first. Those that the
// kernel makes for IPv6 link-local and multicast addresses are left out.
func (n NS) Routes() (routes []Route, err error) {
	err = n.inspect(func() error {
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			list, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
			if err != nil {
				return err
			}
			for _, r := range list {
				route, err := typedRoute(family, r)
				if err != nil {
					return err
				}
				if a := route.Dst.Addr(); !a.IsLinkLocalUnicast() && !a.IsMulticast() {
					routes = append(routes, route)
				}
			}
		}
		return nil
	})
	return routes, err
}

func typedRoute(family int, r netlink.Route) (Route, error) {
	link, err := netlink.LinkByIndex(r.LinkIndex)
	if err != nil {
		return Route{}, err
	}
	route := Route{Interface: link.Attrs().Name}
	switch {
	case r.Dst != nil:
		route.Dst = prefix(r.Dst)
	case family == netlink.FAMILY_V4:
		route.Dst = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	default:
		route.Dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	if via, ok := netip.AddrFromSlice(r.Gw); ok {
		route.Via = via.Unmap()
	}
	return route, nil
}

// prefix is where the kernel's addresses, as the library shows them, become
// typed. It returns the zero Prefix for none.
func prefix(n *net.IPNet) netip.Prefix {
	a, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), bits)
}

// inspect runs look in the namespace and says where it was if it fails.
func (n NS) inspect(look func() error) error {
	if err := n.Do(look); err != nil {
		return fmt.Errorf("inspect %s: %w", n.Path(), err)
	}
	return nil
}

package route

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Apply makes the change in the network namespace at path, all of it or, when it
// returns an error, nothing.
func (c Change) Apply(path string) error {
	return inside("default routes", path, func(h *netlink.Handle, ns netns.NsHandle) error {
		keeper, err := links(h, c.Keeper)
		if err != nil {
			return err
		}
		// First: an advertisement between the two would bring a route back.
		hear, err := c.deaf(h, ns)
		if err != nil {
			return err
		}
		if err := c.move(h, keeper); err != nil {
			return errors.Join(err, hear())
		}
		return nil
	})
}

// move changes the routes, or nothing.
func (c Change) move(h *netlink.Handle, keeper []int) error {
	var remove, add []netlink.Route
	for _, f := range c.Families() {
		there, err := defaultRoutes(h, f)
		if err != nil {
			return err
		}
		want := c.defaults(f)
		unsaid := len(want) == 0
		for _, r := range there {
			if unsaid && belongs(r, keeper) {
				continue // its plugin has set it and does not say so
			}
			if i := slices.IndexFunc(want, func(d Default) bool { return d.stands(r) && belongs(r, keeper) }); i >= 0 {
				want = slices.Delete(want, i, i+1)
				continue // as its plugin has set it, with all that it has beside
			}
			remove = append(remove, r)
			if unsaid {
				add = append(add, hopsOf(r, keeper)...)
			}
		}
		for _, d := range want {
			add = append(add, d.toNetlink(f, keeper[0]))
		}
	}
	return replace(h, remove, add)
}

// replace removes routes and adds others; after an error all is as it was, or the
// error says what is not.
func replace(h *netlink.Handle, remove, add []netlink.Route) error {
	for i, r := range remove {
		if err := h.RouteDel(&r); err != nil && !errors.Is(err, syscall.ESRCH) {
			return errors.Join(fmt.Errorf("remove default route %s: %w", describe(r), err), restore(h, remove[:i], nil))
		}
	}
	for i, r := range add {
		if err := h.RouteAppend(&r); err != nil { // beside others of the same metric
			why := ""
			if errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH) {
				why = ": the gateway is in no network of the interface"
			}
			return errors.Join(fmt.Errorf("add default route %s: %w%s", describe(r), err, why), restore(h, remove, add[:i]))
		}
	}
	return nil
}

// restore takes back what replace has done.
func restore(h *netlink.Handle, removed, added []netlink.Route) error {
	var errs []error
	for _, r := range added {
		if err := h.RouteDel(&r); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("take default route %s back: %w", describe(r), err))
		}
	}
	for _, r := range removed {
		if err := h.RouteAppend(&r); err != nil && !errors.Is(err, syscall.EEXIST) {
			errs = append(errs, fmt.Errorf("put default route %s back: %w", describe(r), err))
		}
	}
	return errors.Join(errs...)
}

// Check reports what has changed since Apply: want are the default routes that the
// keeper's interfaces should have, and nobody else may have any of the families
// that the change is about.
func (c Change) Check(path string, want []Default) error {
	return inside("default routes", path, func(h *netlink.Handle, _ netns.NsHandle) error {
		keeper, err := links(h, c.Keeper)
		if err != nil {
			return err
		}
		var errs []error
		for _, f := range c.Families() {
			there, err := defaultRoutes(h, f)
			if err != nil {
				return err
			}
			for _, r := range there {
				if !belongs(r, keeper) {
					errs = append(errs, fmt.Errorf("default route %s is not of %s", describe(r), strings.Join(c.Keeper, ", ")))
				}
			}
			for _, d := range want {
				if familyOf(d.Gateway) == f && !slices.ContainsFunc(there, func(r netlink.Route) bool { return d.matches(r) && belongs(r, keeper) }) {
					errs = append(errs, fmt.Errorf("default route via %s dev %s is missing", d.Gateway, c.Keeper[0]))
				}
			}
		}
		return errors.Join(errs...)
	})
}

// matches reports whether r is the route d, or has it among others. Where d leaves the metric to
// the kernel, any metric will do.
func (d Default) matches(r netlink.Route) bool {
	through := func(gw net.IP) bool {
		g, _ := netip.AddrFromSlice(gw)
		return g.Unmap() == d.Gateway
	}
	hop := slices.ContainsFunc(r.MultiPath, func(hop *netlink.NexthopInfo) bool { return through(hop.Gw) })
	return (hop || through(r.Gw)) && (d.Metric == 0 || d.Metric == r.Priority)
}

// stands reports whether r is the route d, with the very metric that d would have. One that
// a router has advertised is not: it ends when no more advertisements are heard.
func (d Default) stands(r netlink.Route) bool {
	kernels := 0
	if familyOf(d.Gateway) == IPv6 {
		kernels = 1024
	}
	return d.matches(r) && len(r.MultiPath) == 0 && r.Protocol != unix.RTPROT_RA && r.Priority == cmp.Or(d.Metric, kernels)
}

// toNetlink returns the route in the form of the library.
func (d Default) toNetlink(f Family, link int) netlink.Route {
	dst := &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
	if f == IPv6 {
		dst = &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	}
	return netlink.Route{Family: f.kernel(), LinkIndex: link, Dst: dst, Gw: d.Gateway.AsSlice(), Priority: d.Metric, Table: unix.RT_TABLE_MAIN}
}

func (f Family) kernel() int {
	if f == IPv4 {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

// defaultRoutes returns the default routes of a family in the main table.
func defaultRoutes(h *netlink.Handle, f Family) ([]netlink.Route, error) {
	all, err := h.RouteListFiltered(f.kernel(), &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	return slices.DeleteFunc(all, func(r netlink.Route) bool {
		if r.Type != unix.RTN_UNICAST {
			return true
		}
		if r.Dst == nil {
			return false
		}
		ones, _ := r.Dst.Mask.Size()
		return ones != 0 || !r.Dst.IP.IsUnspecified()
	}), nil
}

// belongs reports whether r leads through these interfaces alone.
func belongs(r netlink.Route, links []int) bool {
	for _, hop := range r.MultiPath {
		if !slices.Contains(links, hop.LinkIndex) {
			return false
		}
	}
	return len(r.MultiPath) > 0 || slices.Contains(links, r.LinkIndex)
}

// hopsOf returns the hops of a route through these interfaces, as routes of their
// own: the kernel makes one route of several that differ in nothing else.
func hopsOf(r netlink.Route, links []int) (routes []netlink.Route) {
	for _, hop := range r.MultiPath {
		if slices.Contains(links, hop.LinkIndex) {
			one := r
			one.MultiPath, one.LinkIndex, one.Gw = nil, hop.LinkIndex, hop.Gw
			routes = append(routes, one)
		}
	}
	return routes
}

// describe says of a route what people ask first.
func describe(r netlink.Route) string {
	if len(r.MultiPath) > 0 {
		return fmt.Sprintf("with %d gateways", len(r.MultiPath))
	}
	if r.Gw == nil {
		return fmt.Sprintf("through interface %d", r.LinkIndex)
	}
	return fmt.Sprintf("via %s through interface %d", r.Gw, r.LinkIndex)
}

// links returns the indices of interfaces.
func links(h *netlink.Handle, names []string) ([]int, error) {
	if len(names) == 0 {
		return nil, errors.New("the attachment with default-route has no interface in the pod")
	}
	var indices []int
	for _, name := range names {
		link, err := h.LinkByName(name)
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", name, err)
		}
		indices = append(indices, link.Attrs().Index)
	}
	return indices, nil
}

// inside runs do on the network namespace at path. An error says what it is about.
func inside(what, path string, do func(*netlink.Handle, netns.NsHandle) error) error {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("%s: network namespace %s: %w", what, path, err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("%s: network namespace %s: %w", what, path, err)
	}
	defer h.Close()
	if err := do(h, ns); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// HardwareAddr returns the hardware address of an interface in the network
// namespace at path, in lower case.
func HardwareAddr(path, name string) (addr string, err error) {
	err = inside("interface "+name, path, func(h *netlink.Handle, _ netns.NsHandle) error {
		link, err := h.LinkByName(name)
		if err == nil {
			addr = link.Attrs().HardwareAddr.String()
		}
		return err
	})
	return addr, err
}

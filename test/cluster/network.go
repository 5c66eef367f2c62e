package cluster

import (
	"fmt"
	"net"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tenure-ipam/tenure/test/cninet"
	"github.com/tenure-ipam/tenure/test/controlplane"
)

// The network of the machines: see the package's documentation.
const (
	nodesBridge = "br-nodes"
	lanBridge   = "br-lan"

	// Host is the address by which nodes and pods reach what runs beside the cluster, where that
	// has IPv4.
	Host = "10.222.0.1"
)

// A family is what the cluster's own network has of IPv4 or of IPv6.
type family struct {
	host     string // the address of what runs beside the cluster
	nodes    string // with the number of a node, its address
	bits     int    // the length of the prefix of the nodes' network
	pods     string // the pods' default networks of all nodes
	podsIn   string // with the number of a node, that of this one
	services string
	all      string // every address
}

var (
	ipv4 = family{Host, "10.222.0.%d", 24, "10.244.0.0/16", "10.244.%d.0/24", "10.0.0.0/24", "0.0.0.0/0"}
	ipv6 = family{"fd00:222::1", "fd00:222::%d", 64, "fd00:244::/48", "fd00:244:0:%d::/64", "fd00:10::/112", "::/0"}
)

// envFamilies is the variable that says which families the cluster has: ipv4, which stands for
// nothing said, ipv6, or dual for both.
const envFamilies = "TENURE_FAMILIES"

func familiesOf(said string) ([]family, error) {
	all, ok := map[string][]family{"": {ipv4}, "ipv4": {ipv4}, "ipv6": {ipv6}, "dual": {ipv4, ipv6}}[said]
	if !ok {
		return nil, fmt.Errorf("%s is %q, must be ipv4, ipv6 or dual", envFamilies, said)
	}
	return all, nil
}

// ofEach returns what of returns for each family.
func ofEach(families []family, of func(family) string) (all []string) {
	for _, f := range families {
		all = append(all, of(f))
	}
	return all
}

// node is the address of node i.
func (f family) node(i int) string { return fmt.Sprintf(f.nodes, 10+i) }

// podsOf is the range of the pods' default network on node i.
func (f family) podsOf(i int) string { return fmt.Sprintf(f.podsIn, i) }

// onNodes is an address with the prefix of the nodes' network.
func (f family) onNodes(address string) string { return fmt.Sprintf("%s/%d", address, f.bits) }

// makeSwitches makes the two networks and the control plane's addresses.
func makeSwitches(families []family) error {
	sandbox := cninet.NS{}
	for _, name := range []string{nodesBridge, lanBridge} {
		if err := sandbox.Bridge(name); err != nil {
			return err
		}
	}
	return addAddresses(nodesBridge, ofEach(families, func(f family) string { return f.onNodes(f.host) })...)
}

// connect makes the network of node i out of n nodes.
func connect(n *Node, nodes int, families []family) (err error) {
	if n.net, err = cninet.Make(n.Name); err != nil {
		return err
	}
	for ifName, bridge := range map[string]string{"eth0": nodesBridge, "eth1": lanBridge} {
		port := n.Name + "-" + ifName
		if err := cninet.Veth(cninet.NS{}, port, n.net, ifName); err != nil {
			return err
		}
		if err := enslave(port, bridge); err != nil {
			return err
		}
	}
	for _, f := range families {
		err = n.net.Do(func() error { return route(n, nodes, f) })
		if err != nil {
			return fmt.Errorf("connect %s: %w", n.Name, err)
		}
		if err := addRoute(f.podsOf(n.index), f.node(n.index)); err != nil {
			return err
		}
	}
	return nil
}

// route has the current namespace, which is that of a node out of nodes, reach all others.
func route(n *Node, nodes int, f family) error {
	if err := addAddresses("eth0", f.onNodes(f.node(n.index))); err != nil {
		return err
	}
	if err := addRoute(f.all, f.host); err != nil {
		return err
	}
	for j := 1; j <= nodes; j++ {
		if j == n.index {
			continue
		}
		if err := addRoute(f.podsOf(j), f.node(j)); err != nil {
			return err
		}
	}
	for _, parameter := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		if err := os.WriteFile("/proc/sys/net/"+parameter, []byte("1"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func enslave(port, bridge string) error {
	link, err := netlink.LinkByName(port)
	if err != nil {
		return fmt.Errorf("find %s: %w", port, err)
	}
	master, err := netlink.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("find %s: %w", bridge, err)
	}
	if err := netlink.LinkSetMaster(link, master); err != nil {
		return fmt.Errorf("make %s a port of %s: %w", port, bridge, err)
	}
	return nil
}

// addAddresses gives addresses to an interface of the current namespace.
func addAddresses(ifName string, addresses ...string) error {
	link, err := netlink.LinkByName(ifName)
	if err != nil {
		return fmt.Errorf("find %s: %w", ifName, err)
	}
	for _, text := range addresses {
		address, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		address.Flags = unix.IFA_F_NODAD // an address of IPv6 may be used at once
		if err := netlink.AddrAdd(link, address); err != nil {
			return fmt.Errorf("give %s to %s: %w", text, ifName, err)
		}
	}
	return nil
}

// addRoute adds a route to the current namespace.
func addRoute(to, by string) error {
	_, dst, err := net.ParseCIDR(to)
	if err != nil {
		return err
	}
	if err := netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: net.ParseIP(by)}); err != nil {
		return fmt.Errorf("add a route to %s by %s: %w", to, by, err)
	}
	return nil
}

// reachAPI connects from the node with the API server's Service, as programs on it and
// in its pods do.
func (n *Node) reachAPI(f family) error {
	return n.Do(func() error {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(controlplane.ServiceAddress(f.services), "443"), time.Second)
		if err != nil {
			return fmt.Errorf("the Service of the API server: %w", err)
		}
		return conn.Close()
	})
}

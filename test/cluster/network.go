package cluster

import (
	"fmt"
	"net"
	"os"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/tenure-ipam/tenure/test/cninet"
	"github.com/tenure-ipam/tenure/test/controlplane"
)

// The network of the machines: see the package's documentation.
const (
	nodesBridge = "br-nodes"
	lanBridge   = "br-lan"

	// Host is the address by which nodes and pods reach what runs beside the cluster.
	Host = "10.222.0.1"
)

// podsRange has the pods' default networks of all nodes.
const podsRange = "10.244.0.0/16"

func nodeIP(i int) string { return fmt.Sprintf("10.222.0.%d", 10+i) }

// podRange is the range of the pods' default network on node i.
func podRange(i int) string { return fmt.Sprintf("10.244.%d.0/24", i) }

// makeSwitches makes the two networks and the control plane's address.
func makeSwitches() error {
	sandbox := cninet.NS{}
	for _, name := range []string{nodesBridge, lanBridge} {
		if err := sandbox.Bridge(name); err != nil {
			return err
		}
	}
	return addAddresses(nodesBridge, Host+"/24")
}

// connect makes the network of node i out of n nodes.
func connect(n *Node, nodes int) (err error) {
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
	err = n.net.Do(func() error {
		if err := addAddresses("eth0", n.IP+"/24"); err != nil {
			return err
		}
		if err := addRoute("0.0.0.0/0", Host); err != nil {
			return err
		}
		for j := 1; j <= nodes; j++ {
			if j == n.index {
				continue
			}
			if err := addRoute(podRange(j), nodeIP(j)); err != nil {
				return err
			}
		}
		return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
	})
	if err != nil {
		return fmt.Errorf("connect %s: %w", n.Name, err)
	}
	return addRoute(podRange(n.index), n.IP)
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
func (n *Node) reachAPI() error {
	return n.Do(func() error {
		conn, err := net.DialTimeout("tcp", controlplane.ServiceAddress+":443", time.Second)
		if err != nil {
			return fmt.Errorf("the Service of the API server: %w", err)
		}
		return conn.Close()
	})
}

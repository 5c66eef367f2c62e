package attach_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/tenure-ipam/tenure/attach/cni/segment"
	"github.com/tenure-ipam/tenure/test/cninet"
	"github.com/tenure-ipam/tenure/test/proof"
)

// The addresses that pods of a lan have, of which its neighbour has older entries; and one that no
// pod has, by which a test sees that the neighbour has heard all that was said before.
var (
	moved4 = netip.MustParseAddr("10.20.0.5")
	moved6 = netip.MustParseAddr("fd20::5")
	last4  = netip.MustParseAddr("10.20.0.6")
)

// stale is the hardware address that the neighbour's entries have.
var stale = net.HardwareAddr{2, 0, 0, 0, 0, 1}

// A lan is a bridge of the node with a neighbour.
type lan struct {
	*node
	bridge    string
	neighbour cninet.NS
}

func newLAN(t *testing.T) lan {
	t.Helper()
	l := lan{node: newNode(t), bridge: fmt.Sprintf("lan%d", os.Getpid()%100000)}
	l.neighbour = netns(t, l.bridge+"-neighbour")
	host := cninet.NS{}
	must(t, cninet.Veth(host, l.bridge+"p", l.neighbour, "eth0"))
	must(t, host.Bridge(l.bridge, l.bridge+"p"))
	t.Cleanup(func() {
		for _, name := range []string{l.bridge + "p", l.bridge} {
			link, err := netlink.LinkByName(name)
			must(t, err)
			must(t, netlink.LinkDel(link))
		}
	})
	must(t, l.neighbour.Do(func() error {
		for _, a := range []string{"10.20.0.1/24", "fd20::1/64"} {
			p, err := netlink.ParseAddr(a)
			if err != nil {
				return err
			}
			p.Flags = 0x02 // IFA_F_NODAD
			link, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(link, p); err != nil {
				return err
			}
		}
		return nil
	}))
	return l
}

// network is a network on the lan with the addresses that the neighbour has entries of.
func (l lan) network(plugin map[string]any) map[string]any {
	plugin["ipam"] = map[string]any{"type": "static", "addresses": []any{
		map[string]any{"address": netip.PrefixFrom(moved4, 24).String()}, map[string]any{"address": netip.PrefixFrom(moved6, 64).String()},
	}}
	return map[string]any{"cniVersion": "1.0.0", "name": "lan", "plugins": []any{plugin}}
}

// remember gives the neighbour entries of another hardware address, in use a moment ago.
func (l lan) remember(t *testing.T) {
	t.Helper()
	must(t, l.neighbour.Do(func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		for _, a := range []netip.Addr{moved4, moved6, last4} {
			if err := netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, State: netlink.NUD_REACHABLE, IP: a.AsSlice(), HardwareAddr: stale}); err != nil {
				return err
			}
		}
		return nil
	}))
}

// entry returns the hardware address that the neighbour has of an address.
func (l lan) entry(t *testing.T, a netip.Addr) (mac net.HardwareAddr) {
	t.Helper()
	must(t, l.neighbour.Do(func() error {
		family := netlink.FAMILY_V6
		if a.Is4() {
			family = netlink.FAMILY_V4
		}
		all, err := netlink.NeighList(0, family)
		for _, n := range all {
			if n.IP.Equal(a.AsSlice()) {
				mac = n.HardwareAddr
			}
		}
		return err
	}))
	return mac
}

// awaitEntry waits until the neighbour has a hardware address of an address.
func (l lan) awaitEntry(t *testing.T, a netip.Addr, want net.HardwareAddr, within time.Duration) {
	t.Helper()
	for began := time.Now(); !bytes.Equal(l.entry(t, a), want); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > within {
			t.Fatalf("after %v the neighbour has %v of %v; want %v", time.Since(began), l.entry(t, a), a, want)
		}
	}
}

// macIn returns the hardware address of a pod's interface.
func macIn(t *testing.T, ns cninet.NS, name string) (mac net.HardwareAddr) {
	t.Helper()
	must(t, ns.Do(func() error {
		link, err := netlink.LinkByName(name)
		if err == nil {
			mac = link.Attrs().HardwareAddr
		}
		return err
	}))
	return mac
}

// TestAnnounced: a neighbour with an older entry of an address that a pod is given has the pod's
// hardware address soon after the ADD, whatever plugin has attached the pod. An address of IPv6
// that is not proved to be unique the kernel announces when it is.
func TestAnnounced(t *testing.T) {
	for name, tt := range map[string]struct {
		plugin func(l lan) map[string]any
		within time.Duration
	}{
		"bridge":  {func(l lan) map[string]any { return map[string]any{"type": "bridge", "bridge": l.bridge} }, time.Second},
		"macvlan": {func(l lan) map[string]any { return map[string]any{"type": "macvlan", "master": l.bridge} }, 5 * time.Second},
		"unique yet": {func(l lan) map[string]any {
			return map[string]any{"type": "bridge", "bridge": l.bridge, "enabledad": true}
		}, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLAN(t)
			l.define("ns", "lan", l.network(tt.plugin(l)))
			l.selects("p", "lan")
			ns := netns(t, l.bridge+"-pod")
			l.remember(t)
			s := sandboxOf{pod: "p", netns: ns.Path()}
			o := l.ok("ADD", s)
			added := time.Now()
			if strings.Contains(o.stderr, "find the pod late") {
				t.Error(o.stderr)
			}
			for _, a := range []netip.Addr{moved4, moved6} {
				l.awaitEntry(t, a, macIn(t, ns, "net1"), tt.within-time.Since(added))
				t.Logf("%v is found %v after the ADD", a, time.Since(added))
			}
			l.ok("DEL", s)
		})
	}
}

// TestNotAnnouncedBeforeTheMachineIsThere: a pod to which a virtual machine moves does not say that
// it has the addresses, which are still in use where the machine is.
func TestNotAnnouncedBeforeTheMachineIsThere(t *testing.T) {
	l := newLAN(t)
	l.define("ns", "lan", l.network(map[string]any{"type": "bridge", "bridge": l.bridge}))
	l.selects("p", "lan")
	l.agent.moving = true
	ns := netns(t, l.bridge+"-pod")
	l.remember(t)
	s := sandboxOf{pod: "p", netns: ns.Path()}
	l.ok("ADD", s)
	// What the plugin has sent is on its way before this is, on the same line.
	must(t, segment.Announce(ns.Path(), []segment.Address{{IfName: "net1", Addr: last4}}))
	l.awaitEntry(t, last4, macIn(t, ns, "net1"), time.Minute)
	if got := l.entry(t, moved6); !bytes.Equal(got, stale) { // of IPv4 the plugin has the kernel say it
		t.Errorf("the neighbour has %v; want %v, where the machine is", got, stale)
	}
	l.ok("DEL", s)
}

// TestNobodyToTell: interfaces that have no neighbours, or are not there, are no failure.
func TestNobodyToTell(t *testing.T) {
	n := newNode(t)
	ns := netns(t, fmt.Sprintf("alone%d", os.Getpid()))
	must(t, ns.Do(func() error {
		pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "silent"}, PeerName: "down"}
		if err := netlink.LinkAdd(pair); err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetARPOff(pair), netlink.LinkSetUp(pair))
	}))
	for _, name := range []string{"lo", "down", "silent", "missing"} {
		t.Run(name, func(t *testing.T) {
			n.config["defaultNetwork"] = n.recorder("default", map[string]any{"ips": []string{"10.1.0.5/24", "fd10::5/64"}})
			s := sandboxOf{pod: "p", netns: ns.Path(), ifName: name}
			if o := n.ok("ADD", s); o.stderr != "" {
				t.Errorf("it says %q; want nothing", o.stderr)
			}
			n.ok("DEL", s)
		})
	}
}

// TestReachedAgain measures when a neighbour that has just spoken with an address reaches it where
// it is now.
func TestReachedAgain(t *testing.T) {
	proof.Only(t)
	for _, a := range []netip.Addr{moved4, moved6} {
		t.Run(a.String(), func(t *testing.T) {
			l := newLAN(t)
			l.define("ns", "lan", l.network(map[string]any{"type": "bridge", "bridge": l.bridge}))
			l.selects("p", "lan")
			ns := netns(t, l.bridge+"-pod")
			l.remember(t)
			s := sandboxOf{pod: "p", netns: ns.Path()}
			l.ok("ADD", s)
			added := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			must(t, l.neighbour.Ping(ctx, a))
			t.Logf("%v is reached %v after the ADD", a, time.Since(added))
			l.ok("DEL", s)
		})
	}
}

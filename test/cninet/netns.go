package cninet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/tenure-ipam/tenure/test/sandbox"
)

// netnsDir is where ip-netns(8) and container runtimes keep named namespaces.
const netnsDir = "/run/netns"

// NS is a network namespace. The zero NS is the one that the process is in: in
// tests, the host's side.
type NS struct{ name string }

// Make makes a network namespace named name, with its loopback up.
func Make(name string) (NS, error) {
	if !sandbox.Inside() {
		return NS{}, errors.New("cninet: network namespaces are made in a sandbox only, so that none is left: see sandbox.Main")
	}
	ns := NS{name}
	err := onThread(func() error {
		h, err := netns.NewNamed(name) // moves the thread into it
		if err != nil {
			return err
		}
		return h.Close()
	})
	if err == nil {
		err = ns.Do(func() error { return setUp("lo") })
	}
	if err != nil {
		return NS{}, fmt.Errorf("make network namespace %s: %w", name, err)
	}
	return ns, nil
}

// Delete removes the namespace's name. The kernel removes the namespace with
// its interfaces when no process is in it any more.
func (n NS) Delete() error {
	if err := netns.DeleteNamed(n.name); err != nil {
		return fmt.Errorf("delete network namespace %s: %w", n.name, err)
	}
	return nil
}

// Path is the file by which others enter the namespace: a CNI_NETNS.
func (n NS) Path() string {
	if n.name == "" {
		return "/proc/self/ns/net"
	}
	return filepath.Join(netnsDir, n.name)
}

// Do runs fn in the namespace, on a thread of its own: goroutines that fn
// starts are not in the namespace, processes and sockets are.
func (n NS) Do(fn func() error) error {
	if n.name == "" {
		return fn()
	}
	return onThread(func() error {
		if err := n.enter(); err != nil {
			return err
		}
		return fn()
	})
}

// enter moves a thread that nobody uses afterwards into the namespace.
func (n NS) enter() error {
	if n.name == "" {
		return nil
	}
	h, err := netns.GetFromPath(n.Path())
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", n.name, err)
	}
	defer h.Close()
	if err := netns.Set(h); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", n.name, err)
	}
	return nil
}

// onThread runs fn on a thread that nobody uses afterwards: the goroutine ends
// locked to it, so the runtime ends the thread, whatever namespace it is in.
func onThread(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- fn()
	}()
	return <-done
}

// Veth connects a and b by a pair of interfaces that are up.
func Veth(a NS, ifA string, b NS, ifB string) error {
	err := a.Do(func() error {
		peer, err := netns.GetFromPath(b.Path())
		if err != nil {
			return err
		}
		defer peer.Close()
		link := &netlink.Veth{
			LinkAttrs:     netlink.LinkAttrs{Name: ifA},
			PeerName:      ifB,
			PeerNamespace: netlink.NsFd(int(peer)),
		}
		if err := netlink.LinkAdd(link); err != nil {
			return err
		}
		return setUp(ifA)
	})
	if err == nil {
		err = b.Do(func() error { return setUp(ifB) })
	}
	if err != nil {
		return fmt.Errorf("connect %s to %s: %w", ifA, ifB, err)
	}
	return nil
}

// setUp sets the interface name of the current namespace up.
func setUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// Bridge makes a bridge in the namespace with the given ports. Its hardware
// address is set, to one of its own, so that it does not change with the ports.
func (n NS) Bridge(name string, ports ...string) error {
	err := n.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		attrs.HardwareAddr = binary.BigEndian.AppendUint32(net.HardwareAddr{0x02, 0}, rand.Uint32())
		bridge := &netlink.Bridge{LinkAttrs: attrs}
		if err := netlink.LinkAdd(bridge); err != nil {
			return err
		}
		for _, port := range ports {
			link, err := netlink.LinkByName(port)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetMaster(link, bridge); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(bridge)
	})
	if err != nil {
		return fmt.Errorf("make bridge %s in %s: %w", name, n.Path(), err)
	}
	return nil
}

// Package segment speaks with the neighbours of a pod's interfaces, by ARP and by the neighbour
// discovery of IPv6: it announces addresses, and asks whether a stranger has one. It uses the
// kernel's packet sockets: a library for each protocol would make a process start later that is
// started for every pod.
package segment

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	namespaces "github.com/tenure-ipam/tenure/ipam/netns"
)

// An Address is one that an interface of a pod has.
type Address struct {
	IfName string
	Addr   netip.Addr
}

// inside calls do on a thread in the network namespace at path; where there is none, nobody has
// neighbours.
func inside(path string, do func() error) error {
	ns, err := netns.GetFromPath(path)
	if errors.Is(err, unix.ENOENT) {
		return errNoNeighbours
	}
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", path, err)
	}
	defer ns.Close()
	return namespaces.Inside(int(ns), do) //nolint:wrapcheck // do says what it is about
}

// A line is an interface with neighbours, for the packets of one protocol.
type line struct {
	fd    int
	index int
	mac   net.HardwareAddr
	kind  uint16 // the protocol: unix.ETH_P_ARP or unix.ETH_P_IPV6
}

// errNoNeighbours says of an interface that there is nobody to speak with.
var errNoNeighbours = errors.New("it has no neighbours that it finds by asking")

// unlessAlone returns err, but no error for who has no neighbours.
func unlessAlone(err error) error {
	if errors.Is(err, errNoNeighbours) {
		return nil
	}
	return err
}

// open opens the line of an interface of this thread's network namespace for one protocol. It
// fails with errNoNeighbours for an interface that is not there, as one that a program has taken
// from the kernel; that is down, loops back, leads to one other host, has no ARP, or is no
// Ethernet.
func open(ifName string, kind uint16) (*line, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	l := &line{fd: fd, kind: kind}
	if err := l.bind(ifName); err != nil {
		l.close()
		return nil, fmt.Errorf("interface %s: %w", ifName, err)
	}
	return l, nil
}

func (l *line) bind(ifName string) error {
	flags, err := l.ask(ifName, unix.SIOCGIFFLAGS)
	if errors.Is(err, unix.ENODEV) {
		return errNoNeighbours
	}
	if err != nil {
		return err
	}
	const without = unix.IFF_LOOPBACK | unix.IFF_POINTOPOINT | unix.IFF_NOARP
	if f := flags.Uint16(); f&unix.IFF_UP == 0 || f&without != 0 {
		return errNoNeighbours
	}
	index, err := l.ask(ifName, unix.SIOCGIFINDEX)
	if err != nil {
		return err
	}
	l.index = int(index.Uint32())
	if err := unix.Bind(l.fd, &unix.SockaddrLinklayer{Protocol: wire(l.kind), Ifindex: l.index}); err != nil {
		return err
	}
	own, err := unix.Getsockname(l.fd)
	if err != nil {
		return err
	}
	at, ok := own.(*unix.SockaddrLinklayer)
	if !ok || at.Hatype != unix.ARPHRD_ETHER || at.Halen != macLen {
		return errNoNeighbours
	}
	l.mac = net.HardwareAddr(at.Addr[:macLen])
	return nil
}

// ask asks the kernel about an interface.
func (l *line) ask(ifName string, what uint) (*unix.Ifreq, error) {
	req, err := unix.NewIfreq(ifName)
	if err != nil {
		return nil, err
	}
	return req, unix.IoctlIfreq(l.fd, what, req)
}

func (l *line) close() { _ = unix.Close(l.fd) }

// send sends a packet of the line's protocol.
func (l *line) send(to net.HardwareAddr, packet []byte) error {
	at := &unix.SockaddrLinklayer{Protocol: wire(l.kind), Ifindex: l.index, Halen: macLen}
	copy(at.Addr[:], to)
	return unix.Sendto(l.fd, packet, 0, at)
}

// wire returns a number as packets have it.
func wire(n uint16) uint16 { return n<<8 | n>>8 }

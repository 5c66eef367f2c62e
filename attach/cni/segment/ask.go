package segment

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// A Stranger is a neighbour who has an address that a pod was given.
type Stranger struct {
	Address
	MAC net.HardwareAddr
}

// Ask asks the neighbours of a pod's interfaces who has these addresses, which the interfaces have
// already, and listens until limit is over or a stranger answers. It asks twice, since a packet may
// be lost: at once, and after half of the time. Nobody's entry changes by that: who asks says no
// address of his own. An interface without neighbours is passed over. asked says that each
// address was asked for: that nobody has answered means something only then.
func Ask(netns string, all []Address, limit time.Duration) (found []Stranger, asked bool, err error) {
	if len(all) == 0 {
		return nil, true, nil
	}
	err = inside(netns, func() (err error) {
		q := question{}
		defer q.close()
		for _, a := range all {
			if err := unlessAlone(q.add(a)); err != nil {
				return err
			}
		}
		found, asked, err = q.listen(limit)
		asked = asked && len(q.asked) == len(all)
		return err
	})
	return found, asked, unlessAlone(err)
}

// A question is what is asked on the lines of a pod.
type question struct{ asked []asked }

type asked struct {
	*line
	Address
	sent bool // the question has gone at least once
}

func (q *question) close() {
	for _, a := range q.asked {
		a.close()
	}
}

func (q *question) add(a Address) error {
	kind := uint16(unix.ETH_P_IPV6)
	if a.Addr.Is4() {
		kind = unix.ETH_P_ARP
	}
	l, err := open(a.IfName, kind)
	if err == nil {
		q.asked = append(q.asked, asked{line: l, Address: a})
	}
	return err
}

// listen asks, and returns the strangers who are the first to answer. sent says that each question
// has gone at least once.
func (q *question) listen(limit time.Duration) (found []Stranger, sent bool, err error) {
	if len(q.asked) == 0 {
		return nil, true, nil
	}
	waits := make([]unix.PollFd, len(q.asked))
	for i, a := range q.asked {
		waits[i] = unix.PollFd{Fd: int32(a.fd), Events: unix.POLLIN}
	}
	began := time.Now()
	for _, until := range []time.Duration{limit / 2, limit} {
		sent = true
		for i := range q.asked {
			a := &q.asked[i]
			if err := a.ask(); err != nil {
				return nil, false, fmt.Errorf("ask for %s on interface %s: %w", a.Addr, a.IfName, err)
			}
			sent = sent && a.sent
		}
		for left := until - time.Since(began); left > 0 && len(found) == 0; left = until - time.Since(began) {
			if _, err := unix.Poll(waits, int(max(left, time.Millisecond)/time.Millisecond)); err != nil && !errors.Is(err, unix.EINTR) {
				return nil, false, fmt.Errorf("wait for neighbours: %w", err)
			}
			for _, a := range q.asked {
				found = append(found, a.heard()...)
			}
		}
		if len(found) > 0 {
			break
		}
	}
	return found, sent, nil
}

// ask sends the question.
func (a *asked) ask() error {
	to, packet := everybody, arp(a.mac, netip.Addr{}, a.Addr)
	if a.kind == unix.ETH_P_IPV6 {
		to, packet = groupMAC(solicited(a.Addr)), solicit(a.Addr)
	}
	err := a.send(to, packet)
	if errors.Is(err, unix.ENOBUFS) { // the link has just been set up; the second question may go
		return nil
	}
	a.sent = a.sent || err == nil
	return err
}

// heard reads what has come, and returns the strangers of it, each once.
func (a asked) heard() (found []Stranger) {
	var room [256]byte // the beginning of a longer one will do
	for range 1000 {   // not for ever on a line where much is said
		n, from, err := unix.Recvfrom(a.fd, room[:], unix.MSG_DONTWAIT)
		if err != nil {
			return found
		}
		mac := a.userIn(room[:n], from)
		if mac != nil && !slices.ContainsFunc(found, func(s Stranger) bool { return bytes.Equal(s.MAC, mac) }) {
			found = append(found, Stranger{a.Address, bytes.Clone(mac)})
		}
	}
	return found
}

// userIn returns the hardware address of the stranger who says in a packet that he has the
// address; nil if none does.
func (a asked) userIn(packet []byte, from unix.Sockaddr) net.HardwareAddr {
	at, ok := from.(*unix.SockaddrLinklayer)
	if !ok || at.Pkttype == unix.PACKET_OUTGOING || at.Halen != macLen {
		return nil
	}
	read := arpUser
	if a.kind == unix.ETH_P_IPV6 {
		read = func(p []byte) (netip.Addr, net.HardwareAddr, bool) { return ndpUser(p, at.Addr[:macLen]) }
	}
	addr, mac, ok := read(packet)
	if !ok || addr != a.Addr || bytes.Equal(mac, a.mac) {
		return nil
	}
	return mac
}

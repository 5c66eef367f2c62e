package segment

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Announce tells the neighbours of a pod's interfaces which addresses these have, so that whoever
// has an older entry replaces it: by a gratuitous ARP (RFC 5227), or by an advertisement that
// nobody has asked for (RFC 4861, 7.2.6). It sends one packet for each address and waits for
// nothing. An interface without neighbours is passed over.
//
// An IPv6 address that is tentative must not be announced yet. The kernel does it when it is not
// tentative any more (ndisc_notify).
func Announce(netns string, all []Address) error {
	if len(all) == 0 {
		return nil
	}
	err := inside(netns, func() error {
		var errs []error
		for _, a := range all {
			if err := unlessAlone(a.announce()); err != nil {
				errs = append(errs, fmt.Errorf("announce %s: %w", a.Addr, err))
			}
		}
		return errors.Join(errs...)
	})
	return unlessAlone(err)
}

func (a Address) announce() error {
	if a.Addr.Is4() {
		l, err := open(a.IfName, unix.ETH_P_ARP)
		if err != nil {
			return err
		}
		defer l.close()
		return l.send(everybody, arp(l.mac, a.Addr, a.Addr))
	}
	l, err := open(a.IfName, unix.ETH_P_IPV6)
	if err != nil {
		return err
	}
	defer l.close()
	// First: what ceases to be tentative after the look the kernel announces.
	notify := filepath.Join("/proc/sys/net/ipv6/conf", a.IfName, "ndisc_notify")
	if err := os.WriteFile(notify, []byte("1"), 0); err != nil {
		return err
	}
	settled, err := settled(a)
	if err != nil || !settled {
		return err
	}
	return l.send(groupMAC(allNodes), advert(l.mac, a.Addr))
}

// settled reports whether the interface has an IPv6 address that is neither tentative nor found to
// be another's.
func settled(a Address) (bool, error) {
	text, err := os.ReadFile("/proc/thread-self/net/if_inet6")
	if err != nil {
		return false, err
	}
	for row := range strings.Lines(string(text)) {
		f := strings.Fields(row) // address, index, prefix length, scope, flags, name
		if len(f) != 6 || f[5] != a.IfName || f[0] != bare(a.Addr) {
			continue
		}
		flags, err := strconv.ParseUint(f[4], 16, 32)
		return flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == 0, err
	}
	return false, nil
}

// bare returns an IPv6 address as the kernel's file has it.
func bare(a netip.Addr) string { return strings.ReplaceAll(a.StringExpanded(), ":", "") }

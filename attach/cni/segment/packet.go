package segment

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
)

const macLen = 6

var (
	everybody = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	allNodes  = netip.MustParseAddr("ff02::1")
)

// What packets of ARP have (RFC 826).
const (
	arpLen     = 28
	arpRequest = 1
)

// arp returns a packet of ARP by which mac asks for target. A valid sender makes its receivers
// update what they know of it; none makes it a probe (RFC 5227).
func arp(mac net.HardwareAddr, sender, target netip.Addr) []byte {
	p := []byte{0, 1, 8, 0, macLen, 4, 0, arpRequest}
	p = append(p, mac...)
	if !sender.IsValid() {
		sender = netip.IPv4Unspecified()
	}
	p = append(append(p, sender.AsSlice()...), make([]byte, macLen)...)
	return append(p, target.AsSlice()...)
}

// arpUser returns who says in a packet of ARP that an address is his.
func arpUser(p []byte) (addr netip.Addr, mac net.HardwareAddr, ok bool) {
	if len(p) < arpLen || !bytes.Equal(p[:6], []byte{0, 1, 8, 0, macLen, 4}) {
		return addr, nil, false
	}
	addr, _ = netip.AddrFromSlice(p[14:18])
	return addr, net.HardwareAddr(p[8:14]), !addr.IsUnspecified()
}

// What packets of neighbour discovery have (RFC 4861).
const (
	ipLen         = 40
	icmp          = 58
	hopLimit      = 255 // any other has crossed a router
	solicitation  = 135
	advertisement = 136
	override      = 0x20
	optTargetMAC  = 2
	ndpLen        = 24 // without options
)

// advert returns an advertisement, which nobody has asked for, that mac has addr.
func advert(mac net.HardwareAddr, addr netip.Addr) []byte {
	body := append([]byte{advertisement, 0, 0, 0, override, 0, 0, 0}, addr.AsSlice()...)
	return ipv6(addr, allNodes, append(append(body, optTargetMAC, 1), mac...))
}

// solicit returns the question who has addr, of somebody who has no address (RFC 4862).
func solicit(addr netip.Addr) []byte {
	body := append([]byte{solicitation, 0, 0, 0, 0, 0, 0, 0}, addr.AsSlice()...)
	return ipv6(netip.IPv6Unspecified(), solicited(addr), body)
}

// solicited returns the group of those who have an address that ends as addr does.
func solicited(addr netip.Addr) netip.Addr {
	group, end := netip.MustParseAddr("ff02::1:ff00:0").As16(), addr.As16()
	copy(group[13:], end[13:])
	return netip.AddrFrom16(group)
}

// groupMAC returns the hardware address of an IPv6 group.
func groupMAC(group netip.Addr) net.HardwareAddr {
	raw := group.As16()
	return append(net.HardwareAddr{0x33, 0x33}, raw[12:]...)
}

// ipv6 returns a packet of IPv6 with an ICMP message, whose checksum it fills in.
func ipv6(from, to netip.Addr, body []byte) []byte {
	p := []byte{0x60, 0, 0, 0}
	p = append(binary.BigEndian.AppendUint16(p, uint16(len(body))), icmp, hopLimit)
	p = append(append(append(p, from.AsSlice()...), to.AsSlice()...), body...)
	sum := uint32(len(body)) + icmp
	for i := 8; i < len(p); i += 2 { // the addresses and the message, of even length
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(p[ipLen+2:], ^uint16(sum))
	return p
}

// ndpUser returns who says in a packet of neighbour discovery that an address is his: by an
// advertisement, or by asking from it. from is the packet's sender on the wire.
func ndpUser(p []byte, from net.HardwareAddr) (addr netip.Addr, mac net.HardwareAddr, ok bool) {
	if len(p) < ipLen+ndpLen || p[0]>>4 != 6 || p[6] != icmp || p[7] != hopLimit {
		return addr, nil, false
	}
	body := p[ipLen:]
	switch body[0] {
	case solicitation:
		addr, _ = netip.AddrFromSlice(p[8:24])
		return addr, from, !addr.IsUnspecified()
	case advertisement:
		addr, _ = netip.AddrFromSlice(body[8:24])
		if opts := body[ndpLen:]; len(opts) >= 8 && opts[0] == optTargetMAC && opts[1] == 1 {
			from = net.HardwareAddr(opts[2:8])
		}
		return addr, from, true
	}
	return addr, nil, false
}

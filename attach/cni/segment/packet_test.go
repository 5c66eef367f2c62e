package segment

import (
	"encoding/hex"
	"net"
	"net/netip"
	"testing"
)

var (
	mac   = net.HardwareAddr{2, 0, 0, 0, 0, 5}
	addr4 = netip.MustParseAddr("10.0.0.5")
	addr6 = netip.MustParseAddr("fd00::1:2345")
)

// TestPackets: packets are as the RFCs have them.
func TestPackets(t *testing.T) {
	for name, tt := range map[string]struct {
		packet []byte
		want   string
	}{
		"a gratuitous ARP": {arp(mac, addr4, addr4), "0001080006040001" + "020000000005" + "0a000005" + "000000000000" + "0a000005"},
		"a probe":          {arp(mac, netip.Addr{}, addr4), "0001080006040001" + "020000000005" + "00000000" + "000000000000" + "0a000005"},
	} {
		if got := hex.EncodeToString(tt.packet); got != tt.want {
			t.Errorf("%s is %s; want %s", name, got, tt.want)
		}
	}
	if got, want := solicited(addr6), netip.MustParseAddr("ff02::1:ff01:2345"); got != want {
		t.Errorf("who has %v is asked at %v; want %v", addr6, got, want)
	}
	if got := groupMAC(solicited(addr6)).String(); got != "33:33:ff:01:23:45" {
		t.Errorf("that is %s", got)
	}
}

// TestUsers: who says that an address is his, and who does not.
func TestUsers(t *testing.T) {
	user := func(a netip.Addr, m net.HardwareAddr, ok bool) string {
		if !ok {
			return "nobody"
		}
		return a.String() + " " + m.String()
	}
	other := net.HardwareAddr{2, 0, 0, 0, 0, 9}
	far := advert(mac, addr6)
	far[7] = 64
	for name, tt := range map[string]struct{ got, want string }{
		"ARP":                             {user(arpUser(arp(mac, addr4, addr4))), "10.0.0.5 02:00:00:00:00:05"},
		"a probe":                         {user(arpUser(arp(mac, netip.Addr{}, addr4))), "nobody"},
		"half a packet of ARP":            {user(arpUser(arp(mac, addr4, addr4)[:20])), "nobody"},
		"an advertisement":                {user(ndpUser(advert(mac, addr6), other)), "fd00::1:2345 02:00:00:00:00:05"},
		"an advertisement without a MAC":  {user(ndpUser(advert(mac, addr6)[:ipLen+ndpLen], other)), "fd00::1:2345 02:00:00:00:00:09"},
		"a question without an address":   {user(ndpUser(solicit(addr6), other)), "nobody"},
		"an advertisement from elsewhere": {user(ndpUser(far, other)), "nobody"},
		"half an advertisement":           {user(ndpUser(advert(mac, addr6)[:50], other)), "nobody"},
		"nothing":                         {user(ndpUser(nil, other)), "nobody"},
	} {
		if tt.got != tt.want {
			t.Errorf("by %s it is %s; want %s", name, tt.got, tt.want)
		}
	}
}

// FuzzPackets: no packet makes a reader fail.
func FuzzPackets(f *testing.F) {
	f.Add(advert(mac, addr6))
	f.Add(arp(mac, addr4, addr4))
	f.Fuzz(func(_ *testing.T, p []byte) {
		arpUser(p)
		ndpUser(p, mac)
	})
}

package cninet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// pingEvery is the time after which an unanswered echo request is repeated:
// the first ones may be lost while neighbours find each other.
const pingEvery = 50 * time.Millisecond

// echo is ICMP's echo in one IP family.
type echo struct {
	network  string
	any      string
	protocol int
	request  icmp.Type
	reply    icmp.Type
}

func echoOf(a netip.Addr) echo {
	if a.Is4() {
		return echo{"ip4:icmp", "0.0.0.0", 1, ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply}
	}
	return echo{"ip6:ipv6-icmp", "::", 58, ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply}
}

// Ping sends ICMP echo requests from the namespace to the address to until one
// is answered or ctx ends. To show that an address is not reachable, give a ctx
// that ends after a few hundred milliseconds.
func (n NS) Ping(ctx context.Context, to netip.Addr) error {
	e := echoOf(to)
	var conn *icmp.PacketConn
	err := n.Do(func() (err error) {
		conn, err = icmp.ListenPacket(e.network, e.any) // a socket stays where it was made
		return err
	})
	if err != nil {
		return fmt.Errorf("ping %v from %s: %w", to, n.Path(), err)
	}
	defer conn.Close()
	if err := e.ping(ctx, conn, to); err != nil {
		return fmt.Errorf("ping %v from %s: %w", to, n.Path(), err)
	}
	return nil
}

func (e echo) ping(ctx context.Context, conn *icmp.PacketConn, to netip.Addr) error {
	id := rand.IntN(1 << 16)
	var unsent error
	for seq := 0; ; seq++ {
		if ctx.Err() != nil {
			return errors.Join(fmt.Errorf("no answer to %d echo requests: %w", seq, context.Cause(ctx)), unsent)
		}
		request := icmp.Message{Type: e.request, Body: &icmp.Echo{ID: id, Seq: seq, Data: []byte("tenure")}}
		packet, err := request.Marshal(nil) // the kernel fills in IPv6's checksum
		if err != nil {
			return err
		}
		// A route may come, or an address end to be tentative: try again.
		_, unsent = conn.WriteTo(packet, &net.IPAddr{IP: to.AsSlice()})
		answered, err := e.awaitReply(conn, to, id)
		if answered || err != nil {
			return err
		}
	}
}

// awaitReply reads until to has answered the request id, or pingEvery is over.
func (e echo) awaitReply(conn *icmp.PacketConn, to netip.Addr, id int) (answered bool, err error) {
	if err := conn.SetReadDeadline(time.Now().Add(pingEvery)); err != nil {
		return false, err
	}
	buf := make([]byte, 1500)
	for {
		n, peer, err := conn.ReadFrom(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		m, err := icmp.ParseMessage(e.protocol, buf[:n])
		if err != nil {
			return false, err
		}
		body, isEcho := m.Body.(*icmp.Echo)
		from, ok := peer.(*net.IPAddr)
		if isEcho && ok && m.Type == e.reply && body.ID == id && from.IP.Equal(to.AsSlice()) {
			return true, nil
		}
	}
}

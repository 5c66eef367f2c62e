package looker

import (
	"net/netip"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/broker"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// keeper is a Granter that only tells what is kept.
type keeper struct {
	Granter
	kept []broker.Held
}

func (k keeper) Kept() []broker.Held { return k.kept }

// Of two pods with one address, the one that has it kept already goes on having it: in
// whatever order a look finds them, it undoes nothing.
func TestOneOfTwoPodsKeepsTheAddress(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.2")
	at := place{"lan", addr}
	bar := func(uid protocol.UID) foreign.Bar {
		return foreign.Bar{Pool: "lan", Addr: addr, To: protocol.Grantee{Kind: protocol.GranteePod, UID: uid, Namespace: "ns", Name: string(uid)}}
	}
	kept := func(uid protocol.UID) []broker.Held {
		return []broker.Held{{Pool: "lan", Grant: protocol.Grant{Addr: addr, To: bar(uid).To}}}
	}
	asked := func(uid protocol.UID) map[place]broker.Ask { return map[place]broker.Ask{at: {To: bar(uid).To}} }
	for _, c := range []struct {
		name  string
		asked map[place]broker.Ask
		kept  []broker.Held
		want  protocol.UID
	}{
		{"nobody has it: the first", nil, nil, "a"},
		{"asked for", asked("b"), nil, "b"},
		{"kept, after a restart", nil, kept("b"), "b"},
		{"kept for one and asked for another", asked("a"), kept("b"), "b"},
		{"kept for a third pod: the first", nil, kept("gone"), "a"},
	} {
		l := &turn{Looker: &Looker{Broker: keeper{kept: c.kept}, asking: c.asked}}
		if got := l.choose([]foreign.Bar{bar("a"), bar("b")})[at].To.UID; got != c.want {
			t.Errorf("%s: kept for %q, want %q", c.name, got, c.want)
		}
	}
}

package agent

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestRoutesOfPools: a pool's route comes with an address of that pool and of its own
// family, and has that address's gateway where it names none; the configuration's are as
// they are written.
func TestRoutesOfPools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
		a, lan := newBubbleAgent(t)
		lan.known.Routes = []poolspec.Route{{Dst: prefix("172.16.0.0/12")}, {Dst: prefix("fd01::/64")}}
		wan := newPool("wan")
		wan.known = &knownPool{Pool: Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "wan", UID: "w"}, Open: true}, Routes: []poolspec.Route{
			{Dst: prefix("192.168.0.0/16")}, {Dst: prefix("192.168.1.0/24"), GW: addr("10.2.0.9")}, {Dst: prefix("10.9.0.0/16")}, {Dst: prefix("::/0")},
		}}}
		a.pools.byName[wan.name] = wan
		conf, err := poolspec.ParseConfig([]byte(`{"cniVersion":"1.1.0","name":"net","type":"bridge","ipam":{"type":"tenure","pools":["lan","wan"],
			"routes":[{"dst":"10.9.0.0/16"}]}}`), "")
		if err != nil {
			t.Fatal(err)
		}
		res, err := a.result(conf, store.Attachment{Addresses: []store.Address{
			{Addr: addr("10.0.0.5"), Bits: 27, Pool: "lan"},
			{Addr: addr("fd00::5"), Bits: 64, Gateway: addr("fd00::1"), Pool: "lan"},
			{Addr: addr("10.2.0.5"), Bits: 24, Gateway: addr("10.2.0.1"), Pool: "wan"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		want := []agentapi.Route{
			{Dst: prefix("10.9.0.0/16")}, {Dst: prefix("172.16.0.0/12")}, {Dst: prefix("fd01::/64"), GW: addr("fd00::1")},
			{Dst: prefix("192.168.0.0/16"), GW: addr("10.2.0.1")}, {Dst: prefix("192.168.1.0/24"), GW: addr("10.2.0.9")},
		}
		if !slices.EqualFunc(res.Routes, want, func(a, b agentapi.Route) bool { return a.Dst == b.Dst && a.GW == b.GW }) {
			t.Errorf("routes %+v; want %+v", res.Routes, want)
		}
	})
}

package plan

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/lean/plainjson/plainjsontest"
)

func TestPlanIsWrittenByHand(t *testing.T) {
	none := []netip.Addr{}
	for _, p := range []Plan{
		plainjsontest.Full[Plan](t), {},
		{Steps: []Step{{List: json.RawMessage(`{}`), DefaultRoute: &none, Device: &Device{}}, {List: json.RawMessage(`{}`), Requested: Requested{MAC: "02:00:00:00:00:01"}}}},
	} {
		plainjsontest.Written(t, p.AppendTo(nil), p)
	}
}

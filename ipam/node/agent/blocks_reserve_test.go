package agent

import (
	"context"
	"net/netip"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestTouch: however many ADDs and DELs touch a pool, one look at what is idle is under
// way, and one more follows those that came meanwhile.
func TestTouch(t *testing.T) {
	p := newPool("lan")
	var tasks []func(context.Context)
	a := assemble(&base{queue: func(task func(context.Context)) { tasks = append(tasks, task) }})
	a.pools.byName = map[protocol.PoolName]*pool{"lan": p}
	touch := func(want int) {
		t.Helper()
		a.blocks.scheduleUpkeep(store.Attachment{Addresses: []store.Address{{Pool: "lan", Lease: "lan.0a000000.32", Addr: netip.MustParseAddr("10.0.0.0")}}})
		if len(tasks) != want {
			t.Errorf("%d tasks; want %d", len(tasks), want)
		}
	}
	touch(1)
	touch(1)
	tasks[0](t.Context())
	if p.upkeepDue.Load() || p.upkeepRuns.Load() {
		t.Error("something is left to look at")
	}
	touch(3) // one has the reserve looked after later
}

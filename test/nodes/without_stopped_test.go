package nodes_test

import (
	"slices"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// TestStoppedPoolTakesNothingAway: while a pool is stopped a pod's new sandbox has the pod's
// address again, also after a reboot of its node, in a new term and while the pool is closed.
// Others wait, though the node holds a block with room.
func TestStoppedPoolTakesNothingAway(t *testing.T) {
	const pool = "halted"
	openPool(t, pool, cidr("10.121.0.0/20")) // blocks of sixteen
	f := fleet.New(t, cp.Config())
	f.Change = func(c *daemon.Config) { c.Agent.Wait = time.Second }
	n := f.Start("halted")
	i := asking(t, n.Name, pool, "stopped-has")
	had := mustAdd(t, n, i)
	freed := asking(t, n.Name, pool, "stopped-freed")
	mustAdd(t, n, freed)

	p, out, err := api.ReadIPPool(t.Context(), protocol.PoolName(pool))
	if out != protocol.Done {
		t.Fatal(out, err)
	}
	p.Spec.Allocation = v1alpha1.AllocationStopped
	if err := kc.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	setLeasing(t, pool, false)
	another := asking(t, n.Name, pool, "stopped-new")
	others := func() {
		t.Helper()
		for _, i := range []fleet.Interface{another, freed} {
			n.Refused(t, i, "pool "+pool+" gives no addresses: its spec.allocation is Stopped")
		}
	}
	mustDel(t, n, freed)
	freed.Sandbox = "stopped-freed-2"
	others()
	if got := mustAdd(t, n, i); !slices.Equal(got, had) {
		t.Errorf("the same sandbox has %v; want %v", got, had)
	}
	n.Stop()
	n.Config().Agent.Boot = "the-next-boot"
	n = f.Start("halted")
	others()
	n.Vanish(i)
	i.Sandbox, i.Netns = "stopped-has-2", file(t, "netns-2")
	if got := mustAdd(t, n, i); !slices.Equal(got, had) {
		t.Errorf("after a reboot the pod has %v; want %v", got, had)
	}
	others()
}

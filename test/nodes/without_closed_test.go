package nodes_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// closeFor closes a pool as the controller does, and says why in its condition.
func closeFor(t *testing.T, pool, why string) {
	t.Helper()
	p, out, err := api.ReadIPPool(t.Context(), protocol.PoolName(pool))
	if out != protocol.Done {
		t.Fatal(out, err)
	}
	p.Status.Leasing = v1alpha1.LeasingClosed
	meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{
		Type: v1alpha1.PoolReady, Status: metav1.ConditionFalse, ObservedGeneration: p.Generation, Reason: "Overlap", Message: why,
	})
	if err := kc.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// TestAddWaitsForItsPool: an ADD that needs a block of a pool which is closed, or which
// does not exist, is answered when the pool opens, or with the words of the pool's
// condition when its time is up. What is leased is given out meanwhile.
func TestAddWaitsForItsPool(t *testing.T) {
	const pool, why = "opens-late", "the pool waits for leases of another"
	openPool(t, pool, cidr("10.48.0.0/20")) // blocks of sixteen
	f := fleet.New(t, cp.Config())
	f.Change = func(c *daemon.Config) { c.Agent.Wait = time.Second }
	hasty := f.Start("opens-late-hasty")
	mustAdd(t, hasty, onPool(pool, "before", "net1"))
	closeFor(t, pool, why)
	hasty.Refused(t, fixed(pool, "hasty", "10.48.15.1"), "pool "+pool+" is closed: "+why)
	mustAdd(t, hasty, onPool(pool, "meanwhile", "net1"))

	f.Change = func(c *daemon.Config) { c.Agent.Wait = time.Minute }
	patient := f.Start("opens-late-patient")
	waiting := map[string]<-chan answered{
		"any address of a closed pool":   begin(patient, onPool(pool, "any", "net1")),
		"one address of a closed pool":   begin(patient, fixed(pool, "one", "10.48.15.1")),
		"a pool that does not exist yet": begin(patient, onPool("made-late", "first", "net1")),
	}
	// None may end before: on a slow machine, where none has begun, this shows nothing.
	time.Sleep(500 * time.Millisecond)
	for what, done := range waiting {
		select {
		case a := <-done:
			t.Errorf("%s: %+v, %v before it has opened", what, a.res, a.err)
			delete(waiting, what)
		default:
		}
	}
	setLeasing(t, pool, true)
	openPool(t, "made-late", cidr("10.49.0.0/24"))
	for what, done := range waiting {
		if a := <-done; a.err != nil {
			t.Errorf("%s: %v; want an answer when it has opened", what, a.err)
		}
	}
}

// fixed is onPool for exactly one address.
func fixed(pool, sandbox, ip string) fleet.Interface {
	i := onPool(pool, sandbox, "net1")
	i.Top = map[string]any{"runtimeConfig": map[string]any{"ips": []string{ip}}}
	return i
}

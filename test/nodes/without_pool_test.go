package nodes_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// openPool makes a pool and opens it as the controller would: these tests are
// about the agent, and decide themselves when a pool is open.
func openPool(t testing.TB, name string, ranges ...v1alpha1.Range) {
	t.Helper()
	openBlocks(t, name, 0, ranges...)
}

// openBlocks is openPool with blocks of so many addresses; 0 leaves that to the pool.
func openBlocks(t testing.TB, name string, blockSize int, ranges ...v1alpha1.Range) {
	t.Helper()
	controller(t, false)
	p := fleet.Create(t, kc, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Domain: name, Ranges: ranges}})
	shape, err := poolspec.ParsePool(kube.PoolText(p))
	if err != nil {
		t.Fatal(err)
	}
	bits := func(f allocator.Family) *int32 {
		if shape.Capacity(f) == 0 {
			return nil
		}
		b := int32(allocator.BlockBits(shape, f, blockSize))
		return &b
	}
	setStatus(t, name, func(p *v1alpha1.IPPool) {
		p.Status.Leasing = v1alpha1.LeasingOpen
		p.Status.BlockPrefixLengths = &v1alpha1.BlockPrefixLengths{IPv4: bits(allocator.IPv4), IPv6: bits(allocator.IPv6)}
	})
}

// setStatus changes a pool's status as the controller would.
func setStatus(t testing.TB, pool string, change func(p *v1alpha1.IPPool)) {
	t.Helper()
	p := readPool(t, pool)
	change(p)
	must(t, kc.Status().Update(t.Context(), p))
}

// newPod makes a pod on a node, and returns i as an interface of it.
func newPod(t *testing.T, node, name, networks string, i fleet.Interface) fleet.Interface {
	t.Helper()
	annotations := map[string]string{}
	if networks != "" {
		annotations[kube.AnnotationNetworks] = networks
	}
	return ofPod(makePod(t, node, "default", name, annotations), i)
}

// TestPoolWithoutTheNetworksRange: a network describes a range that its pool, which a person
// looks after, does not have. That is not a full pool, and the ADD says so.
func TestPoolWithoutTheNetworksRange(t *testing.T) {
	openPool(t, "elsewhere", cidr("10.77.0.0/24"))
	n := newFleet(t).Start("elsewhere")
	i := newPod(t, n.Name, "outside", "", onPool("elsewhere", "c1", "net1"))
	i.IPAM = map[string]any{"type": "tenure", "network_name": "elsewhere", "range": "10.78.0.0/24"}
	_, err := n.Add(i)
	fleet.WantCode(t, err, agentapi.CodeTryAgainLater, "pool elsewhere has no IPv4 address to give unasked in what the network may take (10.78.0")
}

// closeFor closes a pool as the controller does, and says why in its condition.
func closeFor(t *testing.T, pool, why string) {
	t.Helper()
	setStatus(t, pool, func(p *v1alpha1.IPPool) {
		p.Status.Leasing = v1alpha1.LeasingClosed
		meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{
			Type: v1alpha1.PoolReady, Status: metav1.ConditionFalse, ObservedGeneration: p.Generation, Reason: "Overlap", Message: why,
		})
	})
}

// TestAddWaitsForItsPool: an ADD that needs a block of a pool which is closed, or which
// does not exist, is answered when the pool opens, or with the words of the pool's
// condition when its time is up. What is leased is given out meanwhile.
func TestAddWaitsForItsPool(t *testing.T) {
	const pool, why = "opens-late", "the pool waits for leases of another"
	openPool(t, pool, cidr("10.48.0.0/20")) // blocks of sixteen
	f := newFleet(t, waits(time.Second))
	hasty := f.Start("opens-late-hasty")
	mustAdd(t, hasty, onPool(pool, "before", "net1"))
	closeFor(t, pool, why)
	hasty.Refused(t, static(pool, "hasty", "10.48.15.1"), "pool "+pool+" is closed: "+why)
	mustAdd(t, hasty, onPool(pool, "meanwhile", "net1"))

	f.Change = waits(time.Minute)
	patient := f.Start("opens-late-patient")
	waiting := map[string]<-chan answered{
		"any address of a closed pool":   begin(patient, onPool(pool, "any", "net1")),
		"one address of a closed pool":   begin(patient, static(pool, "one", "10.48.15.1")),
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

// TestStoppedPoolTakesNothingAway: while a pool is stopped a pod's new sandbox has the pod's
// address again, also after a reboot of its node, in a new term and while the pool is closed.
// Others wait, though the node holds a block with room.
func TestStoppedPoolTakesNothingAway(t *testing.T) {
	const pool = "halted"
	openPool(t, pool, cidr("10.121.0.0/20")) // blocks of sixteen
	f := newFleet(t, waits(time.Second))
	n := f.Start("halted")
	i := asking(t, n.Name, pool, "stopped-has")
	had := mustAdd(t, n, i)
	freed := asking(t, n.Name, pool, "stopped-freed")
	mustAdd(t, n, freed)

	p := readPool(t, pool)
	fleet.Edit(t, kc, p, func() { p.Spec.Allocation = v1alpha1.AllocationStopped })
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

// TestFreedAddressRests: in a pool with a reuseAfter an address that was freed goes to no other pod
// while the pool has blocks for the node, also after a restart of the agent; its lease is kept
// until it has rested, and goes back then.
func TestFreedAddressRests(t *testing.T) {
	const pool = "rests"
	openPool(t, pool, cidr("10.95.0.0/24")) // blocks of one address
	limit(t, pool, `{"reuseAfter":"1h"}`)
	f := newFleet(t, idle(time.Second))
	n := f.Start(pool)
	first := onPool(pool, "c0", "net1")
	freed := mustAdd(t, n, first)[0]
	mustDel(t, n, first)
	other := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if got := mustAdd(t, n, onPool(pool, fmt.Sprintf("c%d", i), "net1"))[0]; got == freed {
				t.Errorf("pod %d got %v, which was freed a moment ago", i, got)
			}
		}
	}
	other(1, 4)
	time.Sleep(3 * time.Second) // an idle lease goes back after one
	if !held(t, pool, freed.Addr()) {
		t.Error("the lease of the address that rests has gone back")
	}
	n.Stop()
	n = f.Start(pool)
	other(4, 7)
	if !held(t, pool, freed.Addr()) {
		t.Error("the lease of the address that rests has gone back after a restart")
	}
	for i := 1; i < 7; i++ {
		mustDel(t, n, onPool(pool, fmt.Sprintf("c%d", i), "net1"))
	}
	limit(t, pool, `{"reuseAfter":"1s"}`)
	eventually(t, 30*time.Second, noLeases(t, pool))
}

// held reports whether an address's block is leased.
func held(t *testing.T, pool string, x netip.Addr) bool {
	t.Helper()
	for _, l := range leasesOf(t, pool) {
		if l.Block.Contains(x) {
			return true
		}
	}
	return false
}

// TestRestIsNoBar: where a node has no other address, and no block is to be had, a pod is given one
// that rests.
func TestRestIsNoBar(t *testing.T) {
	const pool = "rests-not"
	openPool(t, pool, cidr("10.96.0.0/30")) // two addresses
	limit(t, pool, `{"reuseAfter":"1h"}`)
	n := newFleet(t).Start(pool)
	a, b := onPool(pool, "a", "net1"), onPool(pool, "b", "net1")
	freed := mustAdd(t, n, a)[0]
	mustAdd(t, n, b)
	mustDel(t, n, a)
	for i := range 3 {
		next := onPool(pool, fmt.Sprintf("next-%d", i), "net1")
		if got := mustAdd(t, n, next)[0]; got != freed {
			t.Errorf("got %v; want %v, the only one that is free", got, freed)
		}
		mustDel(t, n, next)
	}
}

package controller_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

func TestPoolOpens(t *testing.T) {
	start(t)
	tests := []struct {
		name      string
		cidrs     []string
		blockSize *int32
		v4, v6    *int32
		capacity  int64
	}{
		{"/24: blocks of one", []string{"10.0.0.0/24"}, nil, new(int32(32)), nil, 254},
		{"/20: blocks of 16", []string{"10.0.0.0/20"}, nil, new(int32(28)), nil, 4094},
		{"/16: blocks of 64", []string{"10.0.0.0/16"}, nil, new(int32(26)), nil, 65534},
		{"dual stack", []string{"10.0.0.0/24", "fd00::/64"}, nil, new(int32(32)), new(int32(122)), math.MaxInt64},
		{"override", []string{"10.0.0.0/24"}, new(int32(8)), new(int32(29)), nil, 254},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: fleet.Unique("pool")}, Spec: v1alpha1.IPPoolSpec{BlockSize: tt.blockSize}}
			p.Spec.Domain = p.Name
			for _, c := range tt.cidrs {
				p.Spec.Ranges = append(p.Spec.Ranges, v1alpha1.Range{CIDR: c})
			}
			fleet.Create(t, kc, p)
			opened(t, p)
			if got, want := fmt.Sprint(text(p.Status.BlockPrefixLengths.IPv4), text(p.Status.BlockPrefixLengths.IPv6)), fmt.Sprint(text(tt.v4), text(tt.v6)); got != want {
				t.Errorf("block prefix lengths %s; want %s", got, want)
			}
			if !slices.Contains(p.Finalizers, v1alpha1.LeasesFinalizer) {
				t.Errorf("finalizers %v; want %s among them", p.Finalizers, v1alpha1.LeasesFinalizer)
			}
			if c := p.Status.Counts; c == nil || c.Capacity != tt.capacity || c.Free != tt.capacity || c.Used+c.Claimed+c.Unreachable != 0 || c.Leases != 0 {
				t.Errorf("counts %+v; want capacity and free %d, and nothing else", c, tt.capacity)
			}
			if p.Status.Pressure != v1alpha1.PressureLow || p.Status.ObservedGeneration != p.Generation {
				t.Errorf("pressure %s, observed generation %d; want Low, %d", p.Status.Pressure, p.Status.ObservedGeneration, p.Generation)
			}
			for kind, reason := range map[string]string{v1alpha1.PoolExhausted: v1alpha1.ReasonAddressesFree, v1alpha1.PoolOverlapping: v1alpha1.ReasonDisjoint} {
				if err := condition(p.Status.Conditions, kind, metav1.ConditionFalse, reason); err != nil {
					t.Error(err)
				}
			}
			remove(t, p)
			fleet.Gone(t, kc, p, 10*time.Second)
		})
	}
}

func text(n *int32) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

// isReady returns a check of the condition Ready.
func isReady(p *v1alpha1.IPPool, status metav1.ConditionStatus, reason string, words ...string) func() error {
	return func() error {
		if _, err := read(p); err != nil {
			return err
		}
		return condition(p.Status.Conditions, v1alpha1.PoolReady, status, reason, words...)
	}
}

// TestLeasesBeforeThePool: a pool is not opened over leases of another block
// size, or of an earlier pool.
func TestLeasesBeforeThePool(t *testing.T) {
	stop := start(t)
	stop()
	p := pool(t, "10.0.0.0/24")
	earlier := nodeLease(t, p, "another-uid", "10.0.0.5/32", "n1")
	other := nodeLease(t, p, uidOf(p), "10.0.0.16/28", "n2")
	nodeLease(t, p, uidOf(p), "10.0.0.7/32", "n3") // all of one size would be believed
	start(t)
	waits := func(words ...string) {
		t.Helper()
		eventually(t, 20*time.Second, func() error {
			if _, err := read(p); err != nil {
				return err
			}
			if p.Status.Leasing == v1alpha1.LeasingOpen {
				t.Fatalf("the pool is open with blocks %s over a lease of another size", text(p.Status.BlockPrefixLengths.IPv4))
			}
			reason := v1alpha1.ReasonEarlierPool
			if !strings.Contains(words[0], earlier.Name) {
				reason = v1alpha1.ReasonBlockSizeChanging
			}
			return condition(p.Status.Conditions, v1alpha1.PoolReady, metav1.ConditionFalse, reason, words...)
		})
	}
	waits(earlier.Name, "n1")
	remove(t, &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: earlier.Name}})
	waits(other.Name, "n2")
	remove(t, &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: other.Name}})
	opened(t, p)
	if got := text(p.Status.BlockPrefixLengths.IPv4); got != "32" {
		t.Errorf("blocks of /%s; want /32", got)
	}
}

// TestBlockSizeChanges only while the pool has no leases.
func TestBlockSizeChanges(t *testing.T) {
	start(t)
	p := pool(t, "10.0.0.0/24")
	opened(t, p)
	set := func(size int32) {
		t.Helper()
		fleet.Edit(t, kc, p, func() { p.Spec.BlockSize = &size })
	}
	lengths := func(want string) func() error {
		return func() error {
			if err := isReady(p, metav1.ConditionTrue, v1alpha1.ReasonOpen)(); err != nil {
				return err
			}
			if got := text(p.Status.BlockPrefixLengths.IPv4); got != want || p.Status.ObservedGeneration != p.Generation {
				return fmt.Errorf("blocks of /%s; want /%s", got, want)
			}
			return nil
		}
	}
	set(4)
	eventually(t, 20*time.Second, lengths("30"))
	lease := nodeLease(t, p, uidOf(p), "10.0.0.4/30", "n1")
	time.Sleep(time.Second) // for the cache
	set(16)
	eventually(t, 20*time.Second, func() error {
		if err := lengths("30")(); err != nil {
			return err
		}
		return condition(p.Status.Conditions, "BlockSizePending", metav1.ConditionTrue, "LeasesWithEarlierSize", "4 IPv4", "16 IPv4")
	})
	remove(t, &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: lease.Name}})
	eventually(t, 20*time.Second, lengths("28"))
	if err := condition(p.Status.Conditions, "BlockSizePending", metav1.ConditionTrue, "LeasesWithEarlierSize"); err == nil {
		t.Error("BlockSizePending is still there")
	}
}

// TestPoolGrows: a new family gets its block size, and a wider range changes none.
func TestPoolGrows(t *testing.T) {
	start(t)
	p := pool(t, "10.0.0.0/24")
	opened(t, p)
	nodeLease(t, p, uidOf(p), "10.0.0.4/32", "n1")
	fleet.Edit(t, kc, p, func() {
		p.Spec.Ranges = []v1alpha1.Range{{CIDR: "10.0.0.0/20"}, {CIDR: "fd00::/64"}}
	})
	eventually(t, 20*time.Second, func() error {
		if err := isReady(p, metav1.ConditionTrue, v1alpha1.ReasonOpen)(); err != nil {
			return err
		}
		if got := text(p.Status.BlockPrefixLengths.IPv4) + " " + text(p.Status.BlockPrefixLengths.IPv6); got != "32 122" {
			return fmt.Errorf("blocks of %s; want 32 and 122", got)
		}
		return nil
	})
}

// TestFaultyPool: what the schema cannot see closes the pool, and says why.
func TestFaultyPool(t *testing.T) {
	start(t)
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: fleet.Unique("pool")}}
	p.Spec.Ranges = []v1alpha1.Range{{CIDR: "fd00::/64", Start: "fd00::9", End: "fd00::1"}}
	fleet.Create(t, kc, p)
	eventually(t, 20*time.Second, isReady(p, metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec, "spec.ranges[0]"))
	ns := namespace(t)
	definition(t, ns, "faulty", "faulty", ofPool(p.Name))
	c := claim(t, ns, "c", "faulty")
	failed(t, c, "PoolNotReady", p.Name)
	fleet.Edit(t, kc, p, func() { p.Spec.Ranges[0].End = "fd00::ff" })
	opened(t, p)
	allocated(t, c)
}

// TestPoolDeleted: closed at once, gone when its last lease is.
func TestPoolDeleted(t *testing.T) {
	start(t)
	ns := namespace(t)
	p := pool(t, "10.0.0.0/24")
	definition(t, ns, "doomed", "doomed", ofPool(p.Name))
	c := claim(t, ns, "c", "doomed")
	ips := allocated(t, c)
	lease := nodeLease(t, p, uidOf(p), "10.0.0.9/32", "n1")
	if ips[0] == "10.0.0.9/24" {
		t.Fatal("the claim has the address that the test wants")
	}
	remove(t, p)
	eventually(t, 10*time.Second, isReady(p, metav1.ConditionFalse, v1alpha1.ReasonDeleting, "n1", ns+"/c"))
	if p.Status.Leasing != v1alpha1.LeasingClosed {
		t.Errorf("leasing is %q; want Closed", p.Status.Leasing)
	}
	late := claim(t, ns, "late", "doomed")
	failed(t, late, "PoolNotReady", "deleted")
	always(t, time.Second, func() error { return same(c, ips) }) // I3
	remove(t, &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: lease.Name}})
	always(t, time.Second, isReady(p, metav1.ConditionFalse, v1alpha1.ReasonDeleting))
	remove(t, c)
	fleet.Gone(t, kc, p, 15*time.Second)

	// The same name again: another pool, which the claim that waits gets.
	again := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: p.Name}, Spec: p.Spec}
	fleet.Create(t, kc, again)
	allocated(t, late)
}

// TestPoolShrinks: a claim keeps an address that its pool no longer has.
func TestPoolShrinks(t *testing.T) {
	start(t)
	ns, p := lan(t, "10.0.0.0/29")
	c := claim(t, ns, "c", "lan")
	ips := allocated(t, c)
	fleet.Edit(t, kc, p, func() { p.Spec.Ranges[0].Exclude = []string{strings.TrimSuffix(ips[0], "/29")} })
	eventually(t, 10*time.Second, func() error {
		if _, err := read(p); err != nil {
			return err
		}
		return condition(p.Status.Conditions, "Draining", metav1.ConditionTrue, "AddressesOutsideRanges")
	})
	if err := same(c, ips); err != nil {
		t.Error(err)
	}
	remove(t, c)
	freed(t, uidOf(c), 10*time.Second)
	for i := range 5 { // .1 to .6 without the one
		if got := allocated(t, claim(t, ns, fmt.Sprint("d", i), "lan")); slices.Equal(got, ips) {
			t.Errorf("%v is given again; want it excluded", got)
		}
	}
	failed(t, claim(t, ns, "e", "lan"), "SubnetExhausted")
}

// TestOverlapping: of pools that share addresses, in one domain or in none that anybody has named,
// the later one is not opened, and both say so.
func TestOverlapping(t *testing.T) {
	start(t)
	make := func(domain string, cidrs ...string) *v1alpha1.IPPool {
		p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: fleet.Unique("pool")}, Spec: v1alpha1.IPPoolSpec{Domain: domain}}
		for _, c := range cidrs {
			p.Spec.Ranges = append(p.Spec.Ranges, v1alpha1.Range{CIDR: c})
		}
		fleet.Create(t, kc, p)
		return p
	}
	overlaps := func(p, with *v1alpha1.IPPool) {
		t.Helper()
		eventually(t, 20*time.Second, func() error {
			if _, err := read(p); err != nil {
				return err
			}
			return condition(p.Status.Conditions, v1alpha1.PoolOverlapping, metav1.ConditionTrue, v1alpha1.ReasonSharedAddresses, with.Name)
		})
	}
	a := make("", "10.77.0.0/16")
	opened(t, a)
	b := make("", "10.77.8.0/24", "10.78.0.0/24")
	eventually(t, 20*time.Second, isReady(b, metav1.ConditionFalse, v1alpha1.ReasonOverlap, a.Name, "spec.domain"))
	opened(t, a)

	elsewhere := make("dc-2", "10.77.0.0/16")
	opened(t, elsewhere)
	if err := condition(elsewhere.Status.Conditions, v1alpha1.PoolOverlapping, metav1.ConditionFalse, v1alpha1.ReasonDisjoint); err != nil {
		t.Error(err)
	}
	time.Sleep(1100 * time.Millisecond) // creation times have whole seconds
	second := make("dc-2", "10.77.1.0/24")
	eventually(t, 20*time.Second, isReady(second, metav1.ConditionFalse, v1alpha1.ReasonOverlap, elsewhere.Name, "dc-2"))
	overlaps(elsewhere, second)
	opened(t, elsewhere)
	remove(t, elsewhere)
	opened(t, second)

	fleet.Edit(t, kc, b, func() { b.Spec.Domain = "dc-3" })
	opened(t, b)
	for _, p := range []*v1alpha1.IPPool{a, b} {
		eventually(t, 20*time.Second, func() error {
			if _, err := read(p); err != nil {
				return err
			}
			return condition(p.Status.Conditions, v1alpha1.PoolOverlapping, metav1.ConditionFalse, v1alpha1.ReasonDisjoint)
		})
	}
}

// TestCounts: what the leases add up to, and how scarce addresses are.
func TestCounts(t *testing.T) {
	start(t)
	ns := namespace(t)
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: fleet.Unique("pool")}}
	p.Spec.Ranges, p.Spec.BlockSize, p.Spec.Domain = []v1alpha1.Range{{CIDR: "10.0.0.0/28"}}, new(int32(4)), p.Name
	fleet.Create(t, kc, p)
	opened(t, p)
	counts := func(want v1alpha1.PoolCounts, pressure v1alpha1.Pressure) {
		t.Helper()
		want.FreeText, want.CapacityText = fmt.Sprint(want.Free), fmt.Sprint(want.Capacity)
		eventually(t, 20*time.Second, func() error {
			if _, err := read(p); err != nil {
				return err
			}
			if p.Status.Counts == nil || *p.Status.Counts != want || p.Status.Pressure != pressure {
				return fmt.Errorf("counts %+v, pressure %s; want %+v, %s", p.Status.Counts, p.Status.Pressure, want, pressure)
			}
			return nil
		})
	}
	counts(v1alpha1.PoolCounts{Capacity: 14, Free: 14}, v1alpha1.PressureLow)

	registered(t, "count-1")
	registered(t, "count-2")
	l := nodeLease(t, p, uidOf(p), "10.0.0.4/30", "count-1")
	if _, err := api.PublishLease(t.Context(), l.Name, l.UID, protocol.Publication{Used: 3, Free: 1, At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	definition(t, ns, "lan", "lan", ofPool(p.Name))
	c, d := claim(t, ns, "c", "lan"), claim(t, ns, "d", "lan")
	allocated(t, c)
	allocated(t, d)
	u := use(t, c, 0, "n1", "p")
	counts(v1alpha1.PoolCounts{Capacity: 14, Used: 3 + 1, Claimed: 2, Free: 14 - 3 - 2, Leases: 2}, v1alpha1.PressureLow)

	// The registration of count-1 falls silent: its free address is out of reach.
	amend(t, "count-1", func(s *protocol.Registration) { s.Fence = 2 * time.Second })
	counts(v1alpha1.PoolCounts{Capacity: 14, Used: 4, Claimed: 2, Free: 8, Unreachable: 1, Leases: 2}, v1alpha1.PressureLow)

	// All blocks are leased.
	var rest []protocol.Lease
	for _, block := range []string{"10.0.0.0/30", "10.0.0.8/30", "10.0.0.12/30"} {
		if held, out, _ := api.ReadLease(t.Context(), protocol.LeaseName(protocol.PoolName(p.Name), prefix(block))); out == protocol.Done && held.Holder.Cluster {
			continue
		}
		l := nodeLease(t, p, uidOf(p), block, "count-2")
		if _, err := api.PublishLease(t.Context(), l.Name, l.UID, protocol.Publication{Used: ordinary(block), At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		rest = append(rest, l)
	}
	eventually(t, 20*time.Second, func() error {
		if _, err := read(p); err != nil {
			return err
		}
		if p.Status.Pressure != v1alpha1.PressureExhausted {
			return fmt.Errorf("pressure %s; want Exhausted", p.Status.Pressure)
		}
		return nil
	})
	for i := range 4 { // the rest of the cluster's block, and one too many
		_ = kc.Create(t.Context(), claimOf(ns, fmt.Sprint("e", i), "lan"))
	}
	eventually(t, 20*time.Second, func() error {
		if _, err := read(p); err != nil {
			return err
		}
		message := fmt.Sprintf("pool %s is exhausted: 13 of 14 in use, 1 unreachable", p.Name)
		return condition(p.Status.Conditions, v1alpha1.PoolExhausted, metav1.ConditionTrue, v1alpha1.ReasonNoAddressFree, message)
	})
	for _, l := range rest {
		remove(t, &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: l.Name}})
	}
	eventually(t, 20*time.Second, func() error {
		if _, err := read(p); err != nil {
			return err
		}
		return condition(p.Status.Conditions, v1alpha1.PoolExhausted, metav1.ConditionFalse, v1alpha1.ReasonAddressesFree)
	})
	unuse(t, u)
}

// TestPoolKeepsWhatABridgeTakes: the address that a bridge takes for itself is kept from all who
// use the pool, while the bridge's definition is there. Where a claim has it already, the pool
// says so.
func TestPoolKeepsWhatABridgeTakes(t *testing.T) {
	start(t)
	ns := namespace(t)
	p := pool(t, "10.6.0.0/30")
	opened(t, p)
	wire, bridged := fleet.Unique("wire"), fleet.Unique("bridged")
	definition(t, ns, wire, wire, ofPool(p.Name))
	first := claimOf(ns, "first", wire)
	first.Annotations = map[string]string{workload.AnnotationRequested: "10.6.0.1"}
	fleet.Create(t, kc, first)
	if got := allocated(t, first); !slices.Equal(got, []string{"10.6.0.1/30"}) {
		t.Fatalf("the first claim has %v", got)
	}
	router := definition(t, ns, bridged, bridged, ofPool(p.Name))
	fleet.Edit(t, kc, router, func() {
		router.Spec.Config = fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"type":"bridge","isGateway":true,"ipam":%s}`, bridged, ofPool(p.Name))
	})
	keeps := func(want ...string) func() error {
		return func() error {
			now, err := read(named(p.Name))
			if err == nil && !slices.Equal(now.Status.Gateways, want) {
				err = fmt.Errorf("the pool keeps %v; want %v", now.Status.Gateways, want)
			}
			return err
		}
	}
	eventually(t, 20*time.Second, keeps("10.6.0.1"))
	eventually(t, 20*time.Second, func() error {
		now, err := read(named(p.Name))
		if err != nil {
			return err
		}
		return condition(now.Status.Conditions, v1alpha1.PoolTwoOwners, metav1.ConditionTrue, v1alpha1.ReasonRouterTaken,
			"10.6.0.1 is the gateway of network attachment definition "+ns+"/"+bridged, "claim "+ns+"/first has it")
	})
	remove(t, first)
	if got := allocated(t, claim(t, ns, "second", wire)); !slices.Equal(got, []string{"10.6.0.2/30"}) {
		t.Errorf("the next claim has %v; want what no router has", got)
	}
	remove(t, router)
	eventually(t, 20*time.Second, keeps())
}

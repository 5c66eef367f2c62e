package controller_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/proof"
)

func TestAllocate(t *testing.T) {
	start(t)
	ns, _ := lan(t, "10.0.0.0/24")
	c := claim(t, ns, "vm.lan", "lan")
	ips := allocated(t, c)
	if a := netip.MustParsePrefix(ips[0]); len(ips) != 1 || a.Bits() != 24 || !netip.MustParsePrefix("10.0.0.0/24").Contains(a.Addr()) {
		t.Errorf("status.ips %v; want one address of 10.0.0.0/24 with its length", ips)
	}
	if got := granted(t, uidOf(c)); len(got) != 1 || got[0] != netip.MustParsePrefix(ips[0]).Addr() {
		t.Errorf("granted %v; want %v", got, ips)
	}
	remove(t, c)
	freed(t, uidOf(c), 10*time.Second)
}

func TestAllocateDualStack(t *testing.T) {
	start(t)
	ns, _ := lan(t, "fd00::/64", "10.0.0.0/16")
	c := claim(t, ns, "vm.lan", "lan")
	ips := allocated(t, c)
	if len(ips) != 2 || !netip.MustParsePrefix(ips[0]).Addr().Is4() || netip.MustParsePrefix(ips[1]).Bits() != 64 {
		t.Errorf("status.ips %v; want an IPv4 and then an IPv6 address", ips)
	}
	if err := condition(c.Status.Conditions, kube.ConditionIPsAllocated, metav1.ConditionTrue, "SuccessfulAllocation"); err != nil {
		t.Error(err)
	}
}

// TestThousandsAtOnce creates claims faster than they are served. None has an
// address of another's, and each address stands on a lease. Deleted at once, they
// leave nothing.
func TestThousandsAtOnce(t *testing.T) {
	proof.Only(t)
	start(t)
	ns, p := lan(t, "10.0.0.0/16")
	opened(t, p)
	const n = 2000
	begun := time.Now()
	parallel(t, n, func(i int) error { return kc.Create(t.Context(), claimOf(ns, fmt.Sprint("c", i), "lan")) })
	made := time.Since(begun)
	all := inNamespace(t, ns, n)
	took := time.Since(begun)
	if err := distinct(t, ns); err != nil {
		t.Error(err)
	}
	writes, raw := 500, time.Now()
	parallel(t, writes, func(i int) error {
		c := all[i]
		c.Status.OwnerPod = &ipamclaims.OwnerPod{Name: "x"}
		return kc.Status().Update(t.Context(), &c)
	})
	t.Logf("%d claims: created in %v (%.0f/s), all allocated after %v (%.0f/s); raw status updates %.0f/s",
		n, made, n/made.Seconds(), took, n/took.Seconds(), float64(writes)/time.Since(raw).Seconds())
	eventually(t, 2*time.Minute, func() error { // a slow API server breaks it off after a minute
		return kc.DeleteAllOf(t.Context(), &ipamclaims.IPAMClaim{}, client.InNamespace(ns))
	})
	drained(t, p, time.Minute)
}

// drained waits until a pool has no lease any more.
func drained(t testing.TB, p *v1alpha1.IPPool, within time.Duration) {
	t.Helper()
	eventually(t, within, func() error {
		leases, err := api.LeasesOfPool(t.Context(), protocol.PoolName(p.Name))
		if err == nil && len(leases) > 0 {
			return fmt.Errorf("%d leases are left", len(leases))
		}
		return err
	})
}

// parallel calls do with 0 to n-1, 16 at once.
func parallel(t testing.TB, n int, do func(int) error) {
	t.Helper()
	parallelOf(t, 16, n, do)
}

// parallelOf calls do with 0 to n-1, so many at once.
func parallelOf(t testing.TB, limit, n int, do func(int) error) {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(limit)
	for i := range n {
		g.Go(func() error { return do(i) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// inNamespace waits until a namespace has n claims with addresses.
func inNamespace(t testing.TB, ns string, n int) []ipamclaims.IPAMClaim {
	t.Helper()
	var list ipamclaims.IPAMClaimList
	eventually(t, time.Minute, func() error {
		if err := kc.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
			return err
		}
		served := 0
		for _, c := range list.Items {
			if len(c.Status.IPs) > 0 {
				served++
			}
		}
		if served != n {
			return fmt.Errorf("%d of %d claims have addresses", served, n)
		}
		return nil
	})
	return list.Items
}

// TestNetworks: whose claim it is, by the network that it names.
func TestNetworks(t *testing.T) {
	start(t)
	p, other := pool(t, "10.0.0.0/24"), pool(t, "10.0.1.0/24")
	opened(t, p)
	opened(t, other)
	infra := namespace(t)
	unlike := func(name string) string { return fleet.Unique(name) } // network names are cluster-wide here

	t.Run("definition in another namespace", func(t *testing.T) {
		net := unlike("lan")
		definition(t, infra, net, net, ofPool(p.Name))
		allocated(t, claim(t, namespace(t), "c", net))
	})
	t.Run("the network's name is not the definition's", func(t *testing.T) {
		net, ns := unlike("lan"), namespace(t)
		definition(t, ns, "some-object", net, ofPool(p.Name))
		allocated(t, claim(t, ns, "c", net))
		untouched(t, claim(t, ns, "d", "some-object"))
	})
	t.Run("the claim's own namespace comes first", func(t *testing.T) {
		net, ns := unlike("lan"), namespace(t)
		definition(t, infra, net, net, ofPool(other.Name))
		definition(t, ns, "mine", net, ofPool(p.Name))
		ips := allocated(t, claim(t, ns, "c", net))
		if !netip.MustParsePrefix("10.0.0.0/24").Contains(netip.MustParsePrefix(ips[0]).Addr()) {
			t.Errorf("addresses %v; want one of pool %s", ips, p.Name)
		}
	})
	t.Run("ambiguous", func(t *testing.T) {
		net := unlike("lan")
		definition(t, infra, net+"-a", net, ofPool(other.Name))
		second := definition(t, infra, net+"-b", net, ofPool(p.Name))
		c := claim(t, namespace(t), "c", net)
		failed(t, c, "NetworkAmbiguous", infra+"/"+net+"-a", infra+"/"+net+"-b")
		fleet.Event(t, kc, c, "NetworkAmbiguous")
		if c.Status.IPs == nil {
			t.Error("status.ips is null; want []")
		}
		remove(t, second)
		allocated(t, c)
	})
	t.Run("N79 N87 another IPAM's network is never touched", func(t *testing.T) {
		net, ns := unlike("lan"), namespace(t)
		definition(t, ns, net, net, `{"type":"whereabouts","range":"203.0.113.0/24"}`)
		untouched(t, claim(t, ns, "c", net))
		untouched(t, claim(t, ns, "unknown", unlike("nobody")))
	})
	t.Run("the definition comes later", func(t *testing.T) {
		net, ns := unlike("lan"), namespace(t)
		c := claim(t, ns, "c", net)
		untouched(t, c)
		definition(t, ns, net, net, ofPool(p.Name))
		allocated(t, c)
	})
	t.Run("the pool comes later", func(t *testing.T) {
		net, ns, name := unlike("lan"), namespace(t), unlike("late")
		definition(t, ns, net, net, ofPool(name))
		c := claim(t, ns, "c", net)
		failed(t, c, "PoolNotFound", name)
		late := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
		late.Spec.Ranges, late.Spec.Domain = []v1alpha1.Range{{CIDR: "10.0.7.0/24"}}, name
		fleet.Create(t, kc, late)
		allocated(t, c)
	})
	t.Run("faulty definition", func(t *testing.T) {
		net, ns := unlike("lan"), namespace(t)
		definition(t, ns, net, net, `{"type":"tenure","poool":"x"}`)
		failed(t, claim(t, ns, "c", net), "NetworkFaulty", "poool")
	})
	t.Run("definition deleted: addresses stay", func(t *testing.T) {
		net, ns := unlike("lan"), namespace(t)
		d := definition(t, ns, net, net, ofPool(p.Name))
		c := claim(t, ns, "c", net)
		ips := allocated(t, c)
		remove(t, d)
		always(t, time.Second, func() error { return same(c, ips) })
		remove(t, c)
		freed(t, uidOf(c), 10*time.Second)
	})
	t.Run("N79 the view of the definition", func(t *testing.T) {
		net, ns := unlike("lan"), namespace(t)
		definition(t, ns, net, net, fmt.Sprintf(`{"type":"tenure","range":"10.39.9.0/24","range_start":"10.39.9.10","range_end":"10.39.9.12","network_name":%q}`, net))
		got := map[string]bool{}
		for i := range 3 {
			got[allocated(t, claim(t, ns, fmt.Sprint("c", i), net))[0]] = true
		}
		if !got["10.39.9.10/24"] || !got["10.39.9.11/24"] || !got["10.39.9.12/24"] {
			t.Errorf("addresses %v; want .10, .11 and .12", got)
		}
		failed(t, claim(t, ns, "c3", net), "SubnetExhausted")
	})
}

// untouched fails the test if the controller writes anything into a claim.
func untouched(t testing.TB, c *ipamclaims.IPAMClaim) {
	t.Helper()
	revision := c.ResourceVersion
	always(t, 1500*time.Millisecond, func() error {
		now, err := read(c.DeepCopy())
		if err == nil && now.ResourceVersion != revision {
			return fmt.Errorf("claim %s was changed: %+v", c.Name, now.Status)
		}
		return err
	})
}

// same returns an error if a claim has other addresses.
func same(c *ipamclaims.IPAMClaim, ips []string) error {
	now, err := read(c.DeepCopy())
	if err == nil && !slices.Equal(now.Status.IPs, ips) {
		return fmt.Errorf("claim %s has %v; want %v", c.Name, now.Status.IPs, ips)
	}
	return err
}

// TestStatusByHand (N87): what somebody else wrote into a claim's status is never
// overwritten, never served unless it is the claim's by the leases, and breaks
// nothing.
func TestStatusByHand(t *testing.T) {
	start(t)
	ns, p := lan(t, "10.0.0.0/24")
	opened(t, p)
	first := claim(t, ns, "first", "lan")
	ips := allocated(t, first)
	write := func(c *ipamclaims.IPAMClaim, ips ...string) {
		t.Helper()
		eventually(t, 10*time.Second, func() error { // the controller may write in between
			if _, err := read(c); err != nil {
				return err
			}
			c.Status.IPs = append([]string{}, ips...)
			return kc.Status().Update(t.Context(), c)
		})
	}
	// The network of these claims is not known yet: the controller keeps off them.
	byHand := func(name string, ips ...string) *ipamclaims.IPAMClaim {
		t.Helper()
		c := claim(t, ns, name, "later")
		write(c, ips...)
		return c
	}
	cases := map[string]*ipamclaims.IPAMClaim{
		"outside the pool":      byHand("outside", "192.168.0.5/24"),
		"another claim's":       byHand("thief", ips[0]),
		"the network's address": byHand("reserved", "10.0.0.0/24"),
		"no address":            byHand("nonsense", "ten"),
	}
	restored := byHand("restored", "10.0.0.77/24")
	twin := byHand("twin", "10.0.0.77/24")
	definition(t, ns, "later", "later", ofPool(p.Name))
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			failed(t, c, "IPAddressConflict")
			fleet.Event(t, kc, c, "IPAddressConflict")
			written := c.Status.IPs
			always(t, time.Second, func() error { return same(c, written) })
		})
	}
	t.Run("another than granted", func(t *testing.T) {
		c := claim(t, ns, "changed", "lan")
		was := allocated(t, c)
		write(c, "10.0.0.250/24")
		failed(t, c, "IPAddressConflict", "10.0.0.250", netip.MustParsePrefix(was[0]).Addr().String())
		if got := granted(t, uidOf(c)); len(got) != 1 || got[0] != netip.MustParsePrefix(was[0]).Addr() {
			t.Errorf("granted %v; want still %v (I3)", got, was)
		}
		// The remedy that the condition names.
		write(c)
		if got := allocated(t, c); !slices.Equal(got, was) {
			t.Errorf("addresses %v; want again %v", got, was)
		}
	})
	t.Run("of this pool and free: it becomes one claim's", func(t *testing.T) {
		var had, had2 []netip.Addr
		eventually(t, 20*time.Second, func() error {
			had, had2 = granted(t, uidOf(restored)), granted(t, uidOf(twin))
			if len(had)+len(had2) != 1 {
				return fmt.Errorf("10.0.0.77 is granted %d times; want once", len(had)+len(had2))
			}
			return nil
		})
		owner, other := restored, twin
		if len(had2) > 0 {
			owner, other = twin, restored
		}
		eventually(t, 20*time.Second, func() error {
			if _, err := read(owner); err != nil {
				return err
			}
			return condition(owner.Status.Conditions, kube.ConditionIPsAllocated, metav1.ConditionTrue, "SuccessfulAllocation")
		})
		failed(t, other, "IPAddressConflict", owner.Name)
	})
	if err := same(first, ips); err != nil {
		t.Error(err)
	}
}

// TestLeaseDeletedByHand: what a claim's status shows is granted again.
func TestLeaseDeletedByHand(t *testing.T) {
	start(t)
	ns, p := lan(t, "10.0.0.0/24")
	c := claim(t, ns, "c", "lan")
	ips := allocated(t, c)
	leases, err := api.LeasesOfPool(t.Context(), protocol.PoolName(p.Name))
	if err != nil || len(leases) != 1 {
		t.Fatalf("%d leases, %v; want 1", len(leases), err)
	}
	remove(t, &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: leases[0].Name}})
	// The next look at the claim, for whatever reason, restores it.
	u := use(t, c, 0, "n1", "p")
	defer unuse(t, u)
	eventually(t, 20*time.Second, func() error {
		if got := granted(t, uidOf(c)); len(got) != 1 || netip.PrefixFrom(got[0], 24).String() != ips[0] {
			return fmt.Errorf("granted %v; want %v", got, ips)
		}
		return nil
	})
}

// TestRecreated: a claim is deleted and made again under its name.
func TestRecreated(t *testing.T) {
	start(t)
	ns, p := lan(t, "10.0.0.0/24")
	opened(t, p)
	var uids []protocol.UID
	var last *ipamclaims.IPAMClaim
	for range 20 {
		if last != nil {
			remove(t, last)
		}
		last = claim(t, ns, "vm.lan", "lan")
		uids = append(uids, uidOf(last))
	}
	ips := allocated(t, last)
	for _, uid := range uids[:len(uids)-1] {
		freed(t, uid, 10*time.Second)
	}
	if got := granted(t, uidOf(last)); len(got) != 1 || netip.PrefixFrom(got[0], 24).String() != ips[0] {
		t.Errorf("granted %v; want %v", got, ips)
	}

	// While a node uses the old one, its address stays its own.
	u := use(t, last, 0, "n1", "p")
	remove(t, last)
	next := claim(t, ns, "vm.lan", "lan")
	if got := allocated(t, next); got[0] == ips[0] {
		t.Errorf("the new claim has %v, which a pod of the old one uses", got)
	}
	always(t, 2*time.Second, func() error {
		if len(granted(t, uidOf(last))) != 1 {
			return fmt.Errorf("the old claim's address was freed while it is in use")
		}
		return nil
	})
	unuse(t, u)
	freed(t, uidOf(last), 10*time.Second)
}

// TestDeletedClaimKeepsItsAddressWhileItIsUsed (N80) holds a deleted claim's address until its
// last use ends.
func TestDeletedClaimKeepsItsAddressWhileItIsUsed(t *testing.T) {
	stop := start(t)
	ns := namespace(t)
	p := pool(t, "10.0.0.0/30") // two addresses
	definition(t, ns, "lan", "lan", ofPool(p.Name))
	c := claimOf(ns, "c", "lan")
	c.Finalizers = []string{"example.com/hold"}
	fleet.Create(t, kc, c)
	ips := allocated(t, c)
	u := use(t, c, 0, "n1", "p")
	v := use(t, c, 1, "n2", "q") // a live migration
	remove(t, c)                 // its finalizer holds it
	always(t, 1500*time.Millisecond, func() error { return same(c, ips) })
	fleet.Edit(t, kc, c, func() { c.Finalizers = nil })
	fleet.Gone(t, kc, c, 10*time.Second)
	kept := func() error {
		if got := granted(t, uidOf(c)); len(got) != 1 {
			return fmt.Errorf("granted %v; want %v still", got, ips)
		}
		return nil
	}
	always(t, 1500*time.Millisecond, kept)
	unuse(t, u)
	always(t, 1500*time.Millisecond, kept)

	// The controller restarts, and knows it still; then the last use ends unseen.
	stop()
	stop = start(t)
	always(t, 1500*time.Millisecond, kept)
	stop()
	unuse(t, v)
	start(t)
	freed(t, uidOf(c), 10*time.Second)
}

// TestFullPool: the one who waits longest has what comes free.
func TestFullPool(t *testing.T) {
	start(t)
	ns, p := lan(t, "10.0.0.0/30")
	a, b := claim(t, ns, "a", "lan"), claim(t, ns, "b", "lan")
	ips := allocated(t, a)
	allocated(t, b)
	c := claim(t, ns, "c", "lan")
	failed(t, c, "SubnetExhausted", p.Name)
	fleet.Event(t, kc, c, "SubnetExhausted")
	if c.Status.IPs == nil {
		t.Error("status.ips is null; want []")
	}
	d := claim(t, ns, "d", "lan")
	failed(t, d, "SubnetExhausted")
	remove(t, a)
	if got := allocated(t, c); !slices.Equal(got, ips) {
		t.Errorf("the first in the queue has %v; want %v", got, ips)
	}
	fleet.Event(t, kc, c, "SuccessfulAllocation")
	failed(t, d, "SubnetExhausted")
}

// TestAllOrNone: with one family exhausted, the other is not held.
func TestAllOrNone(t *testing.T) {
	start(t)
	ns := namespace(t)
	four, six := pool(t, "10.0.0.0/32"), pool(t, "fd00::/64")
	definition(t, ns, "dual", "dual", fmt.Sprintf(`{"type":"tenure","pools":[%q,%q]}`, six.Name, four.Name))
	first := claim(t, ns, "first", "dual")
	if ips := allocated(t, first); len(ips) != 2 || ips[0] != "10.0.0.0/32" {
		t.Errorf("status.ips %v; want 10.0.0.0/32 first", ips)
	}
	second := claim(t, ns, "second", "dual")
	failed(t, second, "SubnetExhausted", four.Name)
	if got := granted(t, uidOf(second)); len(got) > 0 {
		t.Errorf("granted %v to a claim that cannot have all; want nothing", got)
	}
}

// TestOwnerPod (N88): the status names the pod of the newest use.
func TestOwnerPod(t *testing.T) {
	start(t)
	ns, _ := lan(t, "10.0.0.0/24")
	c := claim(t, ns, "vm.lan", "lan")
	ips := allocated(t, c)
	owner := func(want string) {
		t.Helper()
		eventually(t, 10*time.Second, func() error {
			if _, err := read(c); err != nil {
				return err
			}
			got := ""
			if c.Status.OwnerPod != nil {
				got = c.Status.OwnerPod.Name
			}
			if got != want {
				return fmt.Errorf("ownerPod is %q; want %q", got, want)
			}
			return nil
		})
	}
	owner("")
	source := use(t, c, 0, "n1", "launcher-1")
	owner("launcher-1")
	time.Sleep(1100 * time.Millisecond) // creation times have whole seconds
	target := use(t, c, 1, "n2", "launcher-2")
	owner("launcher-2")
	unuse(t, target) // the migration fails
	owner("launcher-1")
	unuse(t, source)
	owner("")
	if err := same(c, ips); err != nil {
		t.Error(err)
	}
}

// TestTwoControllers has two controllers work at once.
func TestTwoControllers(t *testing.T) {
	proof.Only(t)
	start(t)
	start(t)
	ns, p := lan(t, "10.0.0.0/20")
	opened(t, p)
	const n = 150
	parallel(t, n, func(i int) error { return kc.Create(t.Context(), claimOf(ns, fmt.Sprint("c", i), "lan")) })
	all := inNamespace(t, ns, n)
	if err := distinct(t, ns); err != nil {
		t.Error(err)
	}
	eventually(t, 20*time.Second, func() error {
		leases, err := api.LeasesOfPool(t.Context(), protocol.PoolName(p.Name))
		total := 0
		for _, l := range leases {
			total += len(l.Grants)
		}
		if err == nil && total != n {
			return fmt.Errorf("%d grants; want %d: what each granted beyond that is freed", total, n)
		}
		return err
	})
	parallel(t, n, func(i int) error { return kc.Delete(t.Context(), &all[i]) })
	drained(t, p, 30*time.Second)
}

package controller_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

// ordinary returns how many addresses of a block of 10.0.0.0/28 can be given.
func ordinary(block string) int {
	if block == "10.0.0.0/30" || block == "10.0.0.12/30" {
		return 3
	}
	return 4
}

func named(name string) *v1alpha1.IPPool {
	return &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// inline is an ipam section in whereabouts' form, of a network of its own.
func inline(name, rest string) string {
	return fmt.Sprintf(`{"type":"tenure","network_name":%q,%s}`, name, rest)
}

// awaitOpen waits until a pool is there and open.
func awaitOpen(t testing.TB, name string) *v1alpha1.IPPool {
	t.Helper()
	p := named(name)
	eventually(t, 20*time.Second, isReady(p, metav1.ConditionTrue, v1alpha1.ReasonOpen))
	return p
}

func TestDualStackInline(t *testing.T) {
	start(t)
	ns, net := namespace(t), fleet.Unique("net")
	definition(t, ns, net, net, inline(net, `"ipRanges":[{"range":"10.3.0.0/24"},{"range":"fd03::/64"}]`))
	ips := allocated(t, claim(t, ns, "c", net))
	if len(ips) != 2 || !prefix("10.3.0.0/24").Contains(prefix(ips[0]).Addr()) || !prefix("fd03::/64").Contains(prefix(ips[1]).Addr()) {
		t.Errorf("addresses %v; want one of 10.3.0.0/24 and one of fd03::/64", ips)
	}
	p := awaitOpen(t, net)
	if p.Labels["tenure.dev/implicit"] != "true" || p.Annotations["tenure.dev/definitions"] != ns+"/"+net {
		t.Errorf("labels %v, annotations %v; want it marked as made of %s/%s", p.Labels, p.Annotations, ns, net)
	}
}

func TestRangeAndIPRanges(t *testing.T) {
	start(t)
	ns, net := namespace(t), fleet.Unique("net")
	definition(t, ns, net, net, inline(net, `"range":"10.4.0.0/24","ipRanges":[{"range":"fd04::/64"}]`))
	ips := allocated(t, claim(t, ns, "c", net))
	if len(ips) != 2 || !prefix("10.4.0.0/24").Contains(prefix(ips[0]).Addr()) || !prefix("fd04::/64").Contains(prefix(ips[1]).Addr()) {
		t.Errorf("addresses %v; want one of 10.4.0.0/24 and one of fd04::/64", ips)
	}
}

// TestOverlappingRanges: two definitions of one domain never give one address
// twice; with enable_overlapping_ranges off they may.
func TestOverlappingRanges(t *testing.T) {
	start(t)
	ns := namespace(t)
	shared, a, b := fleet.Unique("shared"), fleet.Unique("a"), fleet.Unique("b")
	definition(t, ns, a, a, inline(shared, `"range":"10.10.0.0/24","range_start":"10.10.0.10","range_end":"10.10.0.11"`))
	definition(t, ns, b, b, inline(shared, `"range":"10.10.0.0/24","range_start":"10.10.0.11","range_end":"10.10.0.12"`))
	seen := map[string]bool{}
	for i, net := range []string{b, b, a} {
		ip := allocated(t, claim(t, ns, fmt.Sprint("c", i), net))[0]
		if seen[ip] {
			t.Errorf("%s is given twice", ip)
		}
		seen[ip] = true
	}
	failed(t, claim(t, ns, "c3", a), "SubnetExhausted")
	p := awaitOpen(t, shared)
	if len(p.Spec.Ranges) != 1 || p.Spec.Ranges[0].Start != "10.10.0.10" || p.Spec.Ranges[0].End != "10.10.0.12" {
		t.Errorf("ranges %+v; want the union, from .10 to .12", p.Spec.Ranges)
	}

	off := func(name string) string {
		return fmt.Sprintf(`{"type":"tenure","range":%q,"range_start":"10.11.0.5","range_end":"10.11.0.5","enable_overlapping_ranges":false}`, name)
	}
	c, d := fleet.Unique("c"), fleet.Unique("d")
	definition(t, ns, c, c, off("10.11.0.0/24"))
	definition(t, ns, d, d, off("10.11.0.0/25"))
	first, second := allocated(t, claim(t, ns, "off-1", c))[0], allocated(t, claim(t, ns, "off-2", d))[0]
	if prefix(first).Addr() != prefix(second).Addr() {
		t.Errorf("addresses %s and %s; want 10.11.0.5 in both", first, second)
	}
}

// TestNamedNetworks: the same CIDR twice in two domains.
func TestNamedNetworks(t *testing.T) {
	start(t)
	ns, blue, red := namespace(t), fleet.Unique("blue"), fleet.Unique("red")
	definition(t, ns, blue, blue, inline(blue, `"range":"10.12.0.0/24","range_start":"10.12.0.9","range_end":"10.12.0.9"`))
	definition(t, ns, red, red, inline(red, `"range":"10.12.0.0/24","range_start":"10.12.0.9","range_end":"10.12.0.9"`))
	for _, net := range []string{blue, red} {
		if ips := allocated(t, claim(t, ns, net, net)); ips[0] != "10.12.0.9/24" {
			t.Errorf("%s: addresses %v; want 10.12.0.9/24", net, ips)
		}
	}
	for _, name := range []string{blue, red} {
		p := awaitOpen(t, name)
		if err := condition(p.Status.Conditions, v1alpha1.PoolOverlapping, metav1.ConditionFalse, v1alpha1.ReasonDisjoint); err != nil {
			t.Errorf("pool %s, in a domain of its own: %v", name, err)
		}
	}
}

// TestImplicitPoolsLife: made, grown, shrunk and removed with its definitions.
func TestImplicitPoolsLife(t *testing.T) {
	start(t)
	ns, net := namespace(t), fleet.Unique("net")
	first := definition(t, ns, net+"-1", net, inline(net, `"range":"10.13.0.0/24"`))
	p := awaitOpen(t, net)
	second := definition(t, ns, net+"-2", net+"-more", inline(net, `"range":"10.14.0.0/24"`))
	ranges := func(want ...string) {
		t.Helper()
		eventually(t, 20*time.Second, func() error {
			if _, err := read(p); err != nil {
				return err
			}
			var got []string
			for _, r := range p.Spec.Ranges {
				got = append(got, r.CIDR)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				return fmt.Errorf("ranges %v; want %v", got, want)
			}
			return nil
		})
	}
	ranges("10.13.0.0/24", "10.14.0.0/24")
	c := claim(t, ns, "c", net)
	ips := allocated(t, c)

	// What a person sets beside the ranges stays.
	fleet.Edit(t, kc, p, func() { p.Spec.TakeOver = v1alpha1.TakeOverConfirmed })
	remove(t, second)
	ranges("10.13.0.0/24")
	if p.Spec.TakeOver != v1alpha1.TakeOverConfirmed {
		t.Errorf("takeOver is %s; want the person's Confirmed", p.Spec.TakeOver)
	}

	remove(t, first) // nobody describes it, and a claim has an address of it
	always(t, 2*time.Second, func() error {
		p, err := read(named(net))
		if err == nil && p.DeletionTimestamp != nil {
			err = fmt.Errorf("the pool is being deleted while %v is in use", ips)
		}
		return err
	})
	remove(t, c)
	fleet.Gone(t, kc, named(net), 30*time.Second)
}

// TestDefinitionsDisagree: of two gateways none is given to a pod, and the pair is told.
func TestDefinitionsDisagree(t *testing.T) {
	start(t)
	ns, net := namespace(t), fleet.Unique("net")
	definition(t, ns, net+"-1", net+"-1", inline(net, `"range":"10.15.0.0/24","gateway":"10.15.0.1"`))
	younger := definition(t, ns, net+"-2", net+"-2", inline(net, `"range":"10.15.0.0/24","gateway":"10.15.0.254"`))
	fleet.Event(t, kc, younger, "DefinitionsDisagree")
	p := awaitOpen(t, net)
	eventually(t, 20*time.Second, func() error {
		if _, err := read(p); err != nil {
			return err
		}
		if r := p.Spec.Ranges[0]; r.Gateway != "10.15.0.1" || !slices.Contains(r.Exclude, "10.15.0.254") && r.End != "10.15.0.253" {
			return fmt.Errorf("range %+v; want the lower gateway named, and the other one excluded", r)
		}
		if by := p.Annotations["tenure.dev/definitions"]; by != ns+"/"+net+"-1,"+ns+"/"+net+"-2" {
			return fmt.Errorf("made by %s; want both", by)
		}
		return condition(p.Status.Conditions, "DefinitionsDisagree", metav1.ConditionTrue, "DefinitionsDiffer", ns+"/"+net+"-1", ns+"/"+net+"-2", "10.15.0.254", "network_name")
	})
	generation := p.Generation
	always(t, 2*time.Second, func() error {
		p, err := read(named(net))
		if err == nil && p.Generation != generation {
			err = fmt.Errorf("the pool is written again and again: generation %d after %d", p.Generation, generation)
		}
		return err
	})
	remove(t, younger)
	eventually(t, 20*time.Second, func() error {
		if _, err := read(p); err != nil {
			return err
		}
		if condition(p.Status.Conditions, "DefinitionsDisagree", metav1.ConditionTrue, "DefinitionsDiffer") == nil {
			return fmt.Errorf("the condition is still there")
		}
		return nil
	})
}

// TestMoreDefinitionsThanAPoolHolds: the youngest is left out and told so, the others go on;
// once there is room it has its part.
func TestMoreDefinitionsThanAPoolHolds(t *testing.T) {
	start(t)
	ns, net := namespace(t), fleet.Unique("net")
	describe := func(i int) client.Object {
		name := fmt.Sprintf("%s-%d", net, i)
		return definition(t, ns, name, name, inline(net, fmt.Sprintf(`"range":"10.18.%d.0/24"`, i)))
	}
	has := func(n int, last string) func() error {
		return func() error {
			p, err := read(named(net))
			if err != nil {
				return err
			}
			if got := p.Spec.Ranges; len(got) != n || got[n-1].CIDR != last {
				return fmt.Errorf("ranges %v; want %d, the last %s", got, n, last)
			}
			return nil
		}
	}
	first := describe(0)
	for i := 1; i < 64; i++ {
		describe(i)
	}
	eventually(t, 20*time.Second, has(64, "10.18.63.0/24"))
	awaitOpen(t, net)
	youngest := describe(64)
	fleet.Event(t, kc, youngest, "PoolFull")
	p := named(net)
	eventually(t, 20*time.Second, func() error {
		if _, err := read(p); err != nil {
			return err
		}
		return condition(p.Status.Conditions, "DefinitionsDisagree", metav1.ConditionTrue, "DefinitionsDiffer", youngest.GetName(), "no room")
	})
	if err := has(64, "10.18.63.0/24")(); err != nil {
		t.Error(err)
	}
	remove(t, first)
	eventually(t, 20*time.Second, has(64, "10.18.64.0/24"))
	if ips := allocated(t, claim(t, ns, "c", youngest.GetName())); !prefix("10.18.64.0/24").Contains(prefix(ips[0]).Addr()) {
		t.Errorf("addresses %v; want one of 10.18.64.0/24", ips)
	}
}

// TestPersonsPool: a pool that a person made is never changed.
func TestPersonsPool(t *testing.T) {
	start(t)
	ns := namespace(t)
	p := pool(t, "10.16.0.0/24")
	opened(t, p)
	inside := definition(t, ns, "inside", "inside", inline(p.Name, `"range":"10.16.0.0/24","range_start":"10.16.0.7","range_end":"10.16.0.7"`))
	outside := definition(t, ns, "outside", "outside", inline(p.Name, `"range":"10.17.0.0/24"`))
	fleet.Event(t, kc, outside, "PoolOfAPerson")
	if ips := allocated(t, claim(t, ns, "c", "inside")); ips[0] != "10.16.0.7/24" {
		t.Errorf("addresses %v; want 10.16.0.7/24 of the person's pool", ips)
	}
	generation := p.Generation
	remove(t, inside)
	remove(t, outside)
	always(t, 1500*time.Millisecond, func() error {
		now, err := read(named(p.Name))
		if err == nil && (now.Generation != generation || now.Labels["tenure.dev/implicit"] != "" || now.DeletionTimestamp != nil) {
			err = fmt.Errorf("the person's pool was changed: %+v", now.ObjectMeta)
		}
		return err
	})
}

// TestIdleBlocksGoBack: what the cluster holds without a claim goes back.
func TestIdleBlocksGoBack(t *testing.T) {
	start(t)
	ns, p := lan(t, "10.18.0.0/24")
	c := claim(t, ns, "c", "lan")
	allocated(t, c)
	remove(t, c)
	eventually(t, 20*time.Second, func() error {
		leases, err := api.LeasesOfPool(t.Context(), protocol.PoolName(p.Name))
		if err == nil && len(leases) > 0 {
			return fmt.Errorf("lease %s is still there", leases[0].Name)
		}
		return err
	})
}

// TestDefinitionsThatCannotBeUsed: a definition that was to be Tenure's and cannot be used has an
// Event that says why; another IPAM's has none. What a claim has by an earlier text it keeps.
func TestDefinitionsThatCannotBeUsed(t *testing.T) {
	start(t)
	ns, net := namespace(t), fleet.Unique("net")
	ran := definition(t, ns, net, net, inline(net, `"range":"10.19.0.0/24"`))
	has := allocated(t, claim(t, ns, "c", net))
	ran.Spec.Config = `{"cniVersion":"1.0.0","name":"` + net + `","type":"bridge","ipam":{"type":"tenure"`
	if err := kc.Update(t.Context(), ran); err != nil {
		t.Fatal(err)
	}
	fleet.Event(t, kc, ran, "InvalidDefinition")
	other := definition(t, ns, "other", "other", `{"type":"Whereabouts","range":"10.19.1.0/24"}`)
	fleet.Event(t, kc, definition(t, ns, "spelt", "spelt", `{"type":"Tenure","pool":"p"}`), "InvalidDefinition")
	fleet.Event(t, kc, definition(t, ns, "lost", "lost", ofPool(fleet.Unique("gone"))), "PoolNotFound")
	beside := &nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "beside"}}
	beside.Spec.Config = `{"cniVersion":"1.0.0","name":"beside","plugins":[{"type":"bridge"}],"ipam":{"type":"tenure","pool":"p"}}`
	fleet.Create(t, kc, beside)
	fleet.Event(t, kc, beside, "InvalidDefinition")
	if got := allocated(t, claimOf(ns, "c", net)); !slices.Equal(got, has) {
		t.Errorf("the claim has %v; want what it had, %v", got, has)
	}
	var list eventsv1.EventList
	if err := kc.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Regarding.UID == other.UID {
			t.Errorf("another IPAM's definition has the Event %s: %s", e.Reason, e.Note)
		}
	}
}

// TestDefinitionsWithoutAName: as many as one pool could not hold get a pool each, and serve; those
// that overlap share one; one that joins two is refused with both names.
func TestDefinitionsWithoutAName(t *testing.T) {
	start(t)
	ns := namespace(t)
	define := func(name, cidr string) *nad.NetworkAttachmentDefinition {
		t.Helper()
		return definition(t, ns, name, name, fmt.Sprintf(`{"type":"tenure","range":%q}`, cidr))
	}
	const many = 70
	for i := range many {
		define(fmt.Sprint("apart-", i), fmt.Sprintf("10.60.%d.0/24", i))
	}
	last := fmt.Sprint("apart-", many-1)
	ips := allocated(t, claim(t, ns, "last", last))
	if len(ips) != 1 || !prefix("10.60.69.0/24").Contains(prefix(ips[0]).Addr()) {
		t.Errorf("addresses %v; want one of 10.60.69.0/24", ips)
	}
	p := awaitOpen(t, "range-10-60-69-0-24")
	if p.Spec.Domain != "default-domain" || len(p.Spec.Ranges) != 1 || p.Labels["tenure.dev/implicit"] != "true" {
		t.Errorf("domain %q, ranges %v, labels %v; want one range of the default domain, implicit", p.Spec.Domain, p.Spec.Ranges, p.Labels)
	}
	define("within", "10.60.69.0/25")
	within := allocated(t, claim(t, ns, "within", "within"))[0]
	if within == ips[0] {
		t.Errorf("%s is given twice", within)
	}
	eventually(t, 20*time.Second, func() error {
		p, err := read(named("range-10-60-69-0-24"))
		if want := ns + "/" + last + "," + ns + "/within"; err == nil && p.Annotations["tenure.dev/definitions"] != want {
			err = fmt.Errorf("made of %s; want %s", p.Annotations["tenure.dev/definitions"], want)
		}
		return err
	})
	bridge := define("bridge", "10.60.68.0/23")
	fleet.Event(t, kc, bridge, "BridgesPools")
	failed(t, claim(t, ns, "bridge", "bridge"), "NetworkFaulty", "range-10-60-68-0-24", "range-10-60-69-0-24")
	wide := awaitOpen(t, "range-10-60-68-0-24")
	if got := wide.Spec.Ranges[0].CIDR; got != "10.60.68.0/24" {
		t.Errorf("the pool has %s; want it as it was", got)
	}
}

// TestPoolOfEarlierVersions: the one pool that earlier versions have made of all definitions
// without a name keeps its name and is given the domain; what is apart from it gets a pool of its
// own.
func TestPoolOfEarlierVersions(t *testing.T) {
	ns := namespace(t)
	old := named("default-domain")
	old.Labels = map[string]string{"tenure.dev/implicit": "true"}
	old.Spec.Ranges = []v1alpha1.Range{{CIDR: "10.62.0.0/24"}}
	fleet.Create(t, kc, old)
	definition(t, ns, "in", "in", `{"type":"tenure","range":"10.62.0.0/24"}`)
	definition(t, ns, "apart", "apart", `{"type":"tenure","range":"10.62.1.0/24"}`)
	start(t)
	allocated(t, claim(t, ns, "in", "in"))
	allocated(t, claim(t, ns, "apart", "apart"))
	p, own := awaitOpen(t, "default-domain"), awaitOpen(t, "range-10-62-1-0-24")
	if p.UID != old.UID || p.Spec.Domain != "default-domain" || len(p.Spec.Ranges) != 1 || own.Spec.Domain != p.Spec.Domain {
		t.Errorf("the old pool: UID %s, domain %q, ranges %v, the other's domain %q", p.UID, p.Spec.Domain, p.Spec.Ranges, own.Spec.Domain)
	}
}

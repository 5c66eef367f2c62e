package ports_test

import (
	"fmt"
	"net/http"
	"os"
	"reflect"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/neutron"
)

// testFollow: a pool has what its subnets have: allocation pools, gateway, routes and DNS
// servers. It follows their changes, and says what has changed; who has an address keeps it.
func testFollow(t *testing.T, w *world) {
	_, ids := w.subnets(t, neutron.Subnet{
		CIDR: "10.9.0.0/24", Gateway: "10.9.0.254", DNS: []string{"10.9.0.53"},
		Routes: []map[string]string{{"destination": "10.20.0.0/16", "nexthop": "10.9.0.253"}},
		Pools:  []map[string]string{{"start": "10.9.0.10", "end": "10.9.0.19"}},
	}, neutron.Subnet{CIDR: "fd00:9::/64", IPVersion: 6})
	p := pool(t, ids...)
	all := []string{"10.9.0.0/24"}
	want := v1alpha1.Range{CIDR: all[0], Start: "10.9.0.10", End: "10.9.0.19", Gateway: "10.9.0.254", StaticOnly: all}
	if got := p.Spec.Ranges; len(got) != 2 || !reflect.DeepEqual(got[0], want) || got[1].CIDR != "fd00:9::/64" || got[1].Gateway != "fd00:9::" {
		t.Errorf("ranges are %+v; want %+v first", got, want)
	}
	if want := []v1alpha1.Route{{Dst: "10.20.0.0/16", GW: "10.9.0.253"}}; !slices.Equal(p.Spec.Routes, want) {
		t.Errorf("routes are %+v; want %+v", p.Spec.Routes, want)
	}
	if p.Spec.DNS == nil || !slices.Equal(p.Spec.DNS.Nameservers, []string{"10.9.0.53"}) {
		t.Errorf("DNS is %+v", p.Spec.DNS)
	}
	c := claim(t, p, "10.9.0.15")
	w.only(t, c)
	fleet.Edit(t, kc, p, func() { p.Spec.DNS.Search = []string{"pods.example"} }) // the pool's own

	w.Do(t, http.MethodPut, "subnets/"+ids[0], "subnet", map[string]any{"allocation_pools": []map[string]string{{"start": "10.9.0.100", "end": "10.9.0.109"}}, "dns_nameservers": []string{}}, nil)
	fleet.Eventually(t, within, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if p.Spec.Ranges[0].Start != "10.9.0.100" || p.Spec.DNS == nil || len(p.Spec.DNS.Nameservers) > 0 || len(p.Spec.DNS.Search) == 0 || p.Status.ObservedGeneration != p.Generation {
			return fmt.Errorf("the pool is still %+v", p.Spec)
		}
		return nil
	})
	fleet.Event(t, kc, p, v1alpha1.ReasonFollowed, "10.9.0.100")
	w.only(t, c)
	other := claim(t, p, "")
	w.only(t, other)
	waits(t, claim(t, p, "10.9.0.16"), "RequestedIPsInvalid", "10.9.0.16")
}

// testWritten: what somebody has written into the ranges of a pool with a source counts for
// nothing. What was written of another pool that is gone, as a backup has it, does no harm.
func testWritten(t *testing.T, w *world) {
	_, ids := w.subnets(t, neutron.Subnet{CIDR: "10.9.0.0/24"})
	first := pool(t, ids...)
	again := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: fleet.Unique("pool")}, Spec: *first.Spec.DeepCopy()}
	fleet.Delete(t, kc, first)
	again.Spec.Domain = again.Name
	fleet.Create(t, kc, again)
	condition(t, again, v1alpha1.PoolReady, metav1.ConditionTrue, v1alpha1.ReasonOpen, "")
	other := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: fleet.Unique("pool")}, Spec: *first.Spec.DeepCopy()}
	other.Spec.Domain, other.Spec.Ranges = other.Name, []v1alpha1.Range{{CIDR: "192.0.2.0/24"}}
	fleet.Create(t, kc, other)
	condition(t, other, v1alpha1.PoolReady, metav1.ConditionTrue, v1alpha1.ReasonOpen, "")
	if got := other.Spec.Ranges; len(got) != 1 || got[0].CIDR != "10.9.0.0/24" {
		t.Errorf("ranges are %+v", got)
	}
}

// testUnfit: each reason is said at the pool, and a subnet that Neutron shows no more leaves the
// pool as it was.
func testUnfit(t *testing.T, w *world) {
	_, one := w.subnets(t, neutron.Subnet{CIDR: "10.9.0.0/24"})
	_, two := w.subnets(t, neutron.Subnet{
		CIDR: "10.9.1.0/24", DNS: []string{"10.9.1.53"}, Routes: []map[string]string{{"destination": "10.20.0.0/16", "nexthop": "10.9.1.253"}},
	})
	condition(t, sourced(t, one[0], two[0]), v1alpha1.PoolSourceReady, metav1.ConditionFalse, v1alpha1.ReasonSubnetUnfit, "one network")
	missing := sourced(t, "11111111-1111-1111-1111-111111111111")
	condition(t, missing, v1alpha1.PoolSourceReady, metav1.ConditionFalse, v1alpha1.ReasonSubnetNotFound, "11111111")
	condition(t, missing, v1alpha1.PoolReady, metav1.ConditionFalse, v1alpha1.ReasonSourcePending, "")
	fleet.Event(t, kc, missing, v1alpha1.ReasonSubnetNotFound, "spec.source.neutron.subnetIDs")
	waits(t, claim(t, missing, ""), "PoolNotReady", "SourceReady")

	half := sourced(t, two[0], "22222222-2222-2222-2222-222222222222") // which it never had
	condition(t, half, v1alpha1.PoolSourceReady, metav1.ConditionFalse, v1alpha1.ReasonSubnetNotFound, "22222222")
	condition(t, half, v1alpha1.PoolReady, metav1.ConditionTrue, v1alpha1.ReasonOpen, "")
	if len(half.Spec.Routes) != 1 || half.Spec.DNS == nil {
		t.Errorf("the pool has routes %v, DNS %v; want those of the subnet that is there", half.Spec.Routes, half.Spec.DNS)
	}
	fleet.Delete(t, kc, half)

	p := pool(t, two[0])
	w.Do(t, http.MethodDelete, "subnets/"+two[0], "", nil, nil)
	fleet.Event(t, kc, p, v1alpha1.ReasonSubnetNotFound, two[0]) // the pool is written before
	condition(t, p, v1alpha1.PoolSourceReady, metav1.ConditionFalse, v1alpha1.ReasonSubnetNotFound, two[0])
	if len(p.Spec.Ranges) != 1 || len(p.Spec.Routes) != 1 || p.Spec.DNS == nil || p.Status.Neutron == nil {
		t.Errorf("the pool was emptied: %+v", p)
	}
}

// TestSourceStays: a pool has a source from its beginning, or never.
func TestSourceStays(t *testing.T) {
	o := fleet.Create(t, kc, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: fleet.Unique("pool")}, Spec: v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{{CIDR: "10.9.0.0/24"}}}})
	defer fleet.Delete(t, kc, o)
	o.Spec.Source = &v1alpha1.PoolSource{Neutron: &v1alpha1.NeutronSource{SubnetIDs: []string{"11111111-1111-1111-1111-111111111111"}}}
	if err := kc.Update(t.Context(), o); err == nil {
		t.Error("a source was added to a pool")
	}
	if err := kc.Create(t.Context(), &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: fleet.Unique("pool")}}); err == nil {
		t.Error("a pool has neither ranges nor a source")
	}
}

// testCredentials: without credentials, or with such as are of no use, pools and claims say so;
// they are read again when they change.
func testCredentials(t *testing.T, w *world) {
	_, ids := w.subnets(t, neutron.Subnet{CIDR: "10.9.0.0/24"})
	p := pool(t, ids...)
	good, err := os.ReadFile(w.clouds)
	if err != nil {
		t.Fatal(err)
	}
	for text, words := range map[string]string{"clouds: {}": "openstack", "[": "clouds.yaml"} {
		if err := os.WriteFile(w.clouds, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		condition(t, p, v1alpha1.PoolSourceReady, metav1.ConditionFalse, v1alpha1.ReasonNotConfigured, words)
	}
	c := claim(t, p, "")
	waits(t, c, v1alpha1.ReasonNotConfigured, "credentials")
	if err := os.WriteFile(w.clouds, good, 0o600); err != nil {
		t.Fatal(err)
	}
	w.only(t, c)
	condition(t, p, v1alpha1.PoolSourceReady, metav1.ConditionTrue, v1alpha1.ReasonFollowed, "")
}

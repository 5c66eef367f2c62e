package ports_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/neutron"
)

// testClaim (K3): a claim has what its port has, in both families, and the port goes with the
// claim.
func testClaim(t *testing.T, w *world) {
	network, ids := w.subnets(t, neutron.Subnet{CIDR: "10.9.0.0/24"}, neutron.Subnet{CIDR: "fd00:9::/64", IPVersion: 6})
	p := pool(t, ids...)
	c := claim(t, p, "")
	made := w.only(t, c)
	if _, port := w.allocated(t, c); port.MAC == "" || port.Network != network.ID || made.NetworkID != network.ID {
		t.Errorf("the port is %+v, and Neutron has %+v", port, made)
	}
	other := claim(t, p, "")
	if w.only(t, other); slices.Equal(other.Status.IPs, c.Status.IPs) {
		t.Errorf("two claims have %v", c.Status.IPs)
	}
	fleet.Delete(t, kc, c)
	w.portless(t, c)
	w.only(t, other)
}

// testRequested: a claim has the addresses that it asks for, if the allocation pools have them.
// What they have not, Neutron would give all the same.
func testRequested(t *testing.T, w *world) {
	_, ids := w.subnets(t, neutron.Subnet{CIDR: "10.9.0.0/24", Pools: []map[string]string{
		{"start": "10.9.0.10", "end": "10.9.0.19"}, {"start": "10.9.0.30", "end": "10.9.0.39"},
	}})
	p := pool(t, ids...)
	c := claim(t, p, "10.9.0.33")
	w.only(t, c)
	if !slices.Equal(c.Status.IPs, []string{"10.9.0.33/24"}) {
		t.Errorf("the claim has %v", c.Status.IPs)
	}
	waits(t, claim(t, p, "10.9.0.33"), "RequestedIPsTaken", "10.9.0.33")
	for _, bad := range []string{"10.9.0.25", "10.9.0.1", "10.9.0.0", "10.8.0.5"} {
		c := claim(t, p, bad)
		waits(t, c, "RequestedIPsInvalid", bad)
		w.portless(t, c)
	}
	stranger := w.Port(t, neutron.Port{NetworkID: w.subnet(t, ids[0]).NetworkID, DeviceOwner: "compute:nova", DeviceID: "vm", FixedIPs: []map[string]string{{"subnet_id": ids[0], "ip_address": "10.9.0.12"}}})
	late := claim(t, p, "10.9.0.12")
	waits(t, late, "RequestedIPsTaken", stranger.ID)
	w.Do(t, http.MethodDelete, "ports/"+stranger.ID, "", nil, nil)
	fleet.Eventually(t, time.Minute, func() error { return allocatedNow(t, late) })
	w.only(t, late)
}

// testExhausted: a subnet without addresses is a reason at claim and pool; then the next subnet
// of the pool has some, and what comes free is given.
func testExhausted(t *testing.T, w *world) {
	small := neutron.Subnet{CIDR: "10.9.0.0/29", Pools: []map[string]string{{"start": "10.9.0.2", "end": "10.9.0.3"}}}
	other := neutron.Subnet{CIDR: "10.9.1.0/29", Pools: []map[string]string{{"start": "10.9.1.2", "end": "10.9.1.2"}}}
	_, ids := w.subnets(t, small, other)
	p := pool(t, ids...)
	var all []*ipamclaims.IPAMClaim
	for range 3 {
		c := claim(t, p, "")
		w.only(t, c)
		all = append(all, c)
	}
	late := claim(t, p, "")
	waits(t, late, "SubnetExhausted", "allocation pools")
	condition(t, p, v1alpha1.PoolSourceReady, metav1.ConditionFalse, "SubnetExhausted", "allocation pools")
	fleet.Event(t, kc, p, "SubnetExhausted", "allocation pools")
	fleet.Delete(t, kc, all[1])
	w.only(t, late)
	condition(t, p, v1alpha1.PoolSourceReady, metav1.ConditionTrue, v1alpha1.ReasonFollowed, "")
}

// testDeleted: a port that somebody has deleted is made again, with its addresses and its
// hardware address. If somebody else has the address meanwhile, both are named.
func testDeleted(t *testing.T, w *world) {
	network, ids := w.subnets(t, neutron.Subnet{CIDR: "10.9.0.0/24"})
	p := pool(t, ids...)
	a, b := claim(t, p, ""), claim(t, p, "")
	addrs, before := w.allocated(t, a)
	w.Do(t, http.MethodDelete, "ports/"+before.ID, "", nil, nil)
	fleet.Eventually(t, within, func() error {
		_, port := w.allocated(t, a)
		return differs(port.ID, before.ID)
	})
	w.only(t, a)
	if now, port := w.allocated(t, a); !slices.Equal(now, addrs) || port.MAC != before.MAC {
		t.Errorf("the claim had %v, %v, and has %v, %v", addrs, before, now, port)
	}

	theirs, before := w.allocated(t, b)
	w.Do(t, http.MethodDelete, "ports/"+before.ID, "", nil, nil)
	thief := w.Port(t, neutron.Port{NetworkID: network.ID, DeviceOwner: "compute:nova", DeviceID: "vm", FixedIPs: []map[string]string{{"subnet_id": ids[0], "ip_address": theirs[0].String()}}})
	fleet.Eventually(t, within, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil {
			return err
		}
		return fleet.Condition(b.Status.Conditions, "PortReady", metav1.ConditionFalse, "TwoOwners", thief.ID)
	})
	condition(t, p, v1alpha1.PoolTwoOwners, metav1.ConditionTrue, v1alpha1.ReasonPortTaken, b.Name)
	w.Do(t, http.MethodDelete, "ports/"+thief.ID, "", nil, nil)
	fleet.Eventually(t, time.Minute, func() error { return one(w.Ports(t, string(b.UID))) })
	w.only(t, b)
	condition(t, p, v1alpha1.PoolSourceReady, metav1.ConditionTrue, v1alpha1.ReasonFollowed, "")
}

// testDamaged: a port that somebody has taken an address off gets it again: Neutron would give it
// to somebody else. If it has done so, both are named.
func testDamaged(t *testing.T, w *world) {
	network, ids := w.subnets(t, neutron.Subnet{CIDR: "10.9.0.0/24"}, neutron.Subnet{CIDR: "fd00:9::/64", IPVersion: 6})
	p := pool(t, ids...)
	c := claim(t, p, "")
	made := w.only(t, c)
	addrs, port := w.allocated(t, c)
	for _, f := range made.FixedIPs {
		w.Do(t, http.MethodPut, "ports/"+port.ID, "port", map[string]any{"fixed_ips": []any{f}}, nil)
		w.only(t, c)
	}
	i := slices.IndexFunc(made.FixedIPs, func(f map[string]string) bool { return f["subnet_id"] == ids[1] })
	w.end(t)
	w.Do(t, http.MethodPut, "ports/"+port.ID, "port", map[string]any{"fixed_ips": []any{made.FixedIPs[1-i]}}, nil)
	thief := w.Port(t, neutron.Port{NetworkID: network.ID, DeviceOwner: "compute:nova", DeviceID: "vm", FixedIPs: []map[string]string{made.FixedIPs[i]}})
	w.start(t)
	fleet.Eventually(t, within, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		return fleet.Condition(c.Status.Conditions, "PortReady", metav1.ConditionFalse, "TwoOwners", thief.ID)
	})
	w.Do(t, http.MethodDelete, "ports/"+thief.ID, "", nil, nil)
	w.only(t, c)
	if now, still := w.allocated(t, c); !slices.Equal(now, addrs) || still.ID != port.ID {
		t.Errorf("the claim had %v, %v, and has %v, %v", addrs, port, now, still)
	}
}

// testForged: a claim that tells another hardware address than its port has is told its port again.
func testForged(t *testing.T, w *world) {
	_, ids := w.subnets(t, neutron.Subnet{CIDR: "10.9.0.0/24"})
	p := pool(t, ids...)
	c := claim(t, p, "")
	w.only(t, c)
	_, port := w.allocated(t, c)
	forged := port
	forged.MAC = "fa:16:3e:00:00:99"
	leader, err := client.New(role, client.Options{Scheme: kc.Scheme()}) // to others it is forbidden
	must(t, err)
	patch := client.MergeFrom(c.DeepCopy())
	c.Annotations[vif.AnnotationPort] = forged.String()
	must(t, leader.Patch(t.Context(), c, patch))
	fleet.Eventually(t, within, func() error {
		if _, now := w.allocated(t, c); now.String() != port.String() {
			return fmt.Errorf("the claim tells port %v; want %v", now, port)
		}
		return nil
	})
	w.only(t, c)
}

// testOrphans: a port of ours without a claim goes; nothing that is not ours does.
func testOrphans(t *testing.T, w *world) {
	network, ids := w.subnets(t, neutron.Subnet{CIDR: "10.9.0.0/24"})
	p := pool(t, ids...)
	c := claim(t, p, "")
	w.only(t, c)
	strangers := []neutron.Port{
		w.Port(t, neutron.Port{NetworkID: network.ID, DeviceOwner: "compute:nova", DeviceID: "vm"}),
		w.Port(t, neutron.Port{NetworkID: network.ID, DeviceOwner: "tenure:another", DeviceID: "11111111-1111-1111-1111-111111111111"}),
		w.Port(t, neutron.Port{NetworkID: network.ID, DeviceOwner: "", DeviceID: string(c.UID)}),
	}
	kept := claim(t, p, "")
	w.only(t, kept)
	made := w.ours(t, string(kept.UID))[0]
	// One that was made when nobody waited for it any more.
	w.Port(t, neutron.Port{NetworkID: network.ID, DeviceOwner: made.DeviceOwner, DeviceID: made.DeviceID})
	w.only(t, kept)
	w.end(t) // the claim ends while no controller runs
	fleet.Delete(t, kc, c)
	w.start(t)
	fleet.Eventually(t, within, func() error { return none(w.ours(t, string(c.UID))) })
	for _, s := range strangers {
		var still neutron.Port
		w.Do(t, http.MethodGet, "ports/"+s.ID, "port", nil, &still)
	}
}

// testKeeps: claims that outlive their pods keep address, hardware address and port through
// another controller.
func testKeeps(t *testing.T, w *world) {
	_, ids := w.subnets(t, neutron.Subnet{CIDR: "10.9.0.0/24"})
	c := claim(t, pool(t, ids...), "")
	addrs, port := w.allocated(t, c)
	w.end(t)
	w.start(t)
	time.Sleep(3 * time.Second) // something that should not come
	if now, still := w.allocated(t, c); !slices.Equal(now, addrs) || still.ID != port.ID {
		t.Errorf("the claim had %v, %v, and has %v, %v", addrs, port, now, still)
	}
	w.only(t, c)
}

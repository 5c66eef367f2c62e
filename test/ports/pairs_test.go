package ports_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/neutron"
)

// testPairs: the port of a node that is a virtual machine allows the addresses that pods of the
// node have by claims. Pairs of others stay. A pair goes before the claim's port does.
func testPairs(t *testing.T, w *world) {
	network, ids := w.subnets(t, neutron.Subnet{CIDR: "10.9.0.0/24"})
	p := sourced(t, ids...)
	fleet.Edit(t, kc, p, func() { p.Spec.Source.Neutron.NodePorts = v1alpha1.NodePortsPairs })
	condition(t, p, v1alpha1.PoolReady, metav1.ConditionTrue, v1alpha1.ReasonOpen, "")
	a, b := "0a000000-0000-0000-0000-000000000001", "0b000000-0000-0000-0000-000000000002"
	for name, id := range map[string]string{"vm-a": "openstack:///" + a, "vm-b": "openstack://RegionOne/" + b, "metal": ""} {
		fleet.Create(t, kc, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: id}})
	}
	vip := map[string]string{"ip_address": "10.9.0.200"}
	cidr := map[string]string{"ip_address": "10.9.0.128/25", "mac_address": "fa:16:3e:00:00:99"}
	ofA := w.Port(t, neutron.Port{NetworkID: network.ID, DeviceOwner: "compute:nova", DeviceID: a, Pairs: []map[string]string{vip, cidr}})
	ofB := w.Port(t, neutron.Port{NetworkID: network.ID, DeviceOwner: "compute:nova", DeviceID: b})
	before := w.pairs(t, ofA)

	c := claim(t, p, "")
	addrs, port := w.allocated(t, c)
	want := addrs[0].String() + " " + port.MAC
	stolen := use(t, c, 0, "vm-a") // no pod is there yet
	time.Sleep(2 * time.Second)
	w.allows(t, ofA, before...)
	unuse(t, stolen)
	fleet.Create(t, kc, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "default"}})
	for _, node := range []string{"vm-a", "vm-b", "metal"} {
		fleet.Create(t, kc, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "on-" + node},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		})
	}
	first := use(t, c, 0, "vm-a")
	w.allows(t, ofA, append(slices.Clone(before), want)...)
	second := use(t, c, 1, "vm-b") // a live migration
	w.allows(t, ofB, want)
	unuse(t, first)
	w.allows(t, ofA, before...)
	w.allows(t, ofB, want)

	// Neutron takes ten pairs of a port: the first node's has them from others by now. It stands in
	// the way of neither the second node's nor a claim that is gone.
	var many []map[string]string
	for i := range 10 {
		many = append(many, map[string]string{"ip_address": fmt.Sprintf("10.9.0.%d", 201+i)})
	}
	w.Do(t, http.MethodPut, "ports/"+ofA.ID, "port", map[string]any{"allowed_address_pairs": many}, nil)
	refused, next, gone := claim(t, p, ""), claim(t, p, ""), claim(t, p, "")
	w.allocated(t, refused)
	w.allocated(t, gone)
	addrs, port = w.allocated(t, next)
	fourth := use(t, refused, 0, "vm-a")
	condition(t, p, v1alpha1.PoolSourceReady, metav1.ConditionFalse, "Rejected", "")
	fifth := use(t, next, 0, "vm-b")
	w.allows(t, ofB, want, addrs[0].String()+" "+port.MAC)
	fleet.Delete(t, kc, gone)
	w.portless(t, gone)
	unuse(t, fourth)
	unuse(t, fifth)
	w.allows(t, ofB, want)
	condition(t, p, v1alpha1.PoolSourceReady, metav1.ConditionTrue, v1alpha1.ReasonFollowed, "")
	w.Do(t, http.MethodPut, "ports/"+ofA.ID, "port", map[string]any{"allowed_address_pairs": []map[string]string{vip, cidr}}, nil)

	other := claim(t, p, "")
	w.allocated(t, other)
	third := use(t, other, 0, "metal")
	condition(t, p, v1alpha1.PoolSourceReady, metav1.ConditionFalse, "NodePortNotFound", "metal")
	unuse(t, third)
	condition(t, p, v1alpha1.PoolSourceReady, metav1.ConditionTrue, v1alpha1.ReasonFollowed, "")

	fleet.Delete(t, kc, c) // the pod runs on
	fleet.Eventually(t, within, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(c), c); !apierrors.IsNotFound(err) {
			return fmt.Errorf("claim %s is still there: %w", c.Name, err)
		}
		return nil
	})
	sixth := use(t, other, 0, "vm-b")
	addrs, port = w.allocated(t, other)
	w.allows(t, ofB, want, addrs[0].String()+" "+port.MAC)
	unuse(t, sixth)
	w.allows(t, ofB, want)
	unuse(t, second)
	w.portless(t, c)
	w.allows(t, ofB)
	w.allows(t, ofA, before...)

	kept := claim(t, p, "")
	addrs, port = w.allocated(t, kept)
	last := use(t, kept, 0, "vm-a")
	w.allows(t, ofA, append(slices.Clone(before), addrs[0].String()+" "+port.MAC)...)
	fleet.Edit(t, kc, p, func() { p.Spec.Source.Neutron.NodePorts = v1alpha1.NodePortsUnmanaged })
	w.allows(t, ofA, before...)
	unuse(t, last)
	for _, id := range []string{ofA.ID, ofB.ID} {
		w.Do(t, http.MethodDelete, "ports/"+id, "", nil, nil)
	}
}

// pairs returns the allowed address pairs of a port.
func (w *world) pairs(t *testing.T, of neutron.Port) (all []string) {
	t.Helper()
	var p neutron.Port
	w.Do(t, http.MethodGet, "ports/"+of.ID, "port", nil, &p)
	for _, pair := range p.Pairs {
		all = append(all, pair["ip_address"]+" "+pair["mac_address"])
	}
	slices.Sort(all)
	return all
}

// allows waits until a port has these pairs.
func (w *world) allows(t *testing.T, of neutron.Port, want ...string) {
	t.Helper()
	slices.Sort(want)
	fleet.Eventually(t, within, func() error {
		if got := w.pairs(t, of); !slices.Equal(got, want) {
			return fmt.Errorf("port %s allows %v; want %v", of.ID, got, want)
		}
		return nil
	})
}

// use has a node use a claim, as an agent does.
func use(t *testing.T, c *ipamclaims.IPAMClaim, i int, node string) protocol.SubLease {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "on-" + node, UID: "none"}}
	must(t, client.IgnoreNotFound(kc.Get(t.Context(), client.ObjectKeyFromObject(pod), pod)))
	s, _, err := kube.NewAPI(kc).CreateSubLease(t.Context(), protocol.SubLease{
		Meta: protocol.Meta{Name: protocol.UseName(protocol.UID(c.UID), i)}, Protocol: protocol.Version, Node: protocol.NodeName(node), Store: "store", Term: 1,
		Use: &protocol.Use{
			Claim: protocol.ClaimRef{Namespace: c.Namespace, Name: c.Name, UID: protocol.UID(c.UID)},
			Pod:   kube.PodRefOf(pod), Interface: "net1",
		},
	})
	must(t, err)
	return s
}

// unuse ends a use.
func unuse(t *testing.T, s protocol.SubLease) {
	t.Helper()
	o := &v1alpha1.IPSubLease{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	// To anybody but an agent it is forbidden.
	fleet.Edit(t, kc, o, func() { o.Annotations = map[string]string{"tenure.dev/deletion": "confirmed"} })
	fleet.Delete(t, kc, o)
}

package networks_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/attach/controller/podnetworks"
	"github.com/tenure-ipam/tenure/claims/vifs"
	"github.com/tenure-ipam/tenure/cmd/tenure-controller/controller"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/neutron"
)

var subnetIDs atomic.Int64

// subnetID returns the ID of a subnet of Neutron's that no other test has.
func subnetID() string { return fmt.Sprintf("a7d10000-0000-4000-8000-%012d", subnetIDs.Add(1)) }

// subnets makes a pool of subnets of Neutron's, as it is once the controller has read them.
func subnets(t *testing.T, parameters string, ids ...string) *v1alpha1.IPPool {
	t.Helper()
	name := fleet.Unique("subnets")
	return fleet.Create(t, kc, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{
		Domain: name, Ranges: []v1alpha1.Range{{CIDR: "10.0.0.0/24", Gateway: "10.0.0.1", StaticOnly: []string{"10.0.0.0/24"}}},
		Routes: []v1alpha1.Route{{Dst: "10.9.0.0/16"}},
		Source: &v1alpha1.PoolSource{Neutron: &v1alpha1.NeutronSource{SubnetIDs: ids, InterfaceParameters: parameters}},
	}})
}

// central makes InterfaceParameters of Tenure's own namespace, where pools name them, and returns
// their name.
func central(t *testing.T) string {
	t.Helper()
	return parameters(t, podnetwork.Namespace, fleet.Unique("params"), macvlan("eth1", 0)).Name
}

func kuryrConfig(subnet string) string { return fmt.Sprintf(`{"subnetId": %q}`, subnet) }

// TestSubnet (K3): a definition in Kuryr's form is of the pool that has its subnet, and its
// interfaces are as that pool says. It follows both.
func TestSubnet(t *testing.T) {
	id := subnetID()
	d := definition(t, team, vif.AnnotationKuryr, kuryrConfig(strings.ToUpper(id)))
	said(t, d, podnetworks.ReasonVIFPoolNotFound, fmt.Sprintf("no IPPool has Neutron's subnet %q: make one that has it in spec.source.neutron.subnetIDs", id))
	pool := subnets(t, "", subnetID(), id)
	said(t, d, podnetworks.ReasonVIFInvalid, "interfaceParameters is missing, which says how interfaces are made: give the name of InterfaceParameters of the definition's namespace, or what such have in spec; or give IPPool "+pool.Name)
	a := central(t)
	source := pool.Spec.Source.Neutron
	set := func(change func(*v1alpha1.NeutronSource)) {
		t.Helper()
		fleet.Edit(t, kc, pool, func() { change(pool.Spec.Source.Neutron) })
	}
	set(func(s *v1alpha1.NeutronSource) { s.InterfaceParameters = a })
	m := renders(t, d, `"master":"eth1","ipam":{"type":"tenure","pool":"`+pool.Name+`"}`)
	missing := fleet.Unique("params")
	set(func(s *v1alpha1.NeutronSource) { s.InterfaceParameters = missing })
	fleet.Gone(t, kc, m, within)
	said(t, d, podnetworks.ReasonVIFParametersNotFound, "IPPool "+pool.Name+": spec.source.neutron.interfaceParameters: InterfaceParameters tenure-system/"+missing+" does not exist: make it")
	parameters(t, podnetwork.Namespace, missing, macvlan("eth2", 0))
	m = renders(t, d, `"master":"eth2"`)
	if got, want := m.Annotations[podnetwork.AnnotationMadeFor], vif.Fingerprint(d.Annotations); got != want {
		t.Errorf("it is made for %q; want %q", got, want)
	}
	second := subnets(t, a, id)
	fleet.Gone(t, kc, m, within)
	said(t, d, podnetworks.ReasonVIFPoolAmbiguous, "IPPools "+pool.Name+" and "+second.Name+" have Neutron's subnet")
	set(func(s *v1alpha1.NeutronSource) { s.SubnetIDs = source.SubnetIDs[:1] })
	renders(t, d, `"pool":"`+second.Name+`"`)
	fleet.Delete(t, kc, second)
	fleet.Gone(t, kc, m, within)
	fleet.Delete(t, kc, d)
}

// TestSubnetInOwnForm (K3): in Tenure's form a definition names the subnet or its pool, and its own
// parameters come first. A plugin that takes no hardware address is refused.
func TestSubnetInOwnForm(t *testing.T) {
	id := subnetID()
	pool := subnets(t, central(t), id)
	own := parameters(t, team, fleet.Unique("params"), macvlan("eth7", 0))
	for text, want := range map[string]string{
		kuryrConfig(id):                        `"master":"eth1"`,
		fmt.Sprintf(`{"pool": %q}`, pool.Name): `"master":"eth1"`,
		fmt.Sprintf(`{"subnetId": %q, "interfaceParameters": %q}`, id, own.Name):                    `"master":"eth7"`,
		fmt.Sprintf(`{"subnetId": %q, "interfaceParameters": {"macvlan": {"master": "eth8"}}}`, id): `"master":"eth8"`,
	} {
		renders(t, definition(t, team, vif.AnnotationNetwork, text), want)
	}
	for _, plugin := range []string{`{"ipvlan": {"master": "eth1"}}`, `{"vlan": {"master": "eth1", "id": 7}}`} {
		d := definition(t, team, vif.AnnotationNetwork, fmt.Sprintf(`{"subnetId": %q, "interfaceParameters": %s}`, id, plugin))
		said(t, d, podnetworks.ReasonVIFInvalid, "the plugins ipvlan and vlan cannot be given one: take macvlan, bridge or sriov")
	}
}

// withNeutron runs the controller beside a Neutron, with interfaces in Kuryr's words.
func withNeutron(t *testing.T) *neutron.Server {
	t.Helper()
	server := neutron.New(t, neutron.Options{})
	clouds := filepath.Join(t.TempDir(), "clouds.yaml")
	text := fmt.Sprintf("clouds: {openstack: {auth_type: none, auth: {endpoint: %q}}}", server.URL())
	if err := os.WriteFile(clouds, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	restart(t, func(cfg *controller.Config) {
		cfg.NeutronClouds, cfg.NeutronEvery, cfg.KuryrAnnotation = clouds, 2*time.Second, true
	})
	return server
}

// kuryrMap waits until a pod has an annotation of these interfaces in Kuryr's words.
func kuryrMap(t *testing.T, p *corev1.Pod, names ...string) (all map[string]kuryrVIF) {
	t.Helper()
	fleet.Eventually(t, within, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		all = nil
		if text := p.Annotations[vif.AnnotationKuryrMap]; text != "" {
			if err := json.Unmarshal([]byte(text), &all); err != nil {
				return err
			}
		}
		if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, names) {
			return fmt.Errorf("pod %s has %q in Kuryr's words; want %q", p.Name, got, names)
		}
		return nil
	})
	return all
}

// A kuryrVIF is what is looked at of an interface in Kuryr's words.
type kuryrVIF struct {
	Name string `json:"versioned_object.name"`
	Data struct {
		ID, Address string
		Network     struct {
			Data struct{ ID string } `json:"versioned_object.data"`
		}
	} `json:"versioned_object.data"`
}

// eth0 is what another has written in Kuryr's words.
const eth0 = `{"eth0": {"versioned_object.name": "VIFOpenVSwitch", "versioned_object.data": {"id": "another's"}}}`

// TestPort (K3, K4, K5): an interface of a definition in Kuryr's form is called eth1, has the
// hardware address of its port in Neutron, and stands in the pod's map with the port. Kuryr's own
// annotation says the same, beside the eth0 of another.
func TestPort(t *testing.T) {
	server := withNeutron(t)
	network := server.Network(t, neutron.Network{Subnets: []neutron.Subnet{{CIDR: "10.0.0.0/24"}}})
	pool := fleet.Create(t, kc, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: fleet.Unique("subnets")}, Spec: v1alpha1.IPPoolSpec{Source: &v1alpha1.PoolSource{
		Neutron: &v1alpha1.NeutronSource{SubnetIDs: []string{network.Subnets[0].ID}, InterfaceParameters: central(t)},
	}}})
	d := definition(t, team, vif.AnnotationKuryr, kuryrConfig(network.Subnets[0].ID))
	renders(t, d, `"pool":"`+pool.Name+`"`)
	p := selecting(d.Name)
	p.Annotations[vif.AnnotationKuryrMap] = eth0
	fleet.Create(t, kc, p)
	got := mapped(t, p, "eth1")["eth1"]
	if all := claimsOf(t, p); len(all) != 1 {
		t.Fatalf("it has %d claims; want one", len(all))
	}
	c := claimsOf(t, p)[0]
	port, err := vif.ParsePort(c.Annotations[vif.AnnotationPort])
	if err != nil {
		t.Fatal(err)
	}
	want := vif.VIF{
		Network: team + "/" + d.Name, PodUID: string(p.UID), Claim: c.Name, ClaimUID: string(c.UID), Addresses: c.Status.IPs,
		Gateways: []string{"10.0.0.1"}, MAC: port.MAC, Port: port.ID,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || len(got.Addresses) != 1 || !strings.HasPrefix(got.MAC, "fa:16:3e:") {
		t.Errorf("eth1 is %+v; want %+v", got, want)
	}
	in := kuryrMap(t, p, "eth0", "eth1")
	if e := in["eth1"]; e.Name != "VIFMacvlanNested" || e.Data.ID != port.ID || e.Data.Address != port.MAC || e.Data.Network.Data.ID != network.ID {
		t.Errorf("in Kuryr's words eth1 is %+v; want port %s", e, port)
	}
	if in["eth0"].Data.ID != "another's" {
		t.Errorf("another's is %+v now", in["eth0"])
	}
	refused := pod(t, fmt.Sprintf(`[{"name": %q, "mac": "02:00:00:00:00:07"}]`, d.Name))
	said(t, refused, vifs.ReasonRefused, "the addresses of IPPool "+pool.Name+" are Neutron's, which decides the hardware address of a port as well")
	none(t, refused)
	fleet.Delete(t, kc, p)
	fleet.Gone(t, kc, &c, within)
}

// TestKuryrAnnotation (K5): where it is asked for, an interface without a port is written in
// Kuryr's words, too, and put back when it is taken away. What is no map of interfaces is left.
func TestKuryrAnnotation(t *testing.T) {
	before := pod(t, lan(t).Name)
	mapped(t, before, "net1")
	restart(t, func(cfg *controller.Config) { cfg.KuryrAnnotation = true })
	kuryrMap(t, before, "net1")
	d := lan(t)
	p := pod(t, d.Name+","+d.Name)
	m := mapped(t, p, "net1", "net2")
	if e := kuryrMap(t, p, "net1", "net2")["net2"]; e.Name != "VIFMacvlanNested" || e.Data.ID != m["net2"].ClaimUID || e.Data.Address != m["net2"].MAC {
		t.Errorf("in Kuryr's words net2 is %+v; want %+v", e, m["net2"])
	}
	fleet.Edit(t, kc, p, func() { p.Annotations[vif.AnnotationKuryrMap] = eth0 })
	kuryrMap(t, p, "eth0", "net1", "net2")
	odd := selecting(d.Name)
	odd.Annotations[vif.AnnotationKuryrMap] = `{"versioned_object.name": "PodState"}`
	fleet.Create(t, kc, odd)
	mapped(t, odd, "net1")
	said(t, odd, vifs.ReasonKuryrLeft, "annotation openstack.org/kuryr-vif is left as it is")
	if got := odd.Annotations[vif.AnnotationKuryrMap]; got != `{"versioned_object.name": "PodState"}` {
		t.Errorf("what is no map is %s now", got)
	}
}

// TestKuryrsMistakes (K2, K3): what Kuryr did wrong is right here. The namespace of one element
// does not serve for the next, spaces are no part of names, and a definition whose annotation is
// missing or cannot be read holds back its own interface and fails nobody else.
func TestKuryrsMistakes(t *testing.T) {
	id := subnetID()
	fleet.Create(t, kc, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: fleet.Unique("unread")}, Spec: v1alpha1.IPPoolSpec{
		Source: &v1alpha1.PoolSource{Neutron: &v1alpha1.NeutronSource{SubnetIDs: []string{id}, InterfaceParameters: central(t)}},
	}})
	near, far := lan(t), definition(t, infra, vif.AnnotationNetwork, inline(newPool(t, "10.0.0.0/24")), "tenure.dev/namespaces", "*")
	for what, list := range map[string]string{
		"K2 names": fmt.Sprintf("%s/%s , %s", infra, far.Name, near.Name),
		"K2 JSON":  fmt.Sprintf(`[{"name": %q, "namespace": %q}, {"name": %q}]`, far.Name, infra, near.Name),
	} {
		m := mapped(t, pod(t, list), "net1", "net2")
		if m["net1"].Network != infra+"/"+far.Name || m["net2"].Network != team+"/"+near.Name {
			t.Errorf("%s: the networks are %s and %s", what, m["net1"].Network, m["net2"].Network)
		}
	}
	wrong := definition(t, team, vif.AnnotationKuryr, `{"subnetId": `)
	said(t, wrong, podnetworks.ReasonVIFInvalid, "annotation openstack.org/kuryr-config: it is no JSON object")
	held := pod(t, near.Name+","+wrong.Name)
	said(t, held, vifs.ReasonNotReady, "interface eth2, network "+team+"/"+wrong.Name+": nothing is made of its definition yet")
	if m, err := vif.ParseMap(held.Annotations[vif.AnnotationMap]); err != nil || len(m) > 0 {
		t.Errorf("it has the map %v, %v; want none before all interfaces are decided", m, err)
	}
	bare := define(t, team, fleet.Unique("bare"), "", nil)
	mapped(t, pod(t, bare.Name+","+near.Name), "net2") // the node says what it lacks
	// An edit mends it: the claim is made by Kuryr's name.
	fleet.Edit(t, kc, wrong, func() { wrong.Annotations[vif.AnnotationKuryr] = kuryrConfig(id) })
	fleet.Eventually(t, within, func() error {
		for _, c := range claimsOf(t, held) {
			if c.Spec.Interface == "eth2" {
				return nil
			}
		}
		return errors.New("no claim for eth2")
	})
}

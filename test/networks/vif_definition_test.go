package networks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/attach/controller/podnetworks"
	networks "github.com/tenure-ipam/tenure/attach/podnetwork"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// TestDefinitionsOfVIFs (K3): of a definition that says by its annotation which network it is one
// with a configuration is made, which follows it, and goes with it.
func TestDefinitionsOfVIFs(t *testing.T) {
	name := newPool(t, "10.0.0.0/24")
	p := parameters(t, team, fleet.Unique("params"), macvlan("eth1", 0))
	d := definition(t, team, vif.AnnotationNetwork, fmt.Sprintf(`{"pool": %q, "interfaceParameters": %q}`, name, p.Name))
	config := func(rest string) string {
		return fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,%s,"ipam":{"type":"tenure","pool":%q}}`, made(d).Name, rest, name)
	}
	m := renders(t, d, config(`"type":"macvlan","capabilities":{"mac":true},"master":"eth1"`))
	if got, want := m.Annotations[podnetwork.AnnotationMadeFor], vif.Fingerprint(d.Annotations); got != want {
		t.Errorf("it is made for %q; want %q", got, want)
	}
	if all, ok := m.Annotations["tenure.dev/namespaces"]; !ok || all != "" || len(m.OwnerReferences) > 0 {
		t.Errorf("pods of %q may select it by itself, and it is owned by %v; want nobody", all, m.OwnerReferences)
	}

	edited := func(text string) {
		t.Helper()
		fleet.Edit(t, kc, d, func() { d.Annotations[vif.AnnotationNetwork] = text })
	}
	edited(fmt.Sprintf(`{"pool": %q, "interfaceParameters": {"ipvlan": {"master": "eth2"}, "mtu": 9000}}`, name))
	m = renders(t, d, config(`"type":"ipvlan","master":"eth2","mtu":9000`))
	if got, want := m.Annotations[podnetwork.AnnotationMadeFor], vif.Fingerprint(d.Annotations); got != want {
		t.Errorf("once edited it is made for %q; want %q", got, want)
	}
	// Somebody edits what is made, and deletes it.
	fleet.Edit(t, kc, m, func() { m.Spec.Config = `{"type": "bridge"}` })
	renders(t, d, `"type":"ipvlan"`)
	fleet.Delete(t, kc, m)
	renders(t, d, `"type":"ipvlan"`)
	// Nothing is left of what is wrong now.
	edited(`{"pool": 7}`)
	fleet.Gone(t, kc, m, within)
	said(t, d, podnetworks.ReasonVIFInvalid, "annotation tenure.dev/vif: it is no JSON object as it should be")
	edited(inline(name))
	renders(t, d, `"type":"macvlan"`)
	// One with a configuration needs none.
	fleet.Edit(t, kc, d, func() { d.Spec.Config = `{"type": "bridge"}` })
	fleet.Gone(t, kc, m, within)
	fleet.Edit(t, kc, d, func() { d.Spec.Config = "" })
	renders(t, d, `"type":"macvlan"`)
	fleet.Delete(t, kc, d)
	fleet.Gone(t, kc, m, within)
}

// TestFollowsWhatItNames (K3): pool and parameters may be made after the definition, and deleted.
func TestFollowsWhatItNames(t *testing.T) {
	name, params := fleet.Unique("pool"), fleet.Unique("params")
	d := definition(t, team, vif.AnnotationNetwork, fmt.Sprintf(`{"pool": %q, "interfaceParameters": %q}`, name, params))
	said(t, d, podnetworks.ReasonVIFPoolNotFound, "IPPool "+name+" does not exist: make it, or name another")
	o := pool(t, name, "10.0.0.0/24")
	said(t, d, podnetworks.ReasonVIFParametersNotFound, "InterfaceParameters "+team+"/"+params+" does not exist: make it")
	p := parameters(t, team, params, macvlan("eth1", 0))
	m := renders(t, d, `"master":"eth1"`)
	fleet.Delete(t, kc, p)
	fleet.Gone(t, kc, m, within)
	p = parameters(t, team, params, macvlan("eth2", 0))
	renders(t, d, `"master":"eth2"`)
	fleet.Delete(t, kc, o)
	fleet.Gone(t, kc, m, within)
	fleet.Delete(t, kc, d)
	fleet.Delete(t, kc, p)
}

// TestInlineParameters (K3): parameters inline are taken or refused as the API server takes or
// refuses them in an object of their own.
func TestInlineParameters(t *testing.T) {
	for _, text := range []string{
		`{"macvlan": {"master": "eth1"}}`, `{"macvlan": {"master": "eth1", "mode": "vepa"}, "mtu": 68}`, `{"macvlan": {"master": "eth1", "mode": "none"}}`,
		`{"macvlan": {"master": "an-interface-0123"}}`, `{"macvlan": {"master": "a/b"}}`, `{"macvlan": {"master": "a b"}}`, `{"macvlan": {"master": "a:b"}}`,
		`{"macvlan": {"master": "eth1"}, "mtu": 67}`, `{"macvlan": {"master": "eth1"}, "mtu": 65536}`, `{"macvlan": {"master": "eth1"}, "mtu": "1400"}`,
		`{"macvlan": {"master": "eth1"}, "bridge": {"bridge": "br0"}}`, `{"mtu": 1400}`, `{"macvlan": {"mastr": "eth1"}}`,
		`{"ipvlan": {"master": "eth1", "mode": "l3s"}}`, `{"ipvlan": {"master": "eth1", "mode": "l4"}}`,
		`{"bridge": {"bridge": "br0", "vlan": 4094, "hairpin": true, "checkMAC": true}}`, `{"bridge": {"bridge": "br0", "vlan": 4095}}`, `{"bridge": {"bridge": "br0", "vlan": -1}}`,
		`{"bridge": {"bridge": "br0", "bandwidth": {"ingressRate": 1000, "egressRate": 1000000000000000, "egressBurst": 34359738359}}}`,
		`{"bridge": {"bridge": "br0", "bandwidth": {}}}`, `{"bridge": {"bridge": "br0", "bandwidth": {"ingressRate": 999}}}`,
		`{"bridge": {"bridge": "br0", "bandwidth": {"ingressRate": 1000, "egressBurst": 1000}}}`, `{"bridge": {"bridge": "br0", "bandwidth": {"ingressRate": 1000, "ingressBurst": 34359738360}}}`,
		`{"vlan": {"master": "eth1", "id": 1}}`, `{"vlan": {"master": "eth1", "id": 4095}}`,
		`{"sriov": {"resourceName": "a/b", "vlan": 7, "trust": true}}`, `{"sriov": {"resourceName": "a/b", "vlan": 5000}}`,
		fmt.Sprintf(`{"sriov": {"resourceName": %q}}`, strings.Repeat("a", 318)),
	} {
		o := &unstructured.Unstructured{}
		object := fmt.Sprintf(`{"apiVersion": "tenure.dev/v1alpha1", "kind": "InterfaceParameters", "metadata": {"namespace": %q, "name": "tried"}, "spec": %s}`, team, text)
		if err := json.Unmarshal([]byte(object), o); err != nil {
			t.Fatal(err)
		}
		refused := kc.Create(t.Context(), o, client.DryRunAll, client.FieldValidation("Strict"))
		if _, err := networks.ReadInline([]byte(text)); (err == nil) != (refused == nil) {
			t.Errorf("%s: %v; the API server says %v", text, err, refused)
		}
	}
}

// TestWrongDefinitions (K3): what is wrong with a definition is said on it, once, and nothing is
// made of it.
func TestWrongDefinitions(t *testing.T) {
	name := newPool(t, "10.0.0.0/24")
	nowhere := parameters(t, team, fleet.Unique("params"), macvlan("", 0))
	for what, tt := range map[string]struct{ key, text, reason, words string }{
		"K3 a subnet that no pool has": {
			vif.AnnotationKuryr, `{"subnetId": "a7d1"}`, podnetworks.ReasonVIFPoolNotFound, `no IPPool has Neutron's subnet "a7d1"`,
		},
		"K3 a subnet in Tenure's form": {
			vif.AnnotationNetwork, `{"subnetId": "a7d1"}`, podnetworks.ReasonVIFPoolNotFound, `no IPPool has Neutron's subnet "a7d1"`,
		},
		"K3 Kuryr's without a subnet": {vif.AnnotationKuryr, `{"driverType": "x"}`, podnetworks.ReasonVIFInvalid, "it has no subnetId"},
		"K3 Kuryr's without JSON":     {vif.AnnotationKuryr, `a7d1`, podnetworks.ReasonVIFInvalid, "annotation openstack.org/kuryr-config: it is no JSON object"},
		"no pool":                     {vif.AnnotationNetwork, `{}`, podnetworks.ReasonVIFInvalid, "it has neither pool nor subnetId"},
		"both":                        {vif.AnnotationNetwork, `{"pool": "a", "subnetId": "b"}`, podnetworks.ReasonVIFInvalid, "keep one"},
		"an unknown key":              {vif.AnnotationNetwork, `{"pol": "a"}`, podnetworks.ReasonVIFInvalid, "pol"},
		"no parameters": {
			vif.AnnotationNetwork, fmt.Sprintf(`{"pool": %q}`, name), podnetworks.ReasonVIFInvalid, "interfaceParameters is missing, which says how interfaces are made",
		},
		"parameters of no plugin": {
			vif.AnnotationNetwork, fmt.Sprintf(`{"pool": %q, "interfaceParameters": {"mtu": 1400}}`, name), podnetworks.ReasonVIFInvalid, "they are of 0 plugins",
		},
		"parameters with an unknown key": {
			vif.AnnotationNetwork, fmt.Sprintf(`{"pool": %q, "interfaceParameters": {"macvlan": {"mastr": "eth1"}}}`, name), podnetworks.ReasonVIFInvalid, `unknown field "mastr"`,
		},
		"parameters that are a number": {
			vif.AnnotationNetwork, fmt.Sprintf(`{"pool": %q, "interfaceParameters": 7}`, name), podnetworks.ReasonVIFInvalid, "interfaceParameters: they cannot be read",
		},
		"parameters that lead nowhere": {
			vif.AnnotationNetwork, fmt.Sprintf(`{"pool": %q, "interfaceParameters": %q}`, name, nowhere.Name), podnetworks.ReasonVIFInvalid, "spec.macvlan.master is missing",
		},
	} {
		t.Run(what, func(t *testing.T) {
			d := definition(t, team, tt.key, tt.text)
			said(t, d, tt.reason, tt.words)
			fleet.Edit(t, kc, d, func() { d.Annotations["note"] = "looked at again" })
			time.Sleep(300 * time.Millisecond) // an Event that should not come
			said(t, d, tt.reason, tt.words)
			if err := client.IgnoreNotFound(kc.Get(t.Context(), client.ObjectKeyFromObject(made(d)), made(d))); err != nil {
				t.Error(err)
			}
			fleet.Gone(t, kc, made(d), within)
			fleet.Delete(t, kc, d)
		})
	}
	d := definition(t, team, vif.AnnotationNetwork, inline(name), vif.AnnotationKuryr, `{"subnetId": "a7d1"}`)
	said(t, d, podnetworks.ReasonVIFInvalid, "are both there: keep one")
	// The name of what would be made is somebody else's.
	theirs := define(t, podnetwork.Namespace, vif.DefinitionName(team, "taken"), `{}`, nil)
	taken := define(t, team, "taken", "", map[string]string{vif.AnnotationNetwork: inline(name)})
	said(t, taken, podnetworks.ReasonVIFInvalid, "is there already and is somebody else's")
	renders(t, taken, "{}")
	fleet.Delete(t, kc, theirs)
	fleet.Edit(t, kc, taken, func() { taken.Annotations["note"] = "look again" })
	renders(t, taken, "macvlan")
}

// TestDeletedMeanwhile (K3): what is made of a definition that is deleted while no controller runs
// goes when one does.
func TestDeletedMeanwhile(t *testing.T) {
	d := lan(t)
	m := renders(t, d, "macvlan")
	alone(t)
	fleet.Delete(t, kc, d)
	if err := start(context.Background()); err != nil {
		t.Fatal(err)
	}
	fleet.Gone(t, kc, m, within)
}

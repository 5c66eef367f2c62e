package operator_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// TestImportFromNVIPAM: what import prints of nv-ipam's pools can be applied as it is. Nodes have
// the subnets then that they had, and a running pod keeps its address.
func TestImportFromNVIPAM(t *testing.T) {
	m := newMover(t)
	kinds(t, "nv-ipam.nvidia.com", "v1alpha1", "Namespaced", "IPPool", "CIDRPool")
	theirs := read(t, fmt.Sprintf(`{"apiVersion": "nv-ipam.nvidia.com/v1alpha1", "kind": "CIDRPool", "metadata": {"name": %q, "namespace": %[2]q},
		"spec": {"cidr": "10.97.0.0/24", "perNodeNetworkPrefix": 27, "gatewayIndex": 1}, "status": {"allocations": [
		{"nodeName": %[3]q, "prefix": "10.97.0.96/27", "gateway": "10.97.0.97"}, {"nodeName": %[4]q, "prefix": "10.97.0.32/27", "gateway": "10.97.0.33"}]}}`,
		m.network, m.namespace, m.nodes[0].Name, m.nodes[1].Name))
	fleet.Eventually(t, 20*time.Second, func() error { return kc.Create(t.Context(), theirs.DeepCopy()) })
	m.definition("rail", fmt.Sprintf(`{"type":"nv-ipam","poolName":%q,"poolType":"cidrpool"}`, m.network))
	old := m.runs("old", m.nodes[0].Name, "rail", "10.97.0.98")

	before := state(t)
	said, err := command(t, "import", "--from", "nv-ipam").Output()
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if diff := changes(before, state(t)); len(diff) > 0 {
		t.Errorf("looking has written %q", diff)
	}
	says(t, string(said), "# definition "+m.ref("rail")+": pools "+m.network+"; 1 running pod has 1 address of it, and keeps what it has",
		"new pods wait until the old ones on their node have ended", "# nothing was written: see that nv-ipam gives no address any more")
	apply(t, string(said))
	if got := m.ipamOf("rail"); got != "tenure" {
		t.Fatalf("the definition names %s", got)
	}
	says(t, tenure(t, 0, "import", "--from", "nv-ipam"), "There is no definition that names nv-ipam")
	says(t, tenure(t, 0, "import", "--from", "status", "--apply"), "1 of 1 pools are open", "1 pod has 1 address by another IPAM")
	says(t, tenure(t, 0, "who", "10.97.0.98"), m.ref("old"), "which has it by another IPAM; kept for the pod")

	if addr := m.ofPool("there", m.nodes[1]); !netip.MustParsePrefix("10.97.0.32/27").Contains(addr) {
		t.Errorf("a new pod on the other node has %v", addr)
	}
	waits := m.ofPoolInterface("here", m.nodes[0])
	m.nodes[0].Refused(t, waits, "subnet 10.97.0.96/27 of pool "+m.network+" is pinned to node "+m.nodes[0].Name+", and is leased by the cluster: it comes free when no reservation and no pod of another IPAM")
	says(t, tenure(t, 0, "pools", m.network), "PinsTaken", "subnet 10.97.0.96/27 is pinned to node "+m.nodes[0].Name+", and the cluster has it, for reservations or for pods of another IPAM")
	if err := kc.Delete(t.Context(), old, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	var has netip.Addr
	fleet.Eventually(t, 90*time.Second, func() error {
		res, err := m.nodes[0].Add(waits)
		if err == nil {
			has = res.IPs[0].Address.Addr()
		}
		return err
	})
	if !netip.MustParsePrefix("10.97.0.96/27").Contains(has) {
		t.Errorf("when the old pod has ended a new one has %v", has)
	}
	m.t.Cleanup(func() { m.fleet.Observer.Void(m.nodes[0].Name, waits.Network, waits.Sandbox, waits.IfName) })
}

// TestImportFromSpiderpool: pools of racks become the ranges of one pool, which opens.
func TestImportFromSpiderpool(t *testing.T) {
	o := newOld(t)
	controller(t)
	kinds(t, "spiderpool.spidernet.io", "v2beta1", "Cluster", "SpiderIPPool", "SpiderReservedIP")
	for i, rack := range []string{"a", "b"} {
		theirs := read(t, fmt.Sprintf(`{"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool", "metadata": {"name": "%[1]s-%[2]s"}, "spec": {
			"subnet": "10.96.%[3]d.0/24", "ips": ["10.96.%[3]d.10-10.96.%[3]d.19"], "gateway": "10.96.%[3]d.1", "nodeAffinity": {"matchLabels": {"rack": %[2]q}}}}`, o.namespace, rack, i))
		fleet.Eventually(t, 20*time.Second, func() error { return kc.Create(t.Context(), theirs.DeepCopy()) })
	}
	reserved := read(t, `{"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderReservedIP", "metadata": {"name": "printer"}, "spec": {"ips": ["10.96.1.12"]}}`)
	fleet.Eventually(t, 20*time.Second, func() error { return kc.Create(t.Context(), reserved.DeepCopy()) })
	o.definition("fabric", fmt.Sprintf(`{"type":"spiderpool","default_ipv4_ippool":["%[1]s-a","%[1]s-b"]}`, o.namespace))
	o.definition("other", `{"type":"spiderpool","default_ipv4_ippool":["nowhere"]}`)
	cmd := command(t, "import", "--from", "spiderpool")
	said, err := cmd.Output()
	if cmd.ProcessState.ExitCode() != 3 {
		t.Fatalf("it ends with %v: %s; want 3, since one definition stays", err, said)
	}
	says(t, string(said), "# in the way: there is no SpiderIPPool nowhere that can be read", "# definitions that stay as they are, since something is in the way: 1")
	apply(t, string(said))
	if fabric, other := o.ipamOf("fabric"), o.ipamOf("other"); fabric != "tenure" || other != "spiderpool" {
		t.Errorf("fabric names %s, and other %s", fabric, other)
	}
	pool := o.namespace + "-fabric"
	fleet.Eventually(t, 30*time.Second, func() error {
		if out, err := command(t, "pools", pool).CombinedOutput(); err != nil || !strings.Contains(string(out), "rack=b") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	var p v1alpha1.IPPool
	if err := kc.Get(t.Context(), client.ObjectKey{Name: pool}, &p); err != nil || len(p.Spec.Ranges) != 2 || !slices.Equal(p.Spec.Ranges[1].Exclude, []string{"10.96.1.12-10.96.1.12"}) {
		t.Errorf("ranges are %+v, %v", p.Spec.Ranges, err)
	}
}

// kinds gives the cluster kinds of another's, until the test ends.
func kinds(t *testing.T, group, version, scope string, names ...string) {
	t.Helper()
	for _, kind := range names {
		plural := strings.ToLower(kind) + "s"
		create(t, read(t, fmt.Sprintf(`{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "%[1]s.%[4]s"},
			"spec": {"group": %[4]q, "scope": %[6]q, "names": {"kind": %[2]q, "listKind": "%[2]sList", "plural": %[1]q, "singular": %[3]q},
			"versions": [{"name": %[5]q, "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}`,
			plural, kind, strings.ToLower(kind), group, version, scope)))
	}
}

// read reads an object.
func read(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// apply does what kubectl apply does of manifests.
func apply(t *testing.T, text string) {
	t.Helper()
	for _, doc := range strings.Split(text, "---\n")[1:] {
		raw, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			t.Fatalf("%v in %s", err, doc)
		}
		o := read(t, string(raw))
		spec, err := json.Marshal(map[string]any{"spec": o.Object["spec"]})
		if err != nil {
			t.Fatal(err)
		}
		if o.GetKind() != "NetworkAttachmentDefinition" {
			create(t, o)
			continue
		}
		there := &nad.NetworkAttachmentDefinition{}
		there.Namespace, there.Name = o.GetNamespace(), o.GetName()
		if err := kc.Patch(t.Context(), there, client.RawPatch(types.MergePatchType, spec)); err != nil {
			t.Fatal(err)
		}
	}
}

// ofPoolInterface is a new pod's interface on network rail, which names the mover's pool.
func (m *mover) ofPoolInterface(name string, n *fleet.Node) fleet.Interface {
	m.t.Helper()
	pod := m.runs(name, n.Name, "rail")
	i := fleet.Interface{
		Network: m.namespace + "-rail", Sandbox: name, IfName: "net1", Namespace: pod.Namespace, Pod: name, PodUID: string(pod.UID),
		Netns: filepath.Join(m.t.TempDir(), name), IPAM: map[string]any{"type": "tenure", "pool": m.network},
	}
	if err := os.WriteFile(i.Netns, nil, 0o600); err != nil {
		m.t.Fatal(err)
	}
	return i
}

// ofPool runs a pod of network rail, and returns its address.
func (m *mover) ofPool(name string, n *fleet.Node) netip.Addr {
	m.t.Helper()
	i := m.ofPoolInterface(name, n)
	res, err := n.Insist(i)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { m.fleet.Observer.Void(n.Name, i.Network, i.Sandbox, i.IfName) })
	return res.IPs[0].Address.Addr()
}

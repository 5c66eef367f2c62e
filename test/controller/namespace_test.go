package controller_test

import (
	"net/netip"
	"testing"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tenure-ipam/tenure/test/fleet"
)

// tenants is a definition that serves many tenants, as a user writes it.
const tenants = `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: tenants, namespace: default}
spec:
  config: |
    {"cniVersion": "1.0.0", "name": "tenants", "type": "macvlan", "master": "eth1", "allowPersistentIPs": true,
     "ipam": {"type": "tenure", "pools": {"byNamespace": "tenure.dev/pool"}}}
`

// TestClaimsByNamespace: a claim has its addresses of the pool that the label of its namespace
// names, under that pool's rules, waits while there is none, and keeps them when the label names
// another.
func TestClaimsByNamespace(t *testing.T) {
	start(t)
	var d nad.NetworkAttachmentDefinition
	if err := yaml.Unmarshal([]byte(tenants), &d); err != nil {
		t.Fatal(err)
	}
	fleet.Create(t, kc, &d)
	a, b := pool(t, "10.77.0.0/24"), pool(t, "10.78.0.0/24")
	opened(t, a)
	opened(t, b)
	ns := namespace(t)
	label := func(pool string) {
		fleet.Patch(t, kc, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, `{"metadata":{"labels":{"tenure.dev/pool":"`+pool+`"}}}`)
	}
	within := func(ips []string, in string) {
		t.Helper()
		if len(ips) != 1 || !netip.MustParsePrefix(in).Contains(netip.MustParsePrefix(ips[0]).Addr()) {
			t.Errorf("got %v; want one address of %s", ips, in)
		}
	}
	first := claim(t, ns, "first", "tenants")
	failed(t, first, "NetworkFaulty", "network attachment definition default/tenants: label tenure.dev/pool of namespace "+ns+
		" is to name its pool, and is not there: kubectl label namespace "+ns+" tenure.dev/pool=POOL")
	label(a.Name)
	within(allocated(t, first), "10.77.0.0/24")
	label(b.Name)
	within(allocated(t, claim(t, ns, "second", "tenants")), "10.78.0.0/24")
	fleet.Patch(t, kc, first, `{"metadata":{"annotations":{"looked":"at"}}}`) // it is looked at again
	within(allocated(t, first), "10.77.0.0/24")
	fleet.Patch(t, kc, a, `{"spec":{"namespaceSelector":{"matchLabels":{"team":"a"}}}}`)
	label(a.Name)
	failed(t, claim(t, ns, "third", "tenants"), "PoolNotAllowed", "namespace "+ns+" may not use pool "+a.Name)
}

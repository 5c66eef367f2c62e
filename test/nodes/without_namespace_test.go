package nodes_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/node/agent"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// byLabel is interface net1 of sandbox on a network whose pool a label of the pod's namespace
// names.
func byLabel(sandbox string) fleet.Interface {
	return fleet.Interface{Network: "tenants", Sandbox: sandbox, IfName: "net1", Domain: "tenants", IPAM: map[string]any{
		"type": "tenure", "pools": map[string]any{"byNamespace": "tenure.dev/pool"},
	}}
}

// label has a namespace name a pool; empty: none.
func label(t *testing.T, namespace, pool string) {
	t.Helper()
	value := `"` + pool + `"`
	if pool == "" {
		value = "null"
	}
	fleet.Patch(t, kc, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, `{"metadata":{"labels":{"tenure.dev/pool":`+value+`}}}`)
}

// TestPoolByNamespace: one definition serves tenants, each out of the pool that a label of its
// namespace names, under the pools' rules. Who has an address keeps it, whatever the label is by
// now: CHECK and another sandbox find it, and DEL frees it.
func TestPoolByNamespace(t *testing.T) {
	for pool, in := range map[string]string{"tenant-a": "10.97.0.0/24", "tenant-b": "10.98.0.0/24"} {
		openPool(t, pool, cidr(in))
		limit(t, pool, `{"namespaceSelector":{"matchLabels":{"tenure.dev/pool":"`+pool+`"}}}`)
	}
	newNamespace(t, "of-a", map[string]string{"tenure.dev/pool": "tenant-a"})
	newNamespace(t, "of-b", map[string]string{"tenure.dev/pool": "tenant-b"})
	newNamespace(t, "of-none", nil)
	n := newFleet(t, waits(3*time.Second)).Start("tenants")
	within := func(i fleet.Interface, in string) netip.Prefix {
		t.Helper()
		got := mustAdd(t, n, i)
		if len(got) != 1 || !netip.MustParsePrefix(in).Contains(got[0].Addr()) {
			t.Fatalf("%s got %v; want one address of %s", i.Pod, got, in)
		}
		return got[0]
	}
	a := podIn(t, "tenants", "of-a", "a", byLabel("c1"))
	has := within(a, "10.97.0.0/24")
	within(podIn(t, "tenants", "of-b", "b", byLabel("c2")), "10.98.0.0/24")

	none := podIn(t, "tenants", "of-none", "none", byLabel("c3"))
	refused := func(code agentapi.Code, text string) {
		t.Helper()
		eventually(t, 20*time.Second, func() error { // the node hears of changes a moment later
			_, err := n.Add(none)
			if e, ok := errors.AsType[*agentapi.Error](err); !ok || e.Code != code || !strings.Contains(e.Error(), text) {
				return fmt.Errorf("got %v; want code %d with %q", err, code, text)
			}
			return nil
		})
	}
	refused(agent.CodePoolRefused, "label tenure.dev/pool of namespace of-none is to name its pool, and is not there: kubectl label namespace of-none tenure.dev/pool=POOL")
	label(t, "of-none", "nowhere")
	refused(agentapi.CodeTryAgainLater, "pool nowhere does not exist: create the IPPool, or correct the name in the network configuration (label tenure.dev/pool of namespace of-none names it)")
	limit(t, "tenant-b", `{"namespaceSelector":{"matchLabels":{"team":"b","tenure.dev/pool":null}}}`)
	label(t, "of-none", "tenant-b")
	refused(agent.CodePoolRefused, "namespace of-none may not use pool tenant-b")

	// The label goes, and then names another pool.
	limit(t, "tenant-b", `{"namespaceSelector":null}`)
	prev := a.With([]netip.Prefix{has})
	for i, pool := range []string{"", "tenant-b"} {
		label(t, "of-a", pool)
		eventually(t, 20*time.Second, func() error { // another pod goes by it
			other := fmt.Sprintf("other-%d-%d", i, time.Now().UnixNano())
			res, err := n.Add(podIn(t, "tenants", "of-a", other, byLabel(other)))
			if err == nil && pool == "" || err != nil && pool != "" || err == nil && !netip.MustParsePrefix("10.98.0.0/24").Contains(res.IPs[0].Address.Addr()) {
				return fmt.Errorf("label %q: got %v, %w", pool, res, err)
			}
			return nil
		})
		if got := mustAdd(t, n, a); got[0] != has {
			t.Errorf("label %q: the ADD again got %v; want %v", pool, got, has)
		}
		if err := n.CheckAdd(prev); err != nil {
			t.Errorf("label %q: CHECK: %v", pool, err)
		}
	}
	next := again(t, a)
	if got := mustAdd(t, n, next); got[0] != has {
		t.Errorf("its next sandbox got %v; want %v", got, has)
	}
	mustDel(t, n, next)
}

// TestBridgeByNamespace: a bridge that takes the first address of a subnet as its gateway is not
// given one that the pool of the pod's namespace gives to others.
func TestBridgeByNamespace(t *testing.T) {
	openPool(t, "no-gateway", cidr("10.99.0.0/24"))
	openPool(t, "gateway", v1alpha1.Range{CIDR: "10.100.0.0/24", Gateway: "10.100.0.1"})
	newNamespace(t, "of-no-gateway", map[string]string{"tenure.dev/pool": "no-gateway"})
	newNamespace(t, "of-gateway", map[string]string{"tenure.dev/pool": "gateway"})
	n := newFleet(t).Start("bridges")
	bridge := func(namespace string) fleet.Interface {
		i := byLabel(namespace)
		i.Network, i.Top = "bridges", map[string]any{"isGateway": true}
		return podIn(t, "bridges", namespace, "web", i)
	}
	_, err := n.Insist(bridge("of-no-gateway"))
	fleet.WantCode(t, err, agentapi.CodeInvalidConfig, "the bridge of network bridges takes 10.99.0.1 for itself, and pool no-gateway gives that to others: give the pool's range a gateway, or exclude the address")
	mustAdd(t, n, bridge("of-gateway"))
}

package nodes_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// openPool makes a pool and opens it as the controller would: these tests are
// about the agent, and decide themselves when a pool is open.
func openPool(t testing.TB, name string, ranges ...v1alpha1.Range) {
	t.Helper()
	openBlocks(t, name, 0, ranges...)
}

// openBlocks is openPool with blocks of so many addresses; 0 leaves that to the pool.
func openBlocks(t testing.TB, name string, blockSize int, ranges ...v1alpha1.Range) {
	t.Helper()
	controller(t, false)
	ctx := context.Background()
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Domain: name, Ranges: ranges}}
	if err := kc.Create(ctx, p); err != nil {
		t.Fatal(err)
	}
	shape, err := poolspec.ParsePool(kube.PoolText(p))
	if err != nil {
		t.Fatal(err)
	}
	bits := func(f allocator.Family) *int32 {
		if shape.Capacity(f) == 0 {
			return nil
		}
		b := int32(allocator.BlockBits(shape, f, blockSize))
		return &b
	}
	p.Status = v1alpha1.IPPoolStatus{
		Leasing:            v1alpha1.LeasingOpen,
		BlockPrefixLengths: &v1alpha1.BlockPrefixLengths{IPv4: bits(allocator.IPv4), IPv6: bits(allocator.IPv6)},
	}
	if err := kc.Status().Update(ctx, p); err != nil {
		t.Fatal(err)
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// onPool is interface ifName of sandbox on a network of its own name over a pool.
func onPool(pool, sandbox, ifName string) fleet.Interface {
	return fleet.Interface{Network: "net-" + pool, Sandbox: sandbox, IfName: ifName, IPAM: map[string]any{"type": "tenure", "pool": pool}}
}

// file stands in for a network namespace whose coming and going matters.
func file(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func leasesOf(t *testing.T, pool string) map[string]protocol.Lease {
	t.Helper()
	list, err := api.LeasesOfPool(t.Context(), protocol.PoolName(pool))
	if err != nil {
		t.Fatal(err)
	}
	leases := map[string]protocol.Lease{}
	for _, l := range list {
		leases[l.Name] = l
	}
	return leases
}

func mustAdd(t *testing.T, n *fleet.Node, i fleet.Interface) []netip.Prefix {
	t.Helper()
	res, err := n.Insist(i)
	if err != nil {
		t.Fatalf("ADD of %s %s on %s: %v", i.Sandbox, i.IfName, n.Name, err)
	}
	var addrs []netip.Prefix
	for _, ip := range res.IPs {
		addrs = append(addrs, ip.Address)
	}
	return addrs
}

func mustDel(t *testing.T, n *fleet.Node, i fleet.Interface) {
	t.Helper()
	if err := n.Del(i); err != nil {
		t.Fatalf("DEL of %s %s on %s: %v", i.Sandbox, i.IfName, n.Name, err)
	}
}

func noLeases(t *testing.T, pool string) func() error {
	return func() error {
		if l := leasesOf(t, pool); len(l) > 0 {
			return fmt.Errorf("%d leases of %s are left", len(l), pool)
		}
		return nil
	}
}

// newPod creates a real pod that is bound to a node, and returns interface ifName of
// a sandbox of it. No kubelet runs it.
func newPod(t *testing.T, node, name, networks string, i fleet.Interface) fleet.Interface {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	if networks != "" {
		pod.Annotations = map[string]string{kube.AnnotationNetworks: networks}
	}
	if err := kc.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	i.Namespace, i.Pod, i.PodUID = pod.Namespace, pod.Name, string(pod.UID)
	return i
}

// TestPoolWithoutTheNetworksRange: a network describes a range that its pool, which a person
// looks after, does not have. That is not a full pool, and the ADD says so.
func TestPoolWithoutTheNetworksRange(t *testing.T) {
	openPool(t, "elsewhere", cidr("10.77.0.0/24"))
	n := fleet.New(t, cp.Config()).Start("elsewhere")
	i := newPod(t, n.Name, "outside", "", onPool("elsewhere", "c1", "net1"))
	i.IPAM = map[string]any{"type": "tenure", "network_name": "elsewhere", "range": "10.78.0.0/24"}
	_, err := n.Add(i)
	wantCode(t, err, agentapi.CodeTryAgainLater, "pool elsewhere has no IPv4 address to give unasked in what the network may take (10.78.0")
}

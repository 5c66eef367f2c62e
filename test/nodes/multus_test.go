package nodes_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/programs"
)

// Stock Multus drops ipam-claim-reference, and passes ips by runtimeConfig and by
// CNI_ARGS. The program is called by libcni as Multus calls it (its
// NewCNIRuntimeConf and DelegateAdd): the agent finds the claim by the interface's
// name (N42).
func TestStockMultusHonoursClaimsAndAddresses(t *testing.T) {
	w := newWorld(t, "multus", "default", "10.60.0.0/20")
	plugin, err := programs.Build(t.Context(), t.TempDir(), "tenure")
	if err != nil {
		t.Fatal(err)
	}
	c := w.claim("multus-claim")
	claimed := allocated(t, c)
	pod := makePod(t, w.a.Name, "default", "multus", map[string]string{kube.AnnotationNetworks: `[{"name": "definition-of-multus", "ipam-claim-reference": "multus-claim"},
		{"name": "definition-of-multus", "ips": ["10.60.0.77"]}, {"name": "definition-of-multus"}]`})
	list, err := libcni.NetworkConfFromBytes(fmt.Appendf(nil, `{"cniVersion": "1.0.0", "name": "multus", "plugins": [
		{"type": "tenure", "capabilities": {"ips": true}, "ipam": {"type": "tenure", "pool": "multus", "socket": %q}}]}`, w.a.Socket()))
	if err != nil {
		t.Fatal(err)
	}
	cni := libcni.NewCNIConfigWithCacheDir([]string{filepath.Dir(plugin)}, t.TempDir(), nil)
	add := func(ifName string, ips ...string) string {
		t.Helper()
		rt := &libcni.RuntimeConf{
			ContainerID: "multus-1", NetNS: "/var/run/netns/multus-1", IfName: ifName,
			Args: [][2]string{
				{"IgnoreUnknown", "true"}, {"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", "multus"},
				{"K8S_POD_INFRA_CONTAINER_ID", "multus-1"}, {"K8S_POD_UID", string(pod.UID)},
			},
		}
		if len(ips) > 0 {
			rt.CapabilityArgs = map[string]any{"ips": ips}
			rt.Args = append(rt.Args, [2]string{"IP", ips[0]})
		}
		t.Cleanup(func() {
			if err := cni.DelNetworkList(context.WithoutCancel(t.Context()), list, rt); err != nil {
				t.Errorf("DEL of %s: %v", ifName, err)
			}
		})
		result, err := cni.AddNetworkList(t.Context(), list, rt)
		if err != nil {
			t.Fatalf("ADD of %s: %v", ifName, err)
		}
		full, err := types100.NewResultFromResult(result)
		if err != nil || len(full.IPs) != 1 {
			t.Fatalf("ADD of %s: %v, %v; want one address", ifName, result, err)
		}
		return full.IPs[0].Address.String()
	}
	if got, want := add("net1"), claimed[0].String(); got != want {
		t.Errorf("net1 has %s; want the claim's %s", got, want)
	}
	if got := add("net2", "10.60.0.77"); got != "10.60.0.77/20" {
		t.Errorf("net2 has %s; want the address that was asked for", got)
	}
	if got := add("net3"); got == claimed[0].String() || got == "10.60.0.77/20" {
		t.Errorf("net3 has %s, which is another's", got)
	}
}

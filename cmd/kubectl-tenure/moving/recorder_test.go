package moving

import (
	"net/netip"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// TestRecordsAreToldApart: when a pod ends, whereabouts removes the first record that has the id
// and the interface of the pod's. So each record has an id of its own, also one that an earlier
// export wrote without.
func TestRecordsAreToldApart(t *testing.T) {
	const namespace, name = "kube-system", "10.0.0.0-24"
	o := kube.NewWhereaboutsPool(namespace, name)
	o.Object["spec"] = map[string]any{"range": "10.0.0.0/24", "allocations": map[string]any{
		"5": map[string]any{"id": "", "podref": "ns/a", "ifname": "net1"}, "9": map[string]any{"id": "sandbox", "podref": "ns/c", "ifname": "net1"},
	}}
	kc := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithRuntimeObjects(o).Build()
	has := func(addr, pod string) registrant {
		return registrant{addr: netip.MustParseAddr(addr), namespace: "ns", pod: pod, ifName: "net1"}
	}
	r := recorder{client: kc, namespace: namespace, running: map[string]bool{"ns/a": true, "ns/b": true, "ns/c": true}}
	if err := r.pool(t.Context(), foreign.Object{Name: name, Range: netip.MustParsePrefix("10.0.0.0/24")}, []registrant{has("10.0.0.5", "a"), has("10.0.0.6", "b"), has("10.0.0.9", "c")}); err != nil {
		t.Fatal(err)
	}
	if err := kc.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	for offset, want := range map[string]string{"5": "tenure-10.0.0.5", "6": "tenure-10.0.0.6", "9": "sandbox"} {
		if id, _, _ := unstructured.NestedString(o.Object, "spec", "allocations", offset, "id"); id != want {
			t.Errorf("the record at %s has id %q; want %q", offset, id, want)
		}
	}
}

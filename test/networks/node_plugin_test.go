package networks_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// statusOf reads the status annotation of a pod, once it says something of a number of
// networks.
func statusOf(t *testing.T, pod *corev1.Pod, networks int) (list []map[string]any) {
	t.Helper()
	fleet.Eventually(t, minute, func() error {
		got, err := annotations(pod)
		if err != nil {
			return err
		}
		list = nil
		if err := json.Unmarshal([]byte(got[npwg.AnnotationStatus]), &list); err != nil {
			return fmt.Errorf("%q: %w", got[npwg.AnnotationStatus], err)
		}
		if len(list) != networks {
			return fmt.Errorf("%d networks in %s; want %d", len(list), got[npwg.AnnotationStatus], networks)
		}
		return nil
	})
	return list
}

// From the runtime's call to the pod's annotation: what the plugin attached, the agent
// writes (N47, N49, N52, N54, N55, N56, N59, N60, N61).
func TestStatusOfAnAdd(t *testing.T) {
	ns := namespace(t, nil)
	define(t, ns, "lan", `{"cniVersion":"1.0.0","name":"lan","type":"delegate"}`, nil)
	pod := newPod(t, ns, "p", "plugin", "lan@lan0")
	n := node(t, "plugin")
	r := fleet.NewRuntime(t, n)
	out, err := r.Call("ADD", "c1", pod)
	if err != nil || !strings.Contains(out, `"eth0"`) || strings.Contains(out, "lan0") {
		t.Fatalf("ADD: %v\n%s", err, out)
	}
	list := statusOf(t, pod, 2)
	for i, want := range []map[string]any{
		{"name": "base", "interface": "eth0", "default": true},
		{"name": ns + "/lan", "interface": "lan0", "default": false},
	} {
		want["mac"], want["ips"], want["dns"] = "02:00:00:00:00:01", []any{"192.0.2.7"}, map[string]any{"domain": "example.org"}
		for key, value := range want {
			if fmt.Sprint(list[i][key]) != fmt.Sprint(value) {
				t.Errorf("network %d: %s is %v; want %v", i, key, list[i][key], value)
			}
		}
	}
	if out, err := r.Call("DEL", "c1", pod); err != nil {
		t.Errorf("DEL: %v\n%s", err, out)
	}
}

// An invalid annotation is ignored, never silently: the pod has its default network, a
// status that says so, and an event (N20, A1, N66).
func TestInvalidAnnotation(t *testing.T) {
	ns := namespace(t, nil)
	pod := newPod(t, ns, "p", "invalid", `[{"name":"lan","ips":[]}]`)
	n := node(t, "invalid")
	r := fleet.NewRuntime(t, n)
	if out, err := r.Call("ADD", "c1", pod); err != nil {
		t.Fatalf("ADD: %v\n%s", err, out)
	}
	if list := statusOf(t, pod, 1); list[0]["default"] != true {
		t.Errorf("got %v; want the default network's entry", list)
	}
	awaitEvent(t, pod, "InvalidNetworkAnnotation")
}

// A definition of another namespace is refused by name and rule; nothing is attached (N77).
func TestNamespaceIsolation(t *testing.T) {
	mine, theirs := namespace(t, nil), namespace(t, nil)
	define(t, theirs, "lan", `{"cniVersion":"1.0.0","name":"lan","type":"delegate"}`, nil)
	pod := newPod(t, mine, "p", "isolated", theirs+"/lan")
	n := node(t, "isolated")
	r := fleet.NewRuntime(t, n)
	out, err := r.Call("ADD", "c1", pod)
	if err == nil || !strings.Contains(out, theirs+"/lan") || !strings.Contains(out, "isolated") {
		t.Errorf("ADD: %v\n%s", err, out)
	}
	if got, err := annotations(pod); err != nil || got[npwg.AnnotationStatus] != "" {
		t.Errorf("status %q, %v; want none", got[npwg.AnnotationStatus], err)
	}
	r.Further = map[string]any{"globalNamespaces": []string{theirs}}
	if out, err := r.Call("ADD", "c2", pod); err != nil {
		t.Errorf("as a global namespace: %v\n%s", err, out)
	}
	statusOf(t, pod, 2)
}

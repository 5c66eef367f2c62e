package networks_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/attach/certificate"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// TestRefusedAtOnce (W1, W2): a wrong list is refused when the pod is created, with every reason.
func TestRefusedAtOnce(t *testing.T) {
	ns := namespace(t, nil)
	for _, tt := range []struct{ list, words string }{
		{"lan", "want a JSON list"},
		{`[{"podNetworkName": "a", "podNetworkAttachmentName": "b"}, {"interfaceName": "net1"}]`, "keep one; element 2: it names no network"},
		{lists("a", "a"), "PodNetwork a is on element 1 as well"},
		{`[{"podNetworkName": "a", "isDefaultGW4": true}, {"podNetworkName": "b", "isDefaultGW4": true}]`, "isDefaultGW4 is on element 1"},
		{`[{"podNetworkName": "a", "interfaceName": "eth0"}]`, "eth0 is the default network's interface"},
	} {
		refused(t, tt.list, kc.Create(t.Context(), listing(ns, tt.list)), "annotation tenure.dev/pod-networks: ", tt.words)
	}
	onHost := listing(ns, lists("a"))
	onHost.Spec.HostNetwork = true
	refused(t, "hostNetwork", kc.Create(t.Context(), onHost), "hostNetwork")
	var warnings strings.Builder
	rc := cp.Config()
	rc.WarningHandler = rest.NewWarningWriter(&warnings, rest.WarningWriterOptions{})
	heard, err := client.New(rc, client.Options{Scheme: kc.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	fleet.Create(t, heard, listing(ns, lists("default", "a")))
	if strings.Contains(warnings.String(), "leaves out PodNetwork default") {
		t.Error("a list with the default network is warned of")
	}
	fleet.Create(t, heard, listing(ns, lists("a")))
	if !strings.Contains(warnings.String(), "leaves out PodNetwork default") {
		t.Error("a list without the default network is not warned of")
	}
}

// TestCertificateMadeAnew: a controller that runs serves with a certificate that was made anew.
// While the API server trusts another one alone, pods are created as they are.
func TestCertificateMadeAnew(t *testing.T) {
	ns := namespace(t, nil)
	refusesOnce := func(trusted []byte, want bool) {
		t.Helper()
		changeHooks(t, func(o *unstructured.Unstructured) error { return trust(o, trusted) })
		fleet.Eventually(t, 20*time.Second, func() error {
			err := kc.Create(t.Context(), listing(ns, "[{}]"), client.DryRunAll)
			if got := err != nil && strings.Contains(err.Error(), "it names no network"); got != want {
				return fmt.Errorf("a wrong list is answered %w; want it refused by the webhook: %v", err, want)
			}
			return nil
		})
	}
	other, err := certificate.Make("other", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	refusesOnce(other.Cert, false)
	cert, err := makeCertificate()
	if err != nil {
		t.Fatal(err)
	}
	refusesOnce(cert, true)
}

// TestHangingWebhook: while the webhooks' endpoint hangs, a pod without a list is created at once,
// and one with a list after 2 s for each of the two webhooks.
func TestHangingWebhook(t *testing.T) {
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	at := int64(listener.Addr().(*net.TCPAddr).Port)
	changeHooks(t, func(o *unstructured.Unstructured) error { return callAt(o, at) })
	defer func() {
		changeHooks(t, func(o *unstructured.Unstructured) error { return callAt(o, port) })
		if err := awaitWebhooks(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	ns := namespace(t, nil)
	took := func(list string) time.Duration {
		began := time.Now()
		fleet.Create(t, kc, listing(ns, list))
		return time.Since(began)
	}
	// The API server hears of the new port in a moment.
	fleet.Eventually(t, 10*time.Second, func() error {
		if d := took(lists("lan")); d < 4*time.Second {
			return fmt.Errorf("a pod with a list is created after %v; want 4 s", d)
		}
		return nil
	})
	if d := took(lists("lan")); d < 4*time.Second {
		t.Errorf("a pod with a list is created after %v; want 4 s", d)
	}
	if d := took(""); d >= 4*time.Second {
		t.Errorf("a pod without a list is created after %v; want it at once", d)
	}
}

// TestWhatMayBeChanged: nobody changes a pod's list, and the controller changes nothing of a pod
// but its gate and its condition.
func TestWhatMayBeChanged(t *testing.T) {
	ns := namespace(t, nil)
	p := listing(ns, "")
	p.Annotations = map[string]string{"tenure.dev/pod-networks": lists("lan"), "other": "x"}
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: podnetwork.Gate}, {Name: "example.org/x"}}
	fleet.Create(t, kc, p)
	patch := func(c client.Client, text string) error {
		return c.Patch(t.Context(), p.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(text)))
	}
	status := func(c client.Client, text string) error {
		return c.Status().Patch(t.Context(), p.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(text)))
	}
	const list, cleared = `{"metadata": {"annotations": {"tenure.dev/pod-networks": "[]"}}}`, `{"metadata": {"annotations": {"tenure.dev/pod-networks": null}}}`
	for what, err := range map[string]error{
		"change the list": patch(kc, list), "clear the list": patch(kc, cleared), "change the list by the status": status(kc, list),
	} {
		refused(t, what, err, "annotation tenure.dev/pod-networks of pod "+ns+"/"+p.Name+" cannot be changed")
	}
	for what, text := range map[string]string{
		"another gate":  `{"spec": {"schedulingGates": [{"$patch": "delete", "name": "example.org/x"}]}}`,
		"an image":      `{"spec": {"containers": [{"name": "c", "image": "mine"}]}}`,
		"a deadline":    `{"spec": {"activeDeadlineSeconds": 5}}`,
		"a selector":    `{"spec": {"nodeSelector": {"a": "b"}}}`,
		"an annotation": `{"metadata": {"annotations": {"other": "y"}}}`, "a label": `{"metadata": {"labels": {"a": "b"}}}`,
		"a finalizer": `{"metadata": {"finalizers": ["example.org/x"]}}`,
	} {
		refused(t, what, patch(as, text), "the controller")
	}
	for what, text := range map[string]string{
		"the phase": `{"status": {"phase": "Failed"}}`, "an address": `{"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}}`,
		"another condition": `{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}`,
		"an annotation":     `{"metadata": {"annotations": {"other": "y"}}}`,
	} {
		refused(t, what, status(as, text), "the controller")
	}
	for what, err := range map[string]error{
		"its condition": status(as, `{"status": {"conditions": [{"type": "tenure.dev/NetworksReady", "status": "False"}]}}`),
		"its gate":      patch(as, `{"spec": {"schedulingGates": [{"$patch": "delete", "name": "tenure.dev/pod-networks"}]}}`),
	} {
		if err != nil {
			t.Errorf("the controller may not write %s: %v", what, err)
		}
	}
}

// Package podgate_test proves what the API server does with new pods that list PodNetworks, and
// how the controller lets them go: on a real API server, with the roles, policies and webhooks
// that Tenure is shipped with. Conditions of PodNetworks are written by the tests.
package networks_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/certificate"
	"github.com/tenure-ipam/tenure/attach/controller/gate"
	"github.com/tenure-ipam/tenure/cmd/tenure-controller/controller"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/manifests"
)

// port is where the controller serves its webhooks, in the sandbox's own network.
const port = 9474

var (
	kc       client.WithWatch
	role     *rest.Config // of the controller's service account
	warnings said
)

func TestMain(m *testing.M) {
	o := controlplane.Options{Controllers: []string{controlplane.GarbageCollector, controlplane.ServiceAccounts}}
	os.Exit(fleet.Main(o, func(ctx context.Context, c *fleet.Cluster) (code int, err error) {
		rc := c.Config()
		rc.WarningHandler, rc.QPS, rc.Burst = &warnings, 5000, 5000
		opts, err := kube.ClientOptions(rc)
		if err != nil {
			return 0, err
		}
		if kc, err = client.NewWithWatch(rc, opts); err != nil {
			return 0, err
		}
		if err := fleet.InstallRoles(ctx, kc); err != nil {
			return 0, err
		}
		if err := fleet.InstallPolicies(ctx, kc); err != nil {
			return 0, err
		}
		if certificates, err = os.MkdirTemp(c.Dir(), "webhook"); err != nil {
			return 0, err
		}
		if err := installAdmission(ctx); err != nil {
			return 0, err
		}
		if role, err = c.ServiceAccount(ctx, kube.DefaultRegistrationNamespace, "tenure-controller", nil); err != nil {
			return 0, err
		}
		return m.Run(), nil
	}))
}

// certificates is where the controllers have the certificate of their webhooks.
var certificates string

// makeCertificate makes a certificate for the webhooks, puts it where the controllers find it, and
// returns it.
func makeCertificate() ([]byte, error) {
	pair, err := certificate.Make(kube.DefaultRegistrationNamespace, time.Now())
	if err != nil {
		return nil, err
	}
	return pair.Cert, errors.Join(
		os.WriteFile(filepath.Join(certificates, "tls.crt"), pair.Cert, 0o600),
		os.WriteFile(filepath.Join(certificates, "tls.key"), pair.Key, 0o600),
	)
}

// installAdmission creates what deploy/podnetworks/admission.yaml has. No kube-proxy leads from
// the Service to a pod: here it is a name of this machine, which the API server calls itself.
func installAdmission(ctx context.Context) error {
	objects, err := manifests.Shipped("podnetworks/admission.yaml")
	if err != nil {
		return err
	}
	trusted, err := makeCertificate()
	if err != nil {
		return err
	}
	for _, o := range objects {
		switch o.GetKind() {
		case "Service":
			o.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": "localhost"}
		case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
			if err := errors.Join(callAt(o, port), trust(o, trusted)); err != nil {
				return err
			}
		}
		if err := kc.Create(ctx, o); err != nil {
			return fmt.Errorf("%s: %w", manifests.Name(o), err)
		}
	}
	return nil
}

// callAt has the webhooks of a configuration be called at a port.
func callAt(o *unstructured.Unstructured, port int64) error {
	return setInHooks(o, port, "clientConfig", "service", "port")
}

// trust has the API server trust a certificate of the webhooks of a configuration.
func trust(o *unstructured.Unstructured, cert []byte) error {
	return setInHooks(o, base64.StdEncoding.EncodeToString(cert), "clientConfig", "caBundle")
}

// setInHooks sets a field of each webhook of a configuration.
func setInHooks(o *unstructured.Unstructured, value any, field ...string) error {
	hooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
	if err != nil {
		return err
	}
	for _, h := range hooks {
		if err := unstructured.SetNestedField(h.(map[string]any), value, field...); err != nil {
			return err
		}
	}
	return unstructured.SetNestedSlice(o.Object, hooks, "webhooks")
}

// said collects the API server's warnings.
type said struct {
	mu   sync.Mutex
	text []string // guarded by mu
}

// HandleWarningHeader implements rest.WarningHandler.
func (s *said) HandleWarningHeader(_ int, _, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = append(s.text, text)
}

func (s *said) has(words string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.text, func(text string) bool { return strings.Contains(text, words) })
}

// start runs a controller until the test ends, or stop is called, and waits until the API server
// reaches its webhooks.
func start(t *testing.T, change ...func(*controller.Config)) (stop func()) {
	t.Helper()
	cfg := controller.DefaultConfig()
	cfg.MultiNetwork, cfg.Webhooks, cfg.WebhookCertificate = true, fmt.Sprintf("localhost:%d", port), certificates
	for _, f := range change {
		f(&cfg)
	}
	end, err := fleet.RunController(context.Background(), cfg, role, slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		if err := end(); err != nil {
			t.Errorf("the controller ends with %v", err)
		}
	})
	t.Cleanup(stop)
	if cfg.MultiNetwork {
		fleet.Eventually(t, 20*time.Second, func() error {
			err := kc.Create(t.Context(), pod("kube-system", "[{}]"), client.DryRunAll)
			if err == nil || !strings.Contains(err.Error(), "it names no network") {
				return fmt.Errorf("a pod with a wrong list is answered %w; want it refused by the webhook", err)
			}
			return nil
		})
	}
	return stop
}

// namespace makes a namespace in which pods can be made.
func namespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet.Unique("ns")}}
	fleet.Create(t, kc, ns)
	fleet.Eventually(t, 10*time.Second, func() error {
		return kc.Get(t.Context(), client.ObjectKey{Namespace: ns.Name, Name: "default"}, &corev1.ServiceAccount{})
	})
	return ns.Name
}

// pod returns a pod with a list of PodNetworks; without one where it is empty.
func pod(namespace, list string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fleet.Unique("pod")}}
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "none"}}
	if list != "" {
		p.Annotations = map[string]string{podnetwork.AnnotationNetworks: list}
	}
	return p
}

// network makes a PodNetwork of another provider.
func network(t *testing.T, change ...func(*v1alpha1.PodNetwork)) *v1alpha1.PodNetwork {
	t.Helper()
	n := &v1alpha1.PodNetwork{ObjectMeta: metav1.ObjectMeta{Name: fleet.Unique("net")}, Spec: v1alpha1.PodNetworkSpec{
		Provider: "example.org/x", ParametersRefs: []v1alpha1.ParametersRef{{Group: "example.org", Kind: "X", Name: "x"}},
	}}
	for _, f := range change {
		f(n)
	}
	fleet.Create(t, kc, n)
	return n
}

// ready has a network's provider say that its parameters are ready, by which the network is.
func ready(t *testing.T, n *v1alpha1.PodNetwork) {
	t.Helper()
	fleet.Eventually(t, 20*time.Second, func() error { // the controller writes the status, too
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(n), n); err != nil {
			return err
		}
		meta.SetStatusCondition(&n.Status.Conditions, metav1.Condition{Type: v1alpha1.NetworkParamsReady, Status: metav1.ConditionTrue, Reason: "Test"})
		return kc.Status().Update(t.Context(), n)
	})
}

// lists returns a list of networks.
func lists(names ...string) string {
	var elements []string
	for _, name := range names {
		elements = append(elements, fmt.Sprintf(`{"podNetworkName": %q}`, name))
	}
	return "[" + strings.Join(elements, ", ") + "]"
}

// gated reports whether a pod has the gate.
func gated(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == podnetwork.Gate })
}

// waits waits until a pod has the gate, and its condition says so for a reason, in these words.
func waits(t *testing.T, p *corev1.Pod, reason, words string) {
	t.Helper()
	fleet.Eventually(t, 5*time.Second, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == gate.ConditionNetworksReady && c.Status == corev1.ConditionFalse && c.Reason == reason && strings.Contains(c.Message, words) && gated(p) {
				return nil
			}
		}
		return fmt.Errorf("pod %s has gates %v and conditions %+v; want it to wait: %s, %q", p.Name, p.Spec.SchedulingGates, p.Status.Conditions, reason, words)
	})
}

// passes waits until a pod's gate is lifted.
func passes(t *testing.T, p *corev1.Pod) {
	t.Helper()
	fleet.Eventually(t, 5*time.Second, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if gated(p) {
			return fmt.Errorf("pod %s has its gate, and conditions %+v; want it lifted", p.Name, p.Status.Conditions)
		}
		return nil
	})
}

// refused fails the test unless err is a refusal that says every one of words.
func refused(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		t.Errorf("%s: %v; want it refused", what, err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v; want it to say %q", what, err, w)
		}
	}
}

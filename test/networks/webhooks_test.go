package networks_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/attach/certificate"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/manifests"
	"github.com/tenure-ipam/tenure/test/process"
)

// port is where the controller serves its webhooks, in the sandbox's own network.
const port = 9474

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

// awaitWebhooks returns when the API server reaches the controller's webhooks.
func awaitWebhooks(ctx context.Context) error {
	return process.Await(ctx, minute, func(ctx context.Context) error {
		return refusal(kc.Create(ctx, listing(team, "[{}]"), client.DryRunAll), "it names no network")
	})
}

// changeHooks changes both configurations of webhooks.
func changeHooks(t *testing.T, change func(*unstructured.Unstructured) error) {
	t.Helper()
	for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind})
		if err := kc.Get(t.Context(), client.ObjectKey{Name: podnetwork.Admission}, o); err != nil {
			t.Fatal(err)
		}
		if err := change(o); err != nil {
			t.Fatal(err)
		}
		if err := kc.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

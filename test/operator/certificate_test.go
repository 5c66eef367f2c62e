package operator_test

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/attach/certificate"
	"github.com/tenure-ipam/tenure/test/manifests"
)

// The certificate of the webhooks is made by a person, whom check tells that it is missing. The one
// before stays trusted, as controllers serve with it for a minute.
func TestCertificateOfTheWebhooks(t *testing.T) {
	says(t, tenure(t, 1, "certificate"), "there is no Secret tenure-system/tenure-controller-webhook", "docs/howto/pod-networks.md")
	objects, err := manifests.Shipped("podnetworks/admission.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		create(t, o)
	}
	operator := bound(t, "tenure-operator")
	says(t, tenure(t, 0, "check", "--apart=0s", operator), "NOTE WebhooksUnused: webhooks pod-networks.tenure.dev", "no certificate that the API server trusts", "kubectl tenure certificate")
	says(t, tenure(t, 1, "certificate", operator), "forbidden")
	var before *x509.Certificate
	for range 2 {
		says(t, tenure(t, 0, "certificate"), "make the next one after "+time.Now().AddDate(0, 0, 9*365).Format("2006-"))
		now, roots := served(t)
		for _, c := range []*x509.Certificate{now, before} {
			if c == nil {
				continue
			}
			if _, err := c.Verify(x509.VerifyOptions{DNSName: "tenure-controller-webhook.tenure-system.svc", Roots: roots}); err != nil {
				t.Error(err)
			}
		}
		before = now
		says(t, tenure(t, 0, "check", "--apart=0s", operator), "all is as it must be")
	}

	for label, maker := range map[string]client.Patch{
		"helm":         client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}}`)),
		"cert-manager": client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"labels": {"app.kubernetes.io/managed-by": null}, "annotations": {"cert-manager.io/certificate-name": "x"}}}`)),
	} {
		secret := &corev1.Secret{}
		secret.Namespace, secret.Name = "tenure-system", certificate.Name
		if err := kc.Patch(t.Context(), secret, maker); err != nil {
			t.Fatal(err)
		}
		says(t, tenure(t, 1, "certificate"), label+" has made Secret tenure-system/tenure-controller-webhook")
	}
}

// TestHelmLeavesEarlierCertificate: helm upgrade applies nothing in place of the certificate that
// controllers of an earlier version have made, nor of whom they had the API server trust: Helm
// would be refused to, as the fields are theirs. kubectl tenure certificate says what to do.
func TestHelmLeavesEarlierCertificate(t *testing.T) {
	create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenure-system", Name: certificate.Name, Labels: map[string]string{"app.kubernetes.io/managed-by": "Helm"}},
		Data:       map[string][]byte{"ca.crt": []byte("a"), certificate.AuthorityKey: []byte("b"), "tls.crt": []byte("c"), "tls.key": []byte("d")},
	})
	objects, err := manifests.Chart(t.Context(), "--dry-run=server", "--is-upgrade", "--kubeconfig="+kubectl.kubeconfig, "--set=podNetworks.enabled=true,attach.enabled=true")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, o := range objects {
		hooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
		for _, h := range hooks {
			seen++
			if _, has, _ := unstructured.NestedString(h.(map[string]any), "clientConfig", "caBundle"); has {
				t.Errorf("%s %s says whom the API server trusts", o.GetKind(), o.GetName())
			}
		}
		if o.GetKind() == "Secret" && o.GetName() == certificate.Name {
			seen++
			if o.Object["data"] != nil || o.GetAnnotations()[certificate.RenewAfter] != "" {
				t.Errorf("the Secret has %v, %v", o.Object["data"], o.GetAnnotations())
			}
		}
	}
	if seen != 3 {
		t.Errorf("the chart has %d of a Secret and two webhooks", seen)
	}
	says(t, tenure(t, 1, "certificate"), "controllers of an earlier version have made", "delete the Secret and the webhook configurations")
}

// served returns the certificate in the Secret, and whom the API server trusts.
func served(t *testing.T) (*x509.Certificate, *x509.CertPool) {
	t.Helper()
	var secret corev1.Secret
	if err := kc.Get(t.Context(), client.ObjectKey{Namespace: "tenure-system", Name: certificate.Name}, &secret); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
	if err != nil {
		t.Fatal(err)
	}
	if got := secret.Annotations[certificate.RenewAfter]; got != pair.Leaf.NotAfter.AddDate(0, 0, -365).Format(time.DateOnly) {
		t.Errorf("it ends %v, and is to be renewed after %s", pair.Leaf.NotAfter, got)
	}
	var checks admissionregistration.ValidatingWebhookConfiguration
	if err := kc.Get(t.Context(), client.ObjectKey{Name: podnetwork.Admission}, &checks); err != nil {
		t.Fatal(err)
	}
	var gates admissionregistration.MutatingWebhookConfiguration
	if err := kc.Get(t.Context(), client.ObjectKey{Name: podnetwork.Admission}, &gates); err != nil {
		t.Fatal(err)
	}
	trusted := checks.Webhooks[0].ClientConfig.CABundle
	if string(gates.Webhooks[0].ClientConfig.CABundle) != string(trusted) {
		t.Error("the two configurations trust different certificates")
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trusted)
	return pair.Leaf, roots
}

package gate

import (
	"bytes"
	"crypto/x509"
	"log/slog"
	"testing"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tenure-ipam/tenure/api/podnetwork"
)

func newCertificate(data map[string][]byte) *Certificate {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: WebhookName}, Data: data}
	validating := &admissionregistration.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: podnetwork.Admission}}
	validating.Webhooks = []admissionregistration.ValidatingWebhook{{Name: "list." + podnetwork.Admission}}
	return &Certificate{
		Live:      fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(secret, validating).Build(),
		Namespace: "ns", Log: slog.New(slog.DiscardHandler),
	}
}

// look returns the Secret's data, and whom the API server trusts, after a look.
func look(t *testing.T, c *Certificate) (data map[string][]byte, trusted []byte) {
	t.Helper()
	if err := c.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	var secret corev1.Secret
	if err := c.Live.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: WebhookName}, &secret); err != nil {
		t.Fatal(err)
	}
	var hooks admissionregistration.ValidatingWebhookConfiguration
	if err := c.Live.Get(t.Context(), client.ObjectKey{Name: podnetwork.Admission}, &hooks); err != nil {
		t.Fatal(err)
	}
	return secret.Data, hooks.Webhooks[0].ClientConfig.CABundle
}

// serves fails the test unless a client that trusts ca would take the certificate that c serves.
func serves(t *testing.T, c *Certificate, ca []byte) {
	t.Helper()
	pair, err := c.Get(nil)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	if _, err := leaf.Verify(x509.VerifyOptions{DNSName: "tenure-controller-webhook.ns.svc", Roots: roots}); err != nil {
		t.Error(err)
	}
}

// TestCertificate: it is made once, and again before it ends; meanwhile both are trusted.
func TestCertificate(t *testing.T) {
	c := newCertificate(nil)
	if _, err := c.Get(nil); err == nil {
		t.Error("there is a certificate before there is a Secret with one")
	}
	data, trusted := look(t, c)
	serves(t, c, trusted)
	if !bytes.Equal(data[keyCA], trusted) {
		t.Error("the API server does not trust the authority of the Secret")
	}
	if again, _ := look(t, c); !bytes.Equal(again[corev1.TLSCertKey], data[corev1.TLSCertKey]) {
		t.Error("a certificate that is good was made anew")
	}
	if c.good(data, time.Now().Add(serverValid)) {
		t.Error("a certificate is good at its end")
	}
	old := &Certificate{}
	old.serving.Store(c.serving.Load())
	secret := corev1.Secret{Data: data}
	if err := c.renew(&secret, time.Now()); err != nil {
		t.Fatal(err)
	}
	serves(t, old, secret.Data[keyCA])
	c = newCertificate(secret.Data)
	_, trusted = look(t, c)
	serves(t, c, trusted)
}

// TestCertificateOfAnother: what cert-manager made is served, and nothing is written.
func TestCertificateOfAnother(t *testing.T) {
	made := corev1.Secret{}
	if err := (&Certificate{Namespace: "ns"}).renew(&made, time.Now().Add(-2*serverValid)); err == nil {
		delete(made.Data, keyCAKey)
	}
	c := newCertificate(made.Data)
	data, trusted := look(t, c)
	if !bytes.Equal(data[corev1.TLSCertKey], made.Data[corev1.TLSCertKey]) || len(trusted) > 0 {
		t.Error("somebody else's certificate was changed, or trusted")
	}
	if _, err := c.Get(nil); err != nil {
		t.Error(err)
	}
}

package install

import (
	"bytes"
	"context"
	"io"
	"testing"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/attach/certificate"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// TestTwoMakeCertificates: when two make a certificate at once, the API server trusts the one that
// is in the Secret in the end.
func TestTwoMakeCertificates(t *testing.T) {
	hooks := metav1.ObjectMeta{Name: podnetwork.Admission}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: certificate.Name}}
	validating := &admissionregistration.ValidatingWebhookConfiguration{ObjectMeta: hooks, Webhooks: []admissionregistration.ValidatingWebhook{{Name: "list"}}}
	mutating := &admissionregistration.MutatingWebhookConfiguration{ObjectMeta: hooks, Webhooks: []admissionregistration.MutatingWebhook{{Name: "gate"}}}
	server := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(secret, validating, mutating).Build()
	one := func(kc client.Client) error {
		return makeCertificate(t.Context(), &session.Session{API: new(kube.API), Client: kc, Stdout: io.Discard})
	}
	met := false
	slow := interceptor.NewClient(server, interceptor.Funcs{Get: func(ctx context.Context, kc client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if _, reads := o.(*admissionregistration.ValidatingWebhookConfiguration); reads && !met {
			met = true // the other begins after this one, and ends before it
			if err := one(server); err != nil {
				t.Error(err)
			}
		}
		return kc.Get(ctx, key, o, opts...)
	}})
	if err := one(slow); err != nil {
		t.Error(err)
	}
	for _, o := range []client.Object{secret, validating, mutating} {
		if err := server.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
	}
	cert := secret.Data[corev1.TLSCertKey]
	if len(cert) == 0 || !bytes.Contains(validating.Webhooks[0].ClientConfig.CABundle, cert) || !bytes.Contains(mutating.Webhooks[0].ClientConfig.CABundle, cert) {
		t.Error("the API server does not trust the certificate in the Secret")
	}
}

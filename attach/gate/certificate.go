package gate

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/podnetwork"
)

// WebhookName is the name of the Secret that has the certificate, and of the Service by which the
// API server reaches the webhooks.
const WebhookName = "tenure-controller-webhook"

// Keys of the Secret's data. One without keyCAKey is made by somebody else, as cert-manager does.
const (
	keyCA    = "ca.crt"
	keyCAKey = "ca.key"
)

const (
	caValid     = 10 * 365 * 24 * time.Hour
	serverValid = 365 * 24 * time.Hour
	// renewBefore is how long before its end a certificate is made anew.
	renewBefore = 90 * 24 * time.Hour

	// certificateEvery is how often the Secret and the webhook configurations are looked at, and
	// certificateSoon the same after an error.
	certificateEvery = time.Minute
	certificateSoon  = 2 * time.Second
)

// caName is in the certificate of the authority.
const caName = "tenure-controller-webhook-ca"

// Certificate is what the webhooks are served with. It is in a Secret, so that all controllers
// serve with the same. Whichever of them finds it missing, or old, makes it, and tells the API
// server by the webhook configurations whom to trust.
type Certificate struct {
	// Live reads and writes at the API server. The Secret must exist: nobody here may create one.
	Live      client.Client
	Namespace string
	Log       *slog.Logger

	serving atomic.Pointer[tls.Certificate]
}

// Get returns the certificate for a TLS connection.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if pair := c.serving.Load(); pair != nil {
		return pair, nil
	}
	return nil, fmt.Errorf("there is no certificate yet in Secret %s/%s", c.Namespace, WebhookName)
}

// Run keeps the certificate until ctx ends.
func (c *Certificate) Run(ctx context.Context) error {
	for last := ""; ; {
		wait, said := certificateEvery, ""
		if err := c.look(ctx); err != nil {
			wait = certificateSoon
			if !apierrors.IsConflict(err) { // another controller was faster
				said = err.Error()
			}
		}
		if said != "" && said != last && ctx.Err() == nil {
			c.Log.ErrorContext(ctx, "the certificate of the webhooks; this is tried again", "error", said)
		}
		last = said
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// look reads the Secret, makes its content where that is missing or old, and has it served.
func (c *Certificate) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*callTimeout)
	defer cancel()
	var secret corev1.Secret
	if err := c.Live.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: WebhookName}, &secret); err != nil {
		return fmt.Errorf("read the certificate of the webhooks (deploy/podnetworks/admission.yaml has its Secret): %w", err)
	}
	ours := len(secret.Data[keyCAKey]) > 0 || len(secret.Data[corev1.TLSCertKey]) == 0
	if ours && !c.good(secret.Data, time.Now().Add(renewBefore)) {
		if err := c.renew(&secret, time.Now()); err != nil {
			return err
		}
		if err := c.Live.Update(ctx, &secret); err != nil {
			return fmt.Errorf("write the certificate of the webhooks: %w", err)
		}
		c.Log.InfoContext(ctx, "the webhooks have a new certificate", "secret", c.Namespace+"/"+WebhookName)
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return fmt.Errorf("use the certificate in Secret %s/%s: %w", c.Namespace, WebhookName, err)
	}
	if ours {
		err = c.trust(ctx, secret.Data[keyCA])
	}
	c.serving.Store(&pair)
	return err
}

// good reports whether the API server would take the certificate at a time.
func (c *Certificate) good(data map[string][]byte, at time.Time) bool {
	usages := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	ok, err := rotator.ValidCert(data[keyCA], data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey], c.dnsName(), &usages, at)
	return ok && err == nil
}

// renew makes an authority and a certificate. The authority before stays trusted beside the new
// one, while other controllers serve by it.
func (c *Certificate) renew(secret *corev1.Secret, now time.Time) error {
	maker := rotator.CertRotator{
		CAName: caName, CAOrganization: "tenure.dev", DNSName: c.dnsName(), ExtKeyUsages: &[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	begin := now.Add(-time.Hour)
	ca, err := maker.CreateCACert(begin, now.Add(caValid))
	if err != nil {
		return fmt.Errorf("make an authority for the webhooks: %w", err)
	}
	cert, key, err := maker.CreateCertPEM(ca, begin, now.Add(serverValid))
	if err != nil {
		return fmt.Errorf("make a certificate for the webhooks: %w", err)
	}
	bundle := bytes.Clone(ca.CertPEM)
	if before, _ := pem.Decode(secret.Data[keyCA]); before != nil {
		bundle = append(bundle, pem.EncodeToMemory(before)...)
	}
	secret.Data = map[string][]byte{keyCA: bundle, keyCAKey: ca.KeyPEM, corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key}
	return nil
}

func (c *Certificate) dnsName() string { return WebhookName + "." + c.Namespace + ".svc" }

// trust has the API server trust the authority.
func (c *Certificate) trust(ctx context.Context, ca []byte) error {
	key := client.ObjectKey{Name: podnetwork.Admission}
	var validating admissionregistration.ValidatingWebhookConfiguration
	err := c.Live.Get(ctx, key, &validating)
	if err == nil {
		hooks := map[string]admissionregistration.WebhookClientConfig{}
		for _, h := range validating.Webhooks {
			hooks[h.Name] = h.ClientConfig
		}
		err = c.patch(ctx, &validating, hooks, ca)
	}
	var mutating admissionregistration.MutatingWebhookConfiguration
	also := c.Live.Get(ctx, key, &mutating)
	if also == nil {
		hooks := map[string]admissionregistration.WebhookClientConfig{}
		for _, h := range mutating.Webhooks {
			hooks[h.Name] = h.ClientConfig
		}
		also = c.patch(ctx, &mutating, hooks, ca)
	}
	// The mutating one is not there where the API server has the policy in its place.
	if err := errors.Join(err, client.IgnoreNotFound(also)); err != nil {
		return fmt.Errorf("have the API server trust the webhooks: %w", err)
	}
	return nil
}

// patch writes the authority into the webhooks that do not have it.
func (c *Certificate) patch(ctx context.Context, o client.Object, hooks map[string]admissionregistration.WebhookClientConfig, ca []byte) error {
	var changes []any
	for name, config := range hooks {
		if !bytes.Equal(config.CABundle, ca) {
			changes = append(changes, map[string]any{"name": name, "clientConfig": map[string]any{"caBundle": ca}})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.GetUID()}, "webhooks": changes})
	if err != nil {
		return err //nolint:wrapcheck // the caller says what it is about
	}
	return c.Live.Patch(ctx, o, client.RawPatch(types.StrategicMergePatchType, text)) //nolint:wrapcheck // likewise
}

package install

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/attach/certificate"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
)

const certificateHelp = `Makes the certificate of the webhooks by which the API server checks and holds back pods that list
PodNetworks, for ten years. It writes the certificate and its key into the Secret
tenure-controller-webhook in the namespace tenure-system, and whom the API server trusts into the
webhook configurations pod-networks.tenure.dev. Controllers serve with it within two minutes.

It is for an installation by kubectl apply, once after PodNetworks are turned on, and again when
kubectl tenure check says so. What Helm and cert-manager have made they make anew by themselves.`

// NewCertificate returns the verb certificate.
func NewCertificate(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "certificate", Short: "make the certificate of the webhooks of PodNetworks",
		Long: certificateHelp, Args: session.None,
		RunE: func(c *cobra.Command, _ []string) error { return makeCertificate(c.Context(), s) },
	}
}

func makeCertificate(ctx context.Context, s *session.Session) error {
	if err := s.Connect(); err != nil {
		return err
	}
	// Of two who make one at once, one trusts what the other does not serve, and begins again.
	return retry.RetryOnConflict(retry.DefaultRetry, func() error { return makeCertificateOnce(ctx, s) })
}

// makeCertificateOnce fails with a conflict where somebody else has written meanwhile.
func makeCertificateOnce(ctx context.Context, s *session.Session) error {
	secret := &corev1.Secret{}
	err := s.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: certificate.Name}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no Secret %s/%s: PodNetworks are not turned on here; see docs/howto/pod-networks.md", namespace, certificate.Name)
	case err != nil:
		return fmt.Errorf("read Secret %s/%s: %w", namespace, certificate.Name, err)
	case secret.Labels["app.kubernetes.io/managed-by"] == "Helm" && len(secret.Data[certificate.AuthorityKey]) > 0:
		return fmt.Errorf("helm keeps Secret %s/%s with a certificate that controllers of an earlier version have made; to have Helm make one, "+
			"delete the Secret and the webhook configurations %s, and run helm upgrade: see docs/howto/pod-networks.md", namespace, certificate.Name, podnetwork.Admission)
	case secret.Labels["app.kubernetes.io/managed-by"] == "Helm":
		return fmt.Errorf("helm has made Secret %s/%s, and makes the certificate anew in its last year; to have that at once, "+
			"take the annotation %s from it and run helm upgrade", namespace, certificate.Name, certificate.RenewAfter)
	case secret.Annotations["cert-manager.io/certificate-name"] != "":
		return fmt.Errorf("cert-manager has made Secret %s/%s, and makes the certificate anew; to have that at once, delete the Secret", namespace, certificate.Name)
	}
	pair, err := certificate.Make(namespace, s.Now())
	if err != nil {
		return err //nolint:wrapcheck // says what it is about
	}
	// Controllers serve with the earlier one for another minute.
	if err := trust(ctx, s, append(pair.Cert, secret.Data[corev1.TLSCertKey]...)); err != nil {
		return err
	}
	before := client.MergeFromWithOptions(secret.DeepCopy(), client.MergeFromWithOptimisticLock{})
	secret.Data = map[string][]byte{corev1.TLSCertKey: pair.Cert, corev1.TLSPrivateKeyKey: pair.Key}
	if secret.Annotations == nil {
		secret.Annotations = map[string]string{}
	}
	secret.Annotations[certificate.RenewAfter] = pair.RenewAfter
	if err := s.Client.Patch(ctx, secret, before); err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", namespace, certificate.Name, err)
	}
	s.Screen().Line("made a certificate, in Secret %s/%s: make the next one after %s. Controllers serve with it within two minutes.",
		namespace, certificate.Name, pair.RenewAfter)
	return nil
}

// trust has the API server trust certificates of the webhooks, which are as PEM.
func trust(ctx context.Context, s *session.Session, certificates []byte) error {
	key := client.ObjectKey{Name: podnetwork.Admission}
	var validating admissionregistration.ValidatingWebhookConfiguration
	if err := s.Client.Get(ctx, key, &validating); err != nil {
		return fmt.Errorf("read ValidatingWebhookConfiguration %s: %w", key.Name, err)
	}
	var mutating admissionregistration.MutatingWebhookConfiguration
	if err := s.Client.Get(ctx, key, &mutating); err != nil {
		return fmt.Errorf("read MutatingWebhookConfiguration %s: %w", key.Name, err)
	}
	checks, gates := validating.DeepCopy(), mutating.DeepCopy()
	for i := range validating.Webhooks {
		validating.Webhooks[i].ClientConfig.CABundle = certificates
	}
	for i := range mutating.Webhooks {
		mutating.Webhooks[i].ClientConfig.CABundle = certificates
	}
	err := errors.Join(
		s.Client.Patch(ctx, &validating, client.StrategicMergeFrom(checks, client.MergeFromWithOptimisticLock{})),
		s.Client.Patch(ctx, &mutating, client.StrategicMergeFrom(gates, client.MergeFromWithOptimisticLock{})),
	)
	if err != nil {
		return fmt.Errorf("have the API server trust the webhooks: %w", err)
	}
	return nil
}

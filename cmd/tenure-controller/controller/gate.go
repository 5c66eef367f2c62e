package controller

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	webhookadmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/certificate"
	"github.com/tenure-ipam/tenure/attach/controller/gate"
	"github.com/tenure-ipam/tenure/attach/judge"
	"github.com/tenure-ipam/tenure/attach/podnetwork"
	"github.com/tenure-ipam/tenure/ipam/access"
	"github.com/tenure-ipam/tenure/ipam/controller/trigger"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// gateWorkers is how many gated pods are worked on at once.
const gateWorkers = 32

// gate has the manager hold back pods that list PodNetworks until these are ready, and serve the
// webhooks by which they get there.
func (c *Controller) gate(ctx context.Context, mgr manager.Manager, direct client.Client, live *kube.API) error {
	log := c.log.With("part", "gate")
	if err := gate.Index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err //nolint:wrapcheck // says what it is about
	}
	reviews := access.NewReviews(c.cfg.Now, live.MayUse(access.PodNetwork))
	r := &gate.Reconciler{
		Cache: mgr.GetCache(), Live: direct, Known: cachedNetworks{admission{mgr.GetCache(), reviews}},
		Events: mgr.GetEventRecorder(name), Log: log, Now: c.cfg.Now,
	}
	if err := r.Setup(mgr, trigger.Workers(gateWorkers)); err != nil {
		return err //nolint:wrapcheck // likewise
	}
	if err := mgr.Add(background(reviews.Run)); err != nil {
		return err //nolint:wrapcheck // likewise
	}
	if !c.servesWebhooks() {
		return nil
	}
	return c.webhooks(mgr)
}

// servesWebhooks reports whether this controller checks new pods, and gives them their gates.
func (c *Controller) servesWebhooks() bool { return c.cfg.MultiNetwork && c.cfg.Webhooks != "" }

// certificate is what the webhooks are served with.
func (c *Controller) certificate() certificate.Files {
	return certificate.Files{Dir: c.cfg.WebhookCertificate, Log: c.log.With("part", "gate")}
}

// webhooks has the manager serve the webhooks, whether it leads or not.
func (c *Controller) webhooks(mgr manager.Manager) error {
	host, port, err := net.SplitHostPort(c.cfg.Webhooks)
	if err != nil {
		return fmt.Errorf("address of the webhooks: %w", err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return fmt.Errorf("address of the webhooks: port %q is no number", port)
	}
	files := c.certificate()
	server := webhook.NewServer(webhook.Options{
		Host: host, Port: number, TLSOpts: []func(*tls.Config){func(t *tls.Config) { t.GetCertificate = files.Get }},
	})
	server.Register(gate.PathValidate, &webhook.Admission{Handler: webhookadmission.HandlerFunc(gate.Validate)})
	server.Register(gate.PathMutate, &webhook.Admission{Handler: webhookadmission.HandlerFunc(gate.Mutate)})
	if err := mgr.Add(server); err != nil {
		return fmt.Errorf("add the webhooks: %w", err)
	}
	return mgr.Add(everywhere(files.Watch)) //nolint:wrapcheck // says what it is about
}

// cachedNetworks is what the cache knows of PodNetworks, and of who may use them.
type cachedNetworks struct{ admission }

// PodNetwork implements judge.Known.
func (k cachedNetworks) PodNetwork(ctx context.Context, name string) (n judge.Network, exists bool, err error) {
	var o v1alpha1.PodNetwork
	exists, err = kube.Read(ctx, k.cache, client.ObjectKey{Name: name}, &o)
	if !exists {
		return n, false, err
	}
	return podnetwork.Of(&o, kube.RuleOf(access.PodNetwork, o.Spec.Access, o.Spec.NamespaceSelector)), true, nil
}

// Attachment implements judge.Known.
func (k cachedNetworks) Attachment(ctx context.Context, namespace, name string) (a judge.Attachment, exists bool, err error) {
	var o v1alpha1.PodNetworkAttachment
	exists, err = kube.Read(ctx, k.cache, client.ObjectKey{Namespace: namespace, Name: name}, &o)
	if !exists {
		return a, false, err
	}
	return podnetwork.AttachmentOf(&o), true, nil
}

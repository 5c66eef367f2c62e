package daemon

import (
	"context"
	"fmt"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/node/devices"
	"github.com/tenure-ipam/tenure/attach/node/resolve"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/ipam/access"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// reporter is the name under which events are written.
const reporter = "tenured"

// resolver makes what answers the meta-plugin. It follows this node's pods by way of
// the cache that it returns as well. uses has the authorizer's answers about PodNetworks; nil:
// none are served.
func (d *Daemon) resolver(c client.WithWatch, api *kube.API, events *kube.Events, uses *access.Reviews) (r *resolve.Resolver, cache *kube.PodCache, err error) {
	found := &attachPods{api: api}
	cfg := resolve.DefaultConfig(d.cfg.Reports)
	cfg.Boot = d.cfg.Agent.Boot
	cfg.State, cfg.VIFs = d.cfg.AttachState, d.cfg.VIFs
	cluster := resolve.Cluster{
		Pods: found, Definitions: definitions{api, c}, Namespaces: namespaces{api, c},
		Devices: devices.Kubelet{Socket: d.cfg.PodResources}, Warn: events.WarnPod, Note: events.NotePod,
	}
	if uses != nil {
		cluster.PodNetworks = podNetworks{api, c, uses}
	}
	r, err = resolve.New(cfg, cluster, d.log)
	if err != nil {
		return nil, nil, err
	}
	found.cache = kube.NewPodCache(c, d.cfg.Agent.Node, keeps, func(o *metav1.PartialObjectMetadata, exists bool) {
		r.PodChanged(attachPodOf(o), exists)
	})
	return r, found.cache, nil
}

// keeps reports whether agent or resolver read an annotation of pods.
func keeps(key string) bool { return plan.ReadsAnnotation(key) || key == npwg.AnnotationStatus }

// attachPods is the node's pods as the resolver wants them.
type attachPods struct {
	api   *kube.API
	cache *kube.PodCache
}

// Cached implements resolve.Pods.
func (p *attachPods) Cached(namespace, name string) (resolve.Pod, bool) {
	o, ok := p.cache.Get(namespace, name)
	if !ok {
		return resolve.Pod{}, false
	}
	return attachPodOf(o), true
}

// ReadPod implements resolve.Pods.
func (p *attachPods) ReadPod(ctx context.Context, namespace, name string) (resolve.Pod, protocol.Outcome, error) {
	o, out, err := p.api.ReadPodMetadata(ctx, namespace, name)
	if out != protocol.Done {
		return resolve.Pod{}, out, err
	}
	return attachPodOf(o), out, nil
}

// Annotate implements resolve.Pods.
func (p *attachPods) Annotate(ctx context.Context, pod protocol.PodRef, annotations map[string]string) (protocol.Outcome, error) {
	out, err := p.api.AnnotatePod(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: pod.Name}, pod.UID, annotations)
	if apierrors.HasStatusCause(err, metav1.CauseTypeTooLong) || apierrors.IsRequestEntityTooLargeError(err) {
		err = fmt.Errorf("%w: %w", resolve.ErrTooLarge, err)
	}
	return out, err
}

func attachPodOf(o metav1.Object) resolve.Pod {
	return resolve.Pod{
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: protocol.UID(o.GetUID()), MirrorOf: kube.MirrorOf(o),
		Annotations: o.GetAnnotations(), Moving: o.GetLabels()[kube.MovingLabel] != "",
	}
}

// definitions is the cluster's network attachment definitions as the resolver wants
// them.
type definitions struct {
	api *kube.API
	c   client.WithWatch
}

// ReadDefinition implements resolve.Definitions.
func (d definitions) ReadDefinition(ctx context.Context, ref facts.Ref) (facts.Definition, protocol.Outcome, error) {
	o, out, err := d.api.ReadDefinition(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name})
	if out != protocol.Done {
		return facts.Definition{}, out, err
	}
	return resolve.DefinitionOf(ref, o.Annotations, o.Spec.Config), out, nil
}

// FollowDefinition implements resolve.Definitions.
func (d definitions) FollowDefinition(ctx context.Context, ref facts.Ref, changed func(facts.Definition, bool)) error {
	return kube.FollowDefinition(ctx, d.c, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, func(o *nad.NetworkAttachmentDefinition) {
		if o == nil {
			changed(facts.Definition{}, false)
			return
		}
		changed(resolve.DefinitionOf(ref, o.Annotations, o.Spec.Config), true)
	})
}

// namespaces is the cluster's namespaces as the resolver wants them.
type namespaces struct {
	api *kube.API
	c   client.WithWatch
}

// ReadLabels implements resolve.Namespaces.
func (n namespaces) ReadLabels(ctx context.Context, namespace string) (map[string]string, protocol.Outcome, error) {
	o, out, err := n.api.ReadNamespaceMetadata(ctx, namespace)
	if out != protocol.Done {
		return nil, out, err
	}
	return o.Labels, out, nil
}

// FollowLabels implements resolve.Namespaces.
func (n namespaces) FollowLabels(ctx context.Context, namespace string, changed func(map[string]string, bool)) error {
	return kube.FollowNamespace(ctx, n.c, namespace, func(o *metav1.PartialObjectMetadata) {
		if o == nil {
			changed(nil, false)
			return
		}
		changed(o.Labels, true)
	})
}

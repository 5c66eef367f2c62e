package endpoints

import (
	"context"
	"fmt"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/names"
)

// network returns the network that a Service of a namespace asks for, or why it gets none.
//
// Of another namespace's definition it gets what this lets pods of its own select. A definition
// that says nothing of it is not refused: the addresses are of pods that were attached to it.
func (r *Reconciler) network(ctx context.Context, namespace string, q names.Request) (n names.Network, why string, err error) {
	var d nad.NetworkAttachmentDefinition
	found, err := r.read(ctx, client.ObjectKey{Namespace: q.Namespace, Name: q.Name}, &d)
	if err != nil {
		return n, "", err
	}
	if found {
		why, err = r.forbidden(ctx, namespace, &d)
		if why != "" || err != nil {
			return n, why, err
		}
		return names.Network{Definition: q.Definition()}, "", nil
	}
	none := fmt.Sprintf("annotation %s: there is no NetworkAttachmentDefinition %s", names.AnnotationNetwork, q.Definition())
	if !q.Short {
		return n, none, nil
	}
	if !r.PodNetworks {
		return n, none + ", and PodNetworks are not served", nil
	}
	var p v1alpha1.PodNetwork
	switch found, err := r.read(ctx, client.ObjectKey{Name: q.Name}, &p); {
	case err != nil:
		return n, "", err
	case !found:
		return n, none + ", and no PodNetwork " + q.Name, nil
	case q.Name == podnetwork.Default:
		return n, "the addresses on the cluster's default network have names by a Service with spec.selector, without Tenure", nil
	}
	return names.Network{PodNetwork: q.Name}, "", nil
}

// forbidden says why a Service of a namespace gets no addresses of a definition; empty: it gets
// them.
func (r *Reconciler) forbidden(ctx context.Context, namespace string, d *nad.NetworkAttachmentDefinition) (string, error) {
	if d.Namespace == namespace {
		return "", nil
	}
	var of metav1.PartialObjectMetadata
	of.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if _, err := r.read(ctx, client.ObjectKey{Name: namespace}, &of); err != nil {
		return "", err
	}
	if why, says := npwg.WhyForbidden(d.Annotations, namespace, of.Labels); says && why != "" {
		return fmt.Sprintf("NetworkAttachmentDefinition %s/%s: %s: name one that they may select", d.Namespace, d.Name, why), nil
	}
	return "", nil
}

// read reads an object from the cache.
func (r *Reconciler) read(ctx context.Context, key client.ObjectKey, o client.Object) (found bool, err error) {
	err = r.Cache.Get(ctx, key, o)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read %T %s: %w", o, key, err)
	}
	return err == nil, nil
}

// tell makes an Event of why a Service gets nothing, if people have not been told. Empty is that
// there is nothing to tell.
func (r *Reconciler) tell(ctx context.Context, s *corev1.Service, why string) {
	key := client.ObjectKeyFromObject(s)
	if why == "" {
		r.reported.Forget(key)
		return
	}
	for range r.reported.New(key, refusal{s.UID, why}) {
		// The API server takes 1 KiB.
		r.Events.Eventf(s, nil, corev1.EventTypeWarning, names.ReasonRefused, "PublishAddresses", "%.1000s", why)
		r.Log.WarnContext(ctx, "no addresses are published for a Service", "service", key.String(), "message", why)
	}
}

// nodes are the Nodes of a cache, as the library asks for them: without a context, for which a
// cache that is filled has no use.
type nodes struct{ client.Reader }

// Get implements [corelisters.NodeLister].
func (n nodes) Get(name string) (*corev1.Node, error) {
	var o corev1.Node
	ctx := context.Background() //nolint:forbidigo // see above
	err := n.Reader.Get(ctx, client.ObjectKey{Name: name}, &o)
	return &o, err //nolint:wrapcheck // the library asks whether it is a NotFound
}

// List implements [corelisters.NodeLister].
func (n nodes) List(selector apilabels.Selector) (all []*corev1.Node, err error) {
	var list corev1.NodeList
	ctx := context.Background() //nolint:forbidigo // likewise
	err = n.Reader.List(ctx, &list, client.MatchingLabelsSelector{Selector: selector})
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all, err //nolint:wrapcheck // likewise
}

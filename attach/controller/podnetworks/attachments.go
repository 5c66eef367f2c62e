package podnetworks

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/podnetwork"
	"github.com/tenure-ipam/tenure/ipam/access"
)

// Attachments keeps PodNetworkAttachments.
type Attachments struct{ *Cluster }

// Reconcile looks at one PodNetworkAttachment.
func (r *Attachments) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var o v1alpha1.PodNetworkAttachment
	switch err := r.Cache.Get(ctx, req.NamespacedName, &o); {
	case apierrors.IsNotFound(err): // somebody has taken its finalizer off
		return settle(r.removeDefinition(ctx, req.Namespace, req.Name))
	case err != nil:
		return reconcile.Result{}, err //nolint:wrapcheck // says what it is about
	}
	inUse, err := r.anyOf(ctx, &corev1.PodList{}, byAttachment, o.Name, client.InNamespace(o.Namespace))
	if err != nil {
		return reconcile.Result{}, err
	}
	if o.DeletionTimestamp != nil && !inUse && controllerutil.ContainsFinalizer(&o, v1alpha1.InUseFinalizer) {
		return r.release(ctx, &o,
			func(ctx context.Context) (bool, error) {
				return r.podRefers(ctx, o.Namespace, func(_, attachments []string) bool { return slices.Contains(attachments, o.Name) })
			},
			func(ctx context.Context) error { return r.removeDefinition(ctx, o.Namespace, o.Name) },
		)
	}
	if err := r.mark(ctx, &o); err != nil {
		return settle(err)
	}
	l, err := r.look(ctx, &o)
	if err != nil {
		return settle(err)
	}
	l.inUse = inUse
	before := o.DeepCopy()
	if o.Status.Conditions = conditions(o.Status.Conditions, l); same(before.Status.Conditions, o.Status.Conditions) {
		return reconcile.Result{}, nil
	}
	return settle(r.patchStatus(ctx, &o, before))
}

// look finds out what there is to say of an attachment.
func (r *Attachments) look(ctx context.Context, o *v1alpha1.PodNetworkAttachment) (look, error) {
	l := look{generation: o.Generation, deleting: o.DeletionTimestamp != nil, refers: len(o.Spec.ParametersRefs) > 0}
	if o.Spec.PodNetworkName == api.Default { // made before the API server refused it
		l.network = fmt.Sprintf("PodNetwork %s is the cluster's own and takes no parameters: list the PodNetwork in its place, and delete this", api.Default)
		return l, nil
	}
	var network v1alpha1.PodNetwork
	err := r.Cache.Get(ctx, client.ObjectKey{Name: o.Spec.PodNetworkName}, &network)
	switch {
	case apierrors.IsNotFound(err):
		l.network = fmt.Sprintf("PodNetwork %s does not exist: make it, or make another PodNetworkAttachment", o.Spec.PodNetworkName)
		return l, nil
	case err != nil:
		return l, fmt.Errorf("read PodNetwork %s: %w", o.Spec.PodNetworkName, err)
	}
	if n := podnetwork.Of(&network, access.Rule{}); !n.Ready {
		l.network = fmt.Sprintf("PodNetwork %s is not Ready: %s", network.Name, n.NotReady)
	}
	l.provider, l.judged = network.Spec.Provider, l.refers && network.Spec.Provider == api.Provider && o.DeletionTimestamp == nil
	if l.judged {
		l.params, err = faultOf(r.attachmentParams(ctx, o, &network))
	}
	return l, err
}

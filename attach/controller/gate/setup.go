package gate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/podnetwork"
)

// byObject is the index of gated pods by what they list: the name of a PodNetwork, or namespace
// and name of an attachment.
const byObject = "tenure.gated"

// Index adds the index that the reconciler needs. Call it before the cache starts.
func Index(ctx context.Context, to client.FieldIndexer) error {
	if err := to.IndexField(ctx, &corev1.Pod{}, byObject, func(o client.Object) []string { return listed(o.(*corev1.Pod)) }); err != nil {
		return fmt.Errorf("index gated pods by PodNetwork: %w", err)
	}
	return nil
}

// listed returns the keys of what a gated pod lists.
func listed(pod *corev1.Pod) (keys []string) {
	if !isGated(pod) {
		return nil
	}
	elements, _ := api.Parse(pod.Annotations[api.AnnotationNetworks])
	for _, e := range elements {
		switch {
		case e.Attachment != "":
			keys = append(keys, pod.Namespace+"/"+e.Attachment)
		case e.Network != "":
			keys = append(keys, e.Network)
		}
	}
	return keys
}

// Setup has the manager run r.
func (r *Reconciler) Setup(mgr ctrl.Manager, o controller.Options) error {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := ctrl.NewControllerManagedBy(mgr).Named("pod-gates").
		For(&corev1.Pod{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			pod, ok := o.(*corev1.Pod)
			return ok && isGated(pod)
		}))).
		Watches(&v1alpha1.PodNetwork{}, handler.EnqueueRequestsFromMapFunc(r.ofNetwork)).
		Watches(&v1alpha1.PodNetworkAttachment{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.gated(ctx, client.MatchingFields{byObject: o.GetNamespace() + "/" + o.GetName()})
		})).
		WatchesMetadata(ns, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.gated(ctx, client.InNamespace(o.GetName()))
		}), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		WithOptions(o).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the gate of pods: %w", err)
	}
	return nil
}

// ofNetwork maps a PodNetwork to the gated pods that list it, or an attachment of it.
func (r *Reconciler) ofNetwork(ctx context.Context, o client.Object) []reconcile.Request {
	all := r.gated(ctx, client.MatchingFields{byObject: o.GetName()})
	var list v1alpha1.PodNetworkAttachmentList
	if err := r.Cache.List(ctx, &list, client.MatchingFields{podnetwork.IndexNetwork: o.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
		r.Log.ErrorContext(ctx, "attachments of a PodNetwork cannot be listed", "podnetwork", o.GetName(), "error", err)
		return all
	}
	for i := range list.Items {
		a := &list.Items[i]
		all = append(all, r.gated(ctx, client.MatchingFields{byObject: a.Namespace + "/" + a.Name})...)
	}
	return all
}

// gated returns the gated pods that o selects.
func (r *Reconciler) gated(ctx context.Context, o client.ListOption) (all []reconcile.Request) {
	var list corev1.PodList
	if err := r.Cache.List(ctx, &list, o, client.UnsafeDisableDeepCopy); err != nil {
		r.Log.ErrorContext(ctx, "gated pods cannot be listed", "error", err)
	}
	for i := range list.Items {
		if pod := &list.Items[i]; isGated(pod) {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
		}
	}
	return all
}

package endpoints

import (
	"context"
	"fmt"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/names"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// byNetwork is the index of the Services that ask, by the network that their annotation may mean:
// namespace/name of a definition, and the name of a PodNetwork. All of them have [anyNetwork].
const (
	byNetwork  = "tenure.names"
	anyNetwork = "*"
)

// index adds the index to the reconciler's own cache.
func index(ctx context.Context, to client.FieldIndexer) error {
	err := to.IndexField(ctx, &corev1.Service{}, byNetwork, func(o client.Object) []string {
		if !names.Asks(o) {
			return nil
		}
		keys := []string{anyNetwork}
		if q, err := names.Read(o.(*corev1.Service)); err == nil {
			keys = append(keys, q.Definition())
			if q.Short {
				keys = append(keys, q.Name)
			}
		}
		return keys
	})
	if err != nil {
		return fmt.Errorf("index Services by network: %w", err)
	}
	return nil
}

// Setup has the manager run r, with own for [Config.Own].
func (r *Reconciler) Setup(ctx context.Context, mgr ctrl.Manager, own cache.Cache, o controller.Options) error {
	if err := index(ctx, own); err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(mgr).Named("endpoints").
		WatchesRawSource(source.Kind(own, &corev1.Service{}, &handler.TypedEnqueueRequestForObject[*corev1.Service]{}, serviceEvents)).
		WatchesRawSource(source.Kind(own, &corev1.Pod{}, r.onPods())).
		WatchesRawSource(source.Kind(own, &discovery.EndpointSlice{}, r.onSlices())).
		Watches(&nad.NetworkAttachmentDefinition{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.asking(ctx, client.MatchingFields{byNetwork: o.GetNamespace() + "/" + o.GetName()})
		}), builder.WithPredicates(predicate.AnnotationChangedPredicate{})).
		WatchesMetadata(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.asking(ctx, client.InNamespace(o.GetName()), client.MatchingFields{byNetwork: anyNetwork})
		}), builder.WithPredicates(predicate.LabelChangedPredicate{}))
	if r.PodNetworks {
		b = b.Watches(&v1alpha1.PodNetwork{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.asking(ctx, client.MatchingFields{byNetwork: o.GetName()})
		}), builder.WithPredicates(predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}))
	}
	if err := b.WithOptions(o).Complete(r); err != nil {
		return fmt.Errorf("set up the names of addresses: %w", err)
	}
	return nil
}

// asking returns Services that ask.
func (r *Reconciler) asking(ctx context.Context, where ...client.ListOption) (all []reconcile.Request) {
	for _, s := range r.services(ctx, where...) {
		all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&s)})
	}
	return all
}

// services returns Services that ask, which share memory with the cache.
func (r *Reconciler) services(ctx context.Context, where ...client.ListOption) []corev1.Service {
	var list corev1.ServiceList
	if err := r.Own.List(ctx, &list, append(where, client.UnsafeDisableDeepCopy)...); err != nil {
		r.Log.ErrorContext(ctx, "Services cannot be listed", "error", err)
	}
	return list.Items
}

// serviceEvents are those of Services that ask, or have asked.
var serviceEvents = predicate.TypedFuncs[*corev1.Service]{
	CreateFunc: func(e event.TypedCreateEvent[*corev1.Service]) bool { return names.Asks(e.Object) },
	UpdateFunc: func(e event.TypedUpdateEvent[*corev1.Service]) bool {
		return names.Asks(e.ObjectOld) || names.Asks(e.ObjectNew)
	},
	DeleteFunc: func(e event.TypedDeleteEvent[*corev1.Service]) bool { return names.Asks(e.Object) },
}

// onPods has the Services looked at, after a moment, that select a pod of which something has
// changed.
func (r *Reconciler) onPods() handler.TypedEventHandler[*corev1.Pod, reconcile.Request] {
	return handler.TypedFuncs[*corev1.Pod, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[*corev1.Pod], q queue) { r.later(ctx, q, e.Object) },
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[*corev1.Pod], q queue) { r.later(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*corev1.Pod], q queue) {
			if podChanged(e.ObjectOld, e.ObjectNew) {
				r.later(ctx, q, e.ObjectOld, e.ObjectNew)
			}
		},
	}
}

// later has the Services looked at that select one of the pods, which are one before and after a
// change.
func (r *Reconciler) later(ctx context.Context, q queue, pods ...*corev1.Pod) {
	for _, s := range r.services(ctx, client.InNamespace(pods[0].Namespace), client.MatchingFields{byNetwork: anyNetwork}) {
		asks, err := names.Read(&s)
		for _, pod := range pods {
			if err == nil && asks.Pods.Matches(labels.Set(pod.Labels)) {
				q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&s)}, batch)
				break
			}
		}
	}
}

// onSlices has the Service looked at, after a moment, whose slice is not as it was written here.
// The cache may show a slice before the write is answered: then it is no news. Its own cache has
// no slices of others.
func (r *Reconciler) onSlices() handler.TypedEventHandler[*discovery.EndpointSlice, reconcile.Request] {
	look := func(o metav1.Object, q queue) {
		q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetLabels()[discovery.LabelServiceName]}}, batch)
	}
	return handler.TypedFuncs[*discovery.EndpointSlice, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*discovery.EndpointSlice], q queue) {
			if r.tracker.ShouldSync(e.Object) {
				look(e.Object, q)
			}
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*discovery.EndpointSlice], q queue) {
			if r.tracker.ShouldSync(e.ObjectNew) {
				look(e.ObjectNew, q)
			}
			if e.ObjectOld.Labels[discovery.LabelServiceName] != e.ObjectNew.Labels[discovery.LabelServiceName] {
				r.tracker.HandleDeletion(e.ObjectOld)
				look(e.ObjectOld, q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*discovery.EndpointSlice], q queue) {
			if !r.tracker.HandleDeletion(e.Object) {
				look(e.Object, q)
			}
		},
	}
}

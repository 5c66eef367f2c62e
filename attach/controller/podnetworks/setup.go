package podnetworks

import (
	"context"
	"fmt"
	"strings"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	networks "github.com/tenure-ipam/tenure/attach/podnetwork"
	"github.com/tenure-ipam/tenure/ipam/access"
)

// workers is how many networks, and how many attachments, are looked at at once.
const workers = 4

// options are those of both controllers. What has failed is tried again after 100 ms, and then
// after twice the time before, up to 10 s.
func options() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](100*time.Millisecond, 10*time.Second),
	}
}

// Setup has the manager run r.
func (r *Networks) Setup(mgr ctrl.Manager) error {
	// Where there is no default network, no watch tells of it.
	first := source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		q.Add(named("", podnetwork.Default))
		return nil
	})
	err := ctrl.NewControllerManagedBy(mgr).Named("podnetworks").
		For(&v1alpha1.PodNetwork{}).
		Watches(&corev1.Pod{}, to(func(_ context.Context, o client.Object) []reconcile.Request {
			all, _ := references(o)
			return each("", all)
		}), builder.WithPredicates(podEvents)).
		Watches(&v1alpha1.PodNetworkAttachment{}, to(func(_ context.Context, o client.Object) []reconcile.Request {
			return each("", []string{networkOf(o)})
		}), builder.WithPredicates(attachmentEvents)).
		Watches(&nad.NetworkAttachmentDefinition{}, to(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.networksBy(ctx, definitionKey(o.GetNamespace(), o.GetName()))
		})).
		Watches(&v1alpha1.InterfaceParameters{}, to(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.networksBy(ctx, parametersKey(o.GetNamespace(), o.GetName()))
		})).
		Watches(&v1alpha1.IPPool{}, to(func(ctx context.Context, o client.Object) []reconcile.Request {
			return append(r.networksBy(ctx, poolKey(o.GetName())), r.networksBy(ctx, anyDefinition)...)
		}), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&coordination.Lease{}, to(r.allServed), builder.WithPredicates(nodeEvents)).
		WatchesRawSource(first).
		WithOptions(options()).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up PodNetworks: %w", err)
	}
	return nil
}

// Setup has the manager run r.
func (r *Attachments) Setup(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("podnetworkattachments").
		For(&v1alpha1.PodNetworkAttachment{}).
		Watches(&corev1.Pod{}, to(func(_ context.Context, o client.Object) []reconcile.Request {
			_, all := references(o)
			return each(o.GetNamespace(), all)
		}), builder.WithPredicates(podEvents)).
		Watches(&v1alpha1.PodNetwork{}, to(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.attachmentsBy(ctx, byNetwork, o.GetName())
		}), builder.WithPredicates(networkEvents)).
		Watches(&nad.NetworkAttachmentDefinition{}, to(func(ctx context.Context, o client.Object) []reconcile.Request {
			all := r.attachmentsBy(ctx, byReference, definitionKey(o.GetNamespace(), o.GetName()))
			namespace, name, ok := strings.Cut(o.GetAnnotations()[madeOf], "/")
			if ok && o.GetLabels()[madeOf] == ofAttachment { // which may be gone
				all = append(all, named(namespace, name))
			}
			return all
		})).
		Watches(&v1alpha1.InterfaceParameters{}, to(r.ofParameters)).
		WithOptions(options()).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up PodNetworkAttachments: %w", err)
	}
	return nil
}

// to has those looked at that f names.
func to(f handler.MapFunc) handler.EventHandler { return handler.EnqueueRequestsFromMapFunc(f) }

func named(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

func each(namespace string, names []string) (all []reconcile.Request) {
	for _, name := range names {
		all = append(all, named(namespace, name))
	}
	return all
}

// podEvents are those by which a pod begins or ends to refer to something.
var podEvents = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return lists(e.Object) },
	DeleteFunc: func(e event.DeleteEvent) bool { return lists(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
		return (lists(before) || lists(after)) && (before.UID != after.UID || isRunning(before) != isRunning(after) || before.Annotations[podnetwork.AnnotationNetworks] != after.Annotations[podnetwork.AnnotationNetworks])
	},
}

// lists reports whether a pod lists PodNetworks.
func lists(o client.Object) bool {
	_, ok := o.GetAnnotations()[podnetwork.AnnotationNetworks]
	return ok
}

// attachmentEvents are those by which an attachment begins or ends to refer to a network.
var attachmentEvents = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool { return networkOf(e.ObjectOld) != networkOf(e.ObjectNew) },
}

func networkOf(o client.Object) string { return o.(*v1alpha1.PodNetworkAttachment).Spec.PodNetworkName }

// networkEvents are those that matter to a network's attachments.
var networkEvents = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before := networks.Of(e.ObjectOld.(*v1alpha1.PodNetwork), access.Rule{})
		after := networks.Of(e.ObjectNew.(*v1alpha1.PodNetwork), access.Rule{})
		return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() || before.Ready != after.Ready || before.NotReady != after.NotReady
	},
}

// networksBy returns the networks that name an object.
func (c *Cluster) networksBy(ctx context.Context, key string) (all []reconcile.Request) {
	var list v1alpha1.PodNetworkList
	if err := c.Cache.List(ctx, &list, client.MatchingFields{byReference: key}, client.UnsafeDisableDeepCopy); err != nil {
		c.Log.ErrorContext(ctx, "PodNetworks cannot be listed", "error", err)
	}
	for i := range list.Items {
		all = append(all, named("", list.Items[i].Name))
	}
	return all
}

// attachmentsBy returns the attachments that have this value in an index.
func (c *Cluster) attachmentsBy(ctx context.Context, index, value string) (all []reconcile.Request) {
	var list v1alpha1.PodNetworkAttachmentList
	if err := c.Cache.List(ctx, &list, client.MatchingFields{index: value}, client.UnsafeDisableDeepCopy); err != nil {
		c.Log.ErrorContext(ctx, "PodNetworkAttachments cannot be listed", "error", err)
	}
	for i := range list.Items {
		all = append(all, named(list.Items[i].Namespace, list.Items[i].Name))
	}
	return all
}

// ofParameters maps InterfaceParameters to the attachments that name them, and to those of the
// networks that do.
func (r *Attachments) ofParameters(ctx context.Context, o client.Object) []reconcile.Request {
	key := parametersKey(o.GetNamespace(), o.GetName())
	all := r.attachmentsBy(ctx, byReference, key)
	for _, network := range r.networksBy(ctx, key) {
		all = append(all, r.attachmentsBy(ctx, byNetwork, network.Name)...)
	}
	return all
}

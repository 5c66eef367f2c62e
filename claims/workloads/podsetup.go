package workloads

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/ipam/controller/trigger"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// podAnnotations are those that are kept of a pod that asks for claims, or is a virtual machine's.
var podAnnotations = []string{workload.AnnotationClaims, workload.ClaimsBy, workload.AnnotationRequested, npwg.AnnotationNetworks}

// CondensePod drops of a pod's metadata what [PodClaims] does not read: of most pods nearly all.
func CondensePod(o *metav1.PartialObjectMetadata) {
	o.ManagedFields, o.Finalizers = nil, nil
	launcher := o.Labels[kube.LauncherLabel] == kube.Launcher
	o.Labels = nil
	if launcher {
		o.Labels = map[string]string{kube.LauncherLabel: kube.Launcher}
	}
	if !launcher && o.Annotations[workload.AnnotationClaims] == "" {
		o.Annotations, o.OwnerReferences = nil, nil
		return
	}
	few := maps.Clone(o.Annotations)
	maps.DeleteFunc(few, func(key, _ string) bool { return !slices.Contains(podAnnotations, key) })
	o.Annotations = few
}

// Setup has the manager run p with the pods of a cache, which has only their metadata.
func (p *PodClaims) Setup(mgr ctrl.Manager, pods cache.Cache) error {
	changed := predicate.TypedFuncs[*metav1.PartialObjectMetadata]{
		CreateFunc: func(e event.TypedCreateEvent[*metav1.PartialObjectMetadata]) bool {
			return len(e.Object.Annotations) > 0
		},
		DeleteFunc: func(e event.TypedDeleteEvent[*metav1.PartialObjectMetadata]) bool {
			return len(e.Object.Annotations) > 0
		},
		UpdateFunc: func(e event.TypedUpdateEvent[*metav1.PartialObjectMetadata]) bool {
			was, is := e.ObjectOld, e.ObjectNew
			return was.UID != is.UID || !maps.Equal(was.Annotations, is.Annotations) || !slices.EqualFunc(was.OwnerReferences, is.OwnerReferences, sameOwner)
		},
	}
	err := ctrl.NewControllerManagedBy(mgr).Named("pod-claims").
		WatchesRawSource(source.Kind(pods, podMetadata(), &handler.TypedEnqueueRequestForObject[*metav1.PartialObjectMetadata]{}, changed)).
		Watches(&ipamclaims.IPAMClaim{}, handler.EnqueueRequestsFromMapFunc(p.ofDeleted), builder.WithPredicates(deletions)).
		WatchesMetadata(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(p.ofNamespace), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		WithOptions(trigger.Workers(8)).
		Complete(p)
	if err != nil {
		return fmt.Errorf("set up the claims of pods: %w", err)
	}
	return nil
}

// deletions are those of claims that were made by a pod's name.
var deletions = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(event.UpdateEvent) bool { return false },
	DeleteFunc: func(e event.DeleteEvent) bool { return e.Object.GetLabels()[workload.LabelOwner] != "" },
}

// ofDeleted maps a claim that is gone to the pod that may need it.
func (p *PodClaims) ofDeleted(ctx context.Context, o client.Object) []reconcile.Request {
	return p.podsOf(ctx, o.GetNamespace(), func(pod string) bool { return strings.HasPrefix(o.GetName(), pod+".") })
}

// ofNamespace maps a namespace to its pods that ask for claims.
func (p *PodClaims) ofNamespace(ctx context.Context, o client.Object) []reconcile.Request {
	return p.podsOf(ctx, o.GetName(), func(string) bool { return true })
}

func (p *PodClaims) podsOf(ctx context.Context, namespace string, named func(pod string) bool) (all []reconcile.Request) {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	// Nothing of the list is changed: it may share memory with the cache.
	if err := p.Pods.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		p.Log.ErrorContext(ctx, "pods cannot be listed", "error", err)
	}
	for i := range list.Items {
		if pod := &list.Items[i]; len(pod.Annotations) > 0 && named(pod.Name) {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
		}
	}
	return all
}

package vifs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/ipam/controller/trigger"
)

// Indices of pods in the cache that have not ended.
const (
	// byDefinition is by the definitions that they select, and by those that may be made of these.
	byDefinition = "tenure.vif-definition"
	// byClaim is by the claims that they need, if what they select is a VIF definition.
	byClaim = "tenure.vif-claim"
)

// workers is how many pods are looked at at once. Each waits for one call at a time.
const workers = 32

// Few returns those of a pod's annotations that the Reconciler reads: none of a pod that selects
// no network.
func Few(annotations map[string]string) map[string]string {
	if annotations[npwg.AnnotationNetworks] == "" {
		return nil
	}
	few := maps.Clone(annotations)
	maps.DeleteFunc(few, func(key, _ string) bool {
		return !slices.Contains([]string{npwg.AnnotationNetworks, vif.AnnotationMap, vif.AnnotationKuryrMap, corev1.MirrorPodAnnotationKey}, key)
	})
	return few
}

// Index adds the indices that the Reconciler needs. Call it before the cache starts.
func Index(ctx context.Context, to client.FieldIndexer) error {
	err := errors.Join(
		to.IndexField(ctx, &corev1.Pod{}, byDefinition, func(o client.Object) (keys []string) {
			for _, sel := range selections(o) {
				keys = append(keys, sel.String(), podnetwork.Namespace+"/"+vif.DefinitionName(sel.Namespace, sel.Name))
			}
			return keys
		}),
		to.IndexField(ctx, &corev1.Pod{}, byClaim, func(o client.Object) (names []string) {
			for i, sel := range selections(o) {
				if sel.Claim != "" {
					names = append(names, sel.Claim)
				}
				// The definition is not known here: by its version, a reference may mean nothing.
				for _, ifName := range vif.Interfaces(sel, i) {
					names = append(names, vif.ClaimName(o.GetName(), string(o.GetUID()), ifName))
				}
			}
			return names
		}),
	)
	if err != nil {
		return fmt.Errorf("index pods by what they select: %w", err)
	}
	return nil
}

// selections returns what a pod selects that has not ended, as far as it can be read.
func selections(o client.Object) []npwg.Selection {
	pod, ok := o.(*corev1.Pod)
	if !ok || ended(pod) {
		return nil
	}
	all, _ := npwg.Parse(pod.Annotations[npwg.AnnotationNetworks], pod.Namespace, npwg.AnyVersion)
	return all[:min(len(all), vif.MaxSelections)]
}

// Setup has the manager run r.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("vifs").
		For(&corev1.Pod{}, builder.WithPredicates(podEvents)).
		Watches(&ipamclaims.IPAMClaim{}, handler.EnqueueRequestsFromMapFunc(r.ofClaim), builder.WithPredicates(claimEvents)).
		Watches(&nad.NetworkAttachmentDefinition{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.podsBy(ctx, client.MatchingFields{byDefinition: o.GetNamespace() + "/" + o.GetName()})
		})).
		WithOptions(trigger.Workers(workers)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the interfaces of pods: %w", err)
	}
	return nil
}

// podEvents are those that change what a pod needs, or what it has.
var podEvents = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return selects(e.Object) },
	DeleteFunc: func(e event.DeleteEvent) bool { return selects(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool {
		if !selects(e.ObjectOld) && !selects(e.ObjectNew) {
			return false
		}
		return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() || !maps.Equal(Few(e.ObjectOld.GetAnnotations()), Few(e.ObjectNew.GetAnnotations()))
	},
}

func selects(o client.Object) bool { return o.GetAnnotations()[npwg.AnnotationNetworks] != "" }

// claimEvents are the changes of claims that pods wait for. What is made here has no status yet.
var claimEvents = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool {
		c := e.Object.(*ipamclaims.IPAMClaim)
		return c.Labels[vif.LabelClaim] == "" || len(c.Status.IPs)+len(c.Status.Conditions) > 0
	},
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*ipamclaims.IPAMClaim), e.ObjectNew.(*ipamclaims.IPAMClaim)
		return before.UID != after.UID || !equality.Semantic.DeepEqual(before.Status, after.Status) ||
			before.Annotations[vif.AnnotationPort] != after.Annotations[vif.AnnotationPort]
	},
}

// ofClaim maps a claim to the pods that need it, whoever has made it.
func (r *Reconciler) ofClaim(ctx context.Context, o client.Object) []reconcile.Request {
	return r.podsBy(ctx, client.MatchingFields{byClaim: o.GetName()}, client.InNamespace(o.GetNamespace()))
}

// podsBy returns the pods that an index has.
func (r *Reconciler) podsBy(ctx context.Context, where ...client.ListOption) []reconcile.Request {
	return trigger.Listed(ctx, r.Cache, r.Log, &corev1.PodList{}, where...)
}

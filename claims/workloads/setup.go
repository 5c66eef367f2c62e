package workloads

import (
	"context"
	"fmt"
	"maps"
	"slices"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/ipam/controller/trigger"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// Indices of objects in the cache.
const (
	bySet        = "tenure.statefulset" // of claims, by the set that their label names
	byDefinition = "tenure.claims"      // of StatefulSets, by the definitions that they name
)

// annotations are those that are kept of a StatefulSet and its template.
var annotations = []string{workload.AnnotationClaims, workload.AnnotationRetention, workload.AnnotationRequested, workload.AnnotationTopology, npwg.AnnotationNetworks}

// Condense drops of a StatefulSet what nobody here reads: of one that asks for no claims
// nearly all.
func Condense(o *appsv1.StatefulSet) {
	template := few(o.Spec.Template.Annotations)
	spec, status := appsv1.StatefulSetSpec{}, appsv1.StatefulSetStatus{}
	if _, asks := template[workload.AnnotationClaims]; asks {
		spec = appsv1.StatefulSetSpec{Replicas: o.Spec.Replicas, Ordinals: o.Spec.Ordinals}
		spec.Template.Annotations = template
		status.Replicas = o.Status.Replicas
		o.Annotations = few(o.Annotations)
	} else {
		o.Annotations = nil
	}
	o.Labels, o.OwnerReferences, o.Spec, o.Status = nil, nil, spec, status
}

func few(all map[string]string) map[string]string {
	few := maps.Clone(all)
	maps.DeleteFunc(few, func(key, _ string) bool { return !slices.Contains(annotations, key) })
	return few
}

// CondenseClaim drops of a claim's annotations, labels and owners what nobody in the controller
// reads: it reads what the claim asks for, the label and owners of a StatefulSet's, of one by a
// pod's name and of one for an interface of a pod, the label of a VirtualMachine's that nobody
// owns, and of a claim without addresses its owner, which may ask for some.
func CondenseClaim(c *ipamclaims.IPAMClaim) {
	kept := map[string]string{}
	for _, name := range []string{workload.AnnotationRequested, workload.AnnotationTopology, vif.AnnotationPort} {
		if text, ok := c.Annotations[name]; ok {
			kept[name] = text
		}
	}
	if c.Annotations = kept; len(kept) == 0 {
		c.Annotations = nil
	}
	set, ofSet := c.Labels[workload.LabelSet]
	pod, ofPod := c.Labels[vif.LabelClaim]
	owner, byName := c.Labels[workload.LabelOwner]
	switch {
	case ofSet:
		c.Labels = map[string]string{workload.LabelSet: set}
	case byName:
		c.Labels = map[string]string{workload.LabelOwner: owner}
	case ofPod:
		c.Labels = map[string]string{vif.LabelClaim: pod}
	case ownerless(c):
		c.Labels = map[string]string{kube.VMLabel: c.Labels[kube.VMLabel]}
	default:
		c.Labels = nil
		if len(c.Status.IPs) > 0 {
			c.OwnerReferences = nil
		}
	}
}

// Index adds the indices that the reconciler needs. Call it before the cache starts.
func Index(ctx context.Context, to client.FieldIndexer) error {
	err := to.IndexField(ctx, &ipamclaims.IPAMClaim{}, bySet, func(o client.Object) []string {
		if set, ok := o.GetLabels()[workload.LabelSet]; ok {
			return []string{set}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index claims by StatefulSet: %w", err)
	}
	err = to.IndexField(ctx, &appsv1.StatefulSet{}, byDefinition, func(o client.Object) []string {
		set := o.(*appsv1.StatefulSet)
		elements, _ := workload.ParseElements(set.Spec.Template.Annotations[workload.AnnotationClaims], set.Namespace)
		var names []string
		for _, e := range elements {
			names = append(names, e.Namespace+"/"+e.Name)
		}
		return names
	})
	if err != nil {
		return fmt.Errorf("index StatefulSets by definition: %w", err)
	}
	return nil
}

// Setup has the manager run r.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	// After a gap of the watch, a set that was deleted and made again shows as one change.
	remade := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() }}
	edited := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, remade, predicate.Funcs{UpdateFunc: grown})
	err := ctrl.NewControllerManagedBy(mgr).Named("workloads").
		For(&appsv1.StatefulSet{}, builder.WithPredicates(edited)).
		Watches(&ipamclaims.IPAMClaim{}, handler.EnqueueRequestsFromMapFunc(ofClaim), builder.WithPredicates(claimEvents)).
		Watches(&nad.NetworkAttachmentDefinition{}, handler.EnqueueRequestsFromMapFunc(r.ofDefinition)).
		WithOptions(trigger.Workers(4)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the claims of StatefulSets: %w", err)
	}
	return nil
}

// grown reports whether a set may have claims for other ordinals since its pods are more or fewer.
func grown(e event.UpdateEvent) bool {
	was, is := e.ObjectOld.(*appsv1.StatefulSet), e.ObjectNew.(*appsv1.StatefulSet)
	return is.Status.Replicas != was.Status.Replicas && is.Spec.Replicas != nil && *is.Spec.Replicas > ahead
}

// claimEvents are the changes of claims that are not the reconciler's own, or matter by
// themselves.
var claimEvents = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) ||
			!slices.EqualFunc(e.ObjectOld.GetOwnerReferences(), e.ObjectNew.GetOwnerReferences(), sameOwner)
	},
}

// ofClaim maps a claim to the set that its label names.
func ofClaim(_ context.Context, o client.Object) []reconcile.Request {
	set, ok := o.GetLabels()[workload.LabelSet]
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: set}}}
}

// ofDefinition maps a definition to the sets that name it.
func (r *Reconciler) ofDefinition(ctx context.Context, o client.Object) []reconcile.Request {
	return trigger.Listed(ctx, r.Cache, r.Log, &appsv1.StatefulSetList{}, client.MatchingFields{byDefinition: o.GetNamespace() + "/" + o.GetName()})
}

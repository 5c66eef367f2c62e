package nodelabels

import (
	"context"
	"fmt"
	"maps"
	"slices"

	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/trigger"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// workers is how many registrations are written at once.
const workers = 4

// Setup has the manager run r.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	err := trigger.Add(ctrl.NewControllerManagedBy(mgr).Named("node-labels"), r.Watches()).
		WithOptions(trigger.Workers(workers)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up node labels: %w", err)
	}
	return nil
}

// Watches returns what wakes r.
func (r *Reconciler) Watches() []trigger.Watch {
	return []trigger.Watch{
		{Of: &corev1.Node{}, To: &handler.EnqueueRequestForObject{}, If: relabelled},
		{Of: &coordination.Lease{}, To: handler.EnqueueRequestsFromMapFunc(r.ofRegistration), If: untold},
		{Of: &v1alpha1.IPPool{}, To: handler.EnqueueRequestsFromMapFunc(r.everyNode), If: namesOthers},
	}
}

// relabelled lets through Nodes whose labels have changed.
var relabelled = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool { return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) },
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// untold lets through registrations that are new, or whose labels somebody has changed.
var untold = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		was, _ := kube.RegistrationOf(e.ObjectOld.(*coordination.Lease)) //nolint:forcetypeassert // the watch is of these
		is, _ := kube.RegistrationOf(e.ObjectNew.(*coordination.Lease))  //nolint:forcetypeassert // likewise
		return was.UID != is.UID || was.Labels != is.Labels
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// namesOthers lets through pools that name labels, and changes of which they name.
var namesOthers = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return len(keysOf(e.Object.(*v1alpha1.IPPool))) > 0 }, //nolint:forcetypeassert // the watch is of these
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() &&
			!slices.Equal(keysOf(e.ObjectOld.(*v1alpha1.IPPool)), keysOf(e.ObjectNew.(*v1alpha1.IPPool))) //nolint:forcetypeassert // likewise
	},
	DeleteFunc: func(e event.DeleteEvent) bool { return len(keysOf(e.Object.(*v1alpha1.IPPool))) > 0 }, //nolint:forcetypeassert // likewise
}

func (r *Reconciler) ofRegistration(_ context.Context, o client.Object) []reconcile.Request {
	if o.GetNamespace() != r.RegistrationNamespace {
		return nil
	}
	return []reconcile.Request{requestFor(o.GetName())}
}

// everyNode has all nodes looked at: which labels are told has changed.
func (r *Reconciler) everyNode(ctx context.Context, _ client.Object) []reconcile.Request {
	return trigger.Listed(ctx, r.Cache, r.Log, &corev1.NodeList{})
}

// requestFor names a node as a Node's own events do.
func requestFor(node string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: node}}
}

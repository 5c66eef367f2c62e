package deadnodes

import (
	"context"
	"fmt"

	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/trigger"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Setup has the manager run r.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("takeover").
		Watches(&coordination.Lease{}, r.planFor(func(o client.Object) string {
			if o.GetNamespace() != r.RegistrationNamespace {
				return ""
			}
			return o.GetName()
		})).
		Watches(&corev1.Node{}, r.planFor(client.Object.GetName), builder.WithPredicates(nodeChanged)).
		// A create of a dead node may come late.
		Watches(&v1alpha1.IPLease{}, r.planFor(func(o client.Object) string { return o.(*v1alpha1.IPLease).Spec.Holder.Node }), builder.WithPredicates(comes)).
		Watches(&v1alpha1.IPSubLease{}, r.planFor(func(o client.Object) string { return o.(*v1alpha1.IPSubLease).Spec.Node }), builder.WithPredicates(comes)).
		WithOptions(trigger.Workers(nodes)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up take-over: %w", err)
	}
	return nil
}

// nodeChanged lets through what may say of a Node that it is another, or off.
var nodeChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	was, is := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
	return kube.NodeOf(was) != kube.NodeOf(is)
}}

// comes lets through what is new.
var comes = predicate.Funcs{
	UpdateFunc: func(event.UpdateEvent) bool { return false },
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// planFor plans for the registration of the node that an object is about, "" for none.
func (r *Reconciler) planFor(nodeOf func(client.Object) string) handler.EventHandler {
	plan := func(ctx context.Context, o client.Object, q trigger.Queue) {
		if node := nodeOf(o); node != "" {
			r.plan(ctx, node, q)
		}
	}
	return handler.Funcs{
		CreateFunc:  func(ctx context.Context, e event.CreateEvent, q trigger.Queue) { plan(ctx, e.Object, q) },
		UpdateFunc:  func(ctx context.Context, e event.UpdateEvent, q trigger.Queue) { plan(ctx, e.ObjectNew, q) },
		DeleteFunc:  func(ctx context.Context, e event.DeleteEvent, q trigger.Queue) { plan(ctx, e.Object, q) },
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q trigger.Queue) { plan(ctx, e.Object, q) },
	}
}

// plan queues a registration, if the caches show that there may be something to do. Of a node
// that lives nothing is read. It decides nothing.
func (r *Reconciler) plan(ctx context.Context, name string, q trigger.Queue) {
	req := reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
	var obj coordination.Lease
	err := r.Cache.Get(ctx, client.ObjectKey{Namespace: r.RegistrationNamespace, Name: name}, &obj)
	if client.IgnoreNotFound(err) != nil {
		r.Log.ErrorContext(ctx, "registration not read from the cache", "node", name, "error", err)
		return
	}
	if err != nil {
		r.forget(protocol.NodeName(name))
		return
	}
	if !kube.IsRegistration(&obj) {
		return
	}
	reg, err := kube.RegistrationOf(&obj)
	reg, garbled := r.legible(ctx, reg, err)
	v := r.see(reg)
	var node corev1.Node
	if err := r.Cache.Get(ctx, client.ObjectKey{Name: name}, &node); client.IgnoreNotFound(err) != nil {
		r.Log.ErrorContext(ctx, "node not read from the cache", "node", name, "error", err)
		return
	}
	j := protocol.Judge(reg, v, kube.NodeOf(&node), r.Margin, r.Now())
	switch {
	case j.End != protocol.EvidenceNone, len(j.Dead) > 0, protocol.Abandoned(reg, kube.NodeOf(&node)) && !garbled:
		q.Add(req)
	case j.After > 0:
		q.AddAfter(req, j.After)
	case len(reg.Former) > 0:
		q.AddAfter(req, recheckAfter)
	}
}

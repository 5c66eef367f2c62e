package requests

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/trigger"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// Setup has the manager run r with this many workers, for what its watches tell and changed
// fires.
func (r *Reconciler) Setup(mgr ctrl.Manager, changed *trigger.Source, workers int) error {
	err := trigger.Add(ctrl.NewControllerManagedBy(mgr).Named("requests"), r.Watches()).
		WatchesRawSource(r.first(changed)).
		WithOptions(trigger.Workers(workers)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up requests: %w", err)
	}
	return nil
}

// Watches returns what wakes r.
func (r *Reconciler) Watches() []trigger.Watch {
	return []trigger.Watch{{Of: &v1alpha1.IPSubLease{}, To: r.arrivals(), If: predicate.NewPredicateFuncs(isRequest)}}
}

func isRequest(o client.Object) bool { return o.(*v1alpha1.IPSubLease).Spec.Request != nil }

// arrivals has requests stand in line as they come, before several workers take
// them up.
func (r *Reconciler) arrivals() handler.EventHandler {
	add := func(q trigger.Queue, o client.Object) {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q trigger.Queue) {
			if !e.IsInInitialList { // those stand in line already
				r.enter(e.Object.(*v1alpha1.IPSubLease))
			}
			add(q, e.Object)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q trigger.Queue) { add(q, e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q trigger.Queue) { add(q, e.Object) },
	}
}

// enter has a request stand in line, if it has not been answered.
func (r *Reconciler) enter(o *v1alpha1.IPSubLease) {
	sub, err := kube.SubLeaseOf(o)
	if err != nil {
		return // looking at it says so
	}
	if p := decide(seen{sub: sub}); p.ask != nil && !sub.Answered() {
		r.Broker.Ask(*p.ask)
	}
}

// first is the source that starts changed. It enters the present requests by age: another
// controller may have served them so far. Then it fires for each request that grants name.
func (r *Reconciler) first(changed *trigger.Source) source.Source {
	return changed.First(func(ctx context.Context) error {
		var list v1alpha1.IPSubLeaseList
		if err := r.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list sub-leases: %w", err)
		}
		var waiting []*v1alpha1.IPSubLease
		for i := range list.Items {
			if isRequest(&list.Items[i]) {
				waiting = append(waiting, &list.Items[i])
			}
		}
		slices.SortFunc(waiting, older)
		for _, w := range waiting {
			r.enter(w)
		}
		for _, name := range r.Broker.SubLeases() { // one that is gone sends no event
			changed.Fire("", name)
		}
		return nil
	})
}

// older orders sub-leases by creation, and by name where that is one second.
func older(a, b *v1alpha1.IPSubLease) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

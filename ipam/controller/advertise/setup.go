package advertise

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/trigger"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// byPool is the index of Nodes by the pools of which they publish something.
const byPool = "status.capacity.pool"

// Index adds the index of Nodes that the reconciler needs. Call it before the cache starts.
func Index(ctx context.Context, to client.FieldIndexer) error {
	err := to.IndexField(ctx, &corev1.Node{}, byPool, func(o client.Object) []string { return poolsOn(o.(*corev1.Node)) })
	if err != nil {
		return fmt.Errorf("index nodes: %w", err)
	}
	return nil
}

// Condense drops what nobody reads of a Node's status: what is left are what it publishes of
// pools, and whether it is ready.
func Condense(n *corev1.Node) {
	var capacity corev1.ResourceList
	for name, q := range n.Status.Capacity {
		if !strings.HasPrefix(string(name), npwg.AddressResources) {
			continue
		}
		if capacity == nil {
			capacity = corev1.ResourceList{}
		}
		capacity[name] = *resource.NewQuantity(q.Value(), resource.DecimalSI)
	}
	var conditions []corev1.NodeCondition
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	n.Status = corev1.NodeStatus{Capacity: capacity, Conditions: conditions}
}

// poolsOn returns the pools of which a Node publishes something.
func poolsOn(n *corev1.Node) (names []string) {
	for name := range n.Status.Capacity {
		if pool, ok := strings.CutPrefix(string(name), npwg.AddressResources); ok {
			names = append(names, pool)
		}
	}
	return names
}

// Setup has the manager run r. changed is fired with pools of which pods ask something.
func (r *Reconciler) Setup(mgr ctrl.Manager, changed *trigger.Source) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("advertise").
		For(&v1alpha1.IPPool{}).
		Watches(&v1alpha1.IPLease{}, r.ofLease()).
		Watches(&corev1.Node{}, r.ofNode()).
		Watches(&coordination.Lease{}, r.ofRegistration()).
		WatchesRawSource(changed).
		WithOptions(trigger.Workers(4)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up advertise: %w", err)
	}
	return nil
}

func request(pool string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: pool}}
}

// all enqueues the pools that are advertised.
func (r *Reconciler) all(q trigger.Queue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for pool := range r.looks {
		q.AddAfter(request(pool), gather)
	}
}

// ofLease enqueues the pool of a lease that comes, goes, or says something else of who has what.
func (r *Reconciler) ofLease() handler.EventHandler {
	add := func(q trigger.Queue, o client.Object) {
		if pool := o.(*v1alpha1.IPLease).Spec.Pool; r.advertised(pool) {
			q.AddAfter(request(pool), gather)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q trigger.Queue) { add(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q trigger.Queue) {
			was, is := e.ObjectOld.(*v1alpha1.IPLease), e.ObjectNew.(*v1alpha1.IPLease)
			if was.Spec.Holder != is.Spec.Holder || !slices.Equal(was.Spec.Grants, is.Spec.Grants) || len(was.Spec.Ceded) != len(is.Spec.Ceded) ||
				!equality.Semantic.DeepEqual([]*int32{was.Status.Used, was.Status.Free}, []*int32{is.Status.Used, is.Status.Free}) {
				add(q, is)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q trigger.Queue) { add(q, e.Object) },
	}
}

func (r *Reconciler) advertised(pool string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, on := r.looks[pool]
	return on
}

// ofNode enqueues the pools of which a Node publishes something else than before, and those that
// are advertised where it is decided anew whether pods may be scheduled there, and what for.
func (r *Reconciler) ofNode() handler.EventHandler {
	mention := func(q trigger.Queue, o client.Object) {
		for _, pool := range poolsOn(o.(*corev1.Node)) {
			q.Add(request(pool)) // it may be of a pool that is gone
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q trigger.Queue) {
			mention(q, e.Object)
			r.all(q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q trigger.Queue) {
			was, is := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
			if !maps.EqualFunc(was.Status.Capacity, is.Status.Capacity, resource.Quantity.Equal) {
				mention(q, was)
				mention(q, is)
			}
			if schedulable(was) != schedulable(is) || !maps.Equal(was.Labels, is.Labels) || !equality.Semantic.DeepEqual(was.Spec.Taints, is.Spec.Taints) {
				r.all(q)
			}
		},
		DeleteFunc: func(_ context.Context, _ event.DeleteEvent, q trigger.Queue) { r.all(q) },
	}
}

// ofRegistration enqueues the pools that are advertised when a node gets an agent, or has none any
// more.
func (r *Reconciler) ofRegistration() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q trigger.Queue) {
			if kube.IsRegistration(e.Object.(*coordination.Lease)) {
				r.all(q)
			}
		},
		DeleteFunc: func(_ context.Context, _ event.DeleteEvent, q trigger.Queue) { r.all(q) },
	}
}

package podnetworks

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/podnetwork"
)

// ReasonNotAttached is the reason of the Event of a pod that runs without the PodNetworks that it
// lists.
const ReasonNotAttached = "PodNetworksNotAttached"

// attachWithin is how long after a pod's start its node has to say what it was attached to.
const attachWithin = 2 * time.Minute

// Unattached finds pods that run without the PodNetworks that they list: their nodes have another
// meta-plugin than tenure-attach, or agents that serve no PodNetworks, and so nobody fails.
type Unattached struct {
	*Cluster
	Now func() time.Time
}

// Setup has the manager run r.
func (r *Unattached) Setup(mgr ctrl.Manager) error {
	ran := predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return unattached(e.Object.(*corev1.Pod)) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return unattached(e.ObjectNew.(*corev1.Pod)) && !unattached(e.ObjectOld.(*corev1.Pod))
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
	err := ctrl.NewControllerManagedBy(mgr).Named("podnetworks-unattached").
		For(&corev1.Pod{}, builder.WithPredicates(ran)).
		WithOptions(options()).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the look for pods without their PodNetworks: %w", err)
	}
	return nil
}

// unattached reports whether a pod lists PodNetworks and runs, and nobody has said what it was
// attached to.
func unattached(p *corev1.Pod) bool {
	_, told := p.Annotations[podnetwork.AnnotationIPs]
	networks, attachments := references(p)
	return len(networks)+len(attachments) > 0 && !told && p.Status.Phase == corev1.PodRunning && p.Status.StartTime != nil && p.DeletionTimestamp == nil
}

// Reconcile looks at one pod.
func (r *Unattached) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var pod corev1.Pod
	if err := r.Cache.Get(ctx, req.NamespacedName, &pod); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) //nolint:wrapcheck // says what it is about
	}
	if !unattached(&pod) {
		return reconcile.Result{}, nil
	}
	if wait := pod.Status.StartTime.Add(attachWithin).Sub(r.Now()); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	r.Events.Eventf(&pod, nil, corev1.EventTypeWarning, ReasonNotAttached, "LookForAttachments",
		"the pod runs, and node %s has not said that it is attached to the PodNetworks that it lists: does tenure-attach attach the pods of this node, and has its agent the flag --multi-network?", pod.Spec.NodeName)
	r.Log.WarnContext(ctx, "a pod runs without the PodNetworks that it lists", "pod", req.String(), "node", pod.Spec.NodeName)
	return reconcile.Result{}, nil
}

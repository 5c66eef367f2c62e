package pools

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/controller/trigger"
	"github.com/tenure-ipam/tenure/ipam/reported"
)

// Reasons of Events about definitions that cannot be used.
const (
	reasonInvalidDefinition = "InvalidDefinition"
	reasonPoolNotFound      = "PoolNotFound"
)

// settle is how long a definition must have been wrong before that is told: a manifest may have the
// pool behind the definition that names it.
const settle = 2 * time.Second

// Definitions tells of definitions that were to be Tenure's and cannot be used. It changes nothing:
// what pods and claims have by an earlier text they keep. Its requests are definitions.
type Definitions struct {
	Cache    client.Reader // of definitions and pools
	Networks *networks.Catalog
	Events   events.EventRecorder
	Log      *slog.Logger
	Now      func() time.Time

	reported reported.Faults[notice] // of definitions
}

// Reconcile looks at one definition.
func (r *Definitions) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var o nad.NetworkAttachmentDefinition
	if err := r.Cache.Get(ctx, req.NamespacedName, &o); apierrors.IsNotFound(err) {
		r.reported.Forget(req.NamespacedName)
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("read definition %s: %w", req, err)
	}
	is, err := r.look(ctx, r.Networks.Of(&o))
	if err != nil {
		return reconcile.Result{}, err
	}
	if is.reason == "" {
		r.reported.Forget(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	due, wait := r.reported.Due(req.NamespacedName, r.Now(), func(notice) time.Duration { return settle }, is)
	if len(due) > 0 {
		r.Log.WarnContext(ctx, "definition cannot be used", "definition", req.String(), "reason", is.reason, "message", is.message)
		r.Events.Eventf(&o, nil, corev1.EventTypeWarning, is.reason, "ReadDefinition", "%.1000s", is.message)
	}
	return reconcile.Result{RequeueAfter: wait}, nil
}

// look returns what is wrong with a definition; the zero notice is nothing.
func (r *Definitions) look(ctx context.Context, n networks.Network) (is notice, err error) {
	if n.Fault != "" {
		return notice{reasonInvalidDefinition, n.Fault}, nil
	}
	missing := n.Missing(func(name string) bool {
		var pool v1alpha1.IPPool
		got := r.Cache.Get(ctx, client.ObjectKey{Name: name}, &pool)
		if got != nil && !apierrors.IsNotFound(got) {
			err = fmt.Errorf("read pool %s: %w", name, got)
		}
		return got == nil
	})
	if missing == "" || err != nil {
		return notice{}, err
	}
	return notice{reasonPoolNotFound, missing}, nil
}

// Setup has the manager run r.
func (r *Definitions) Setup(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("definitions").
		For(&nad.NetworkAttachmentDefinition{}).
		Watches(&v1alpha1.IPPool{}, handler.EnqueueRequestsFromMapFunc(r.naming), builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(event.UpdateEvent) bool { return false },
		})).
		WithOptions(trigger.Workers(1)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up definitions: %w", err)
	}
	return nil
}

// naming returns a request for each definition that names the pool.
func (r *Definitions) naming(ctx context.Context, pool client.Object) (all []reconcile.Request) {
	var list nad.NetworkAttachmentDefinitionList
	if err := r.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		r.Log.ErrorContext(ctx, "definitions cannot be listed", "error", err)
		return nil
	}
	for i := range list.Items {
		o := &list.Items[i]
		if slices.Contains(r.Networks.Of(o).NamedPools(), pool.GetName()) {
			all = append(all, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.Namespace, Name: o.Name}})
		}
	}
	return all
}

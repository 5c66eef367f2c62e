package controller

import (
	"context"
	"fmt"
	"strings"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/vif"
)

// IndexVIFs adds the index that [VIFs] needs. Call it before the cache starts.
func IndexVIFs(ctx context.Context, to client.FieldIndexer) error {
	err := to.IndexField(ctx, &nad.NetworkAttachmentDefinition{}, byReference, func(o client.Object) []string {
		d := o.(*nad.NetworkAttachmentDefinition)
		if !isVIF(d) {
			return nil
		}
		n, err := vif.NetworkOf(d.Annotations)
		if err != nil { // it names nothing: an edit brings it back
			return nil
		}
		keys := []string{poolKey(n.Pool)}
		if name, named := parametersName(n.Interface); named {
			keys = append(keys, parametersKey(d.Namespace, name))
		}
		return keys
	})
	if err != nil {
		return fmt.Errorf("index definitions by what they name: %w", err)
	}
	return nil
}

// Setup has the manager run r.
func (r *VIFs) Setup(mgr ctrl.Manager) error {
	there := predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
	err := ctrl.NewControllerManagedBy(mgr).Named("vifdefinitions").
		Watches(&nad.NetworkAttachmentDefinition{}, to(ofSource)).
		Watches(&v1alpha1.InterfaceParameters{}, to(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.definitionsBy(ctx, parametersKey(o.GetNamespace(), o.GetName()))
		})).
		Watches(&v1alpha1.IPPool{}, to(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.definitionsBy(ctx, poolKey(o.GetName()))
		}), builder.WithPredicates(there)).
		WithOptions(options()).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up definitions of VIFs: %w", err)
	}
	return nil
}

// ofSource maps a definition to itself, and one that is made for VIFs to what it is made of, which
// may be gone.
func ofSource(_ context.Context, o client.Object) []reconcile.Request {
	switch o.GetLabels()[madeOf] {
	case "":
		return []reconcile.Request{named(o.GetNamespace(), o.GetName())}
	case ofVIF:
		if namespace, name, ok := strings.Cut(o.GetAnnotations()[madeOf], "/"); ok {
			return []reconcile.Request{named(namespace, name)}
		}
	}
	return nil
}

// definitionsBy returns the definitions that name an object.
func (r *VIFs) definitionsBy(ctx context.Context, key string) (all []reconcile.Request) {
	var list nad.NetworkAttachmentDefinitionList
	if err := r.Cache.List(ctx, &list, client.MatchingFields{byReference: key}, client.UnsafeDisableDeepCopy); err != nil {
		r.Log.ErrorContext(ctx, "definitions cannot be listed", "error", err)
	}
	for i := range list.Items {
		all = append(all, named(list.Items[i].Namespace, list.Items[i].Name))
	}
	return all
}

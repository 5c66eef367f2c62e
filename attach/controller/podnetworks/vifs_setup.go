package podnetworks

import (
	"context"
	"errors"
	"fmt"
	"strings"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/vif"
)

// bySubnet is the index of pools by the subnets of Neutron that they consist of.
const bySubnet = "tenure.neutron-subnet"

// IndexVIFs adds the indices that [VIFs] needs. Call it before the cache starts.
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
		if n.Subnet != nil {
			keys = []string{poolKey(vif.PoolName(d.Namespace, d.Name))}
		}
		if n.SubnetID != "" {
			keys = []string{subnetKey(n.SubnetID)}
		}
		if name, named := parametersName(n.Interface); named {
			keys = append(keys, parametersKey(d.Namespace, name))
		}
		return keys
	})
	err = errors.Join(err, to.IndexField(ctx, &v1alpha1.IPPool{}, bySubnet, func(o client.Object) []string { return subnetsOf(o.(*v1alpha1.IPPool)) }))
	if err != nil {
		return fmt.Errorf("index definitions by what they name, and pools by their subnets: %w", err)
	}
	return nil
}

func subnetKey(id string) string { return "subnet " + id }

// Setup has the manager run r.
func (r *VIFs) Setup(mgr ctrl.Manager) error {
	sources := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !equality.Semantic.DeepEqual(e.ObjectOld.(*v1alpha1.IPPool).Spec.Source, e.ObjectNew.(*v1alpha1.IPPool).Spec.Source)
	}}
	err := ctrl.NewControllerManagedBy(mgr).Named("vifdefinitions").
		Watches(&nad.NetworkAttachmentDefinition{}, to(ofSource)).
		Watches(&v1alpha1.InterfaceParameters{}, to(func(ctx context.Context, o client.Object) []reconcile.Request {
			all := r.definitionsBy(ctx, parametersKey(o.GetNamespace(), o.GetName()))
			if o.GetNamespace() == api.Namespace {
				all = append(all, r.definitionsByPools(ctx, o.GetName())...)
			}
			return all
		})).
		Watches(&v1alpha1.IPPool{}, to(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.definitionsOf(ctx, o.(*v1alpha1.IPPool))
		}), builder.WithPredicates(sources)).
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

// definitionsOf returns the definitions that name a pool, or one of its subnets.
func (r *VIFs) definitionsOf(ctx context.Context, pool *v1alpha1.IPPool) []reconcile.Request {
	all := r.definitionsBy(ctx, poolKey(pool.Name))
	for _, id := range subnetsOf(pool) {
		all = append(all, r.definitionsBy(ctx, subnetKey(id))...)
	}
	return all
}

// definitionsByPools returns the definitions of the pools that name InterfaceParameters.
func (r *VIFs) definitionsByPools(ctx context.Context, parameters string) (all []reconcile.Request) {
	var list v1alpha1.IPPoolList
	if err := r.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		r.Log.ErrorContext(ctx, "pools cannot be listed", "error", err)
	}
	for i := range list.Items {
		if n := neutronOf(&list.Items[i]); n != nil && n.InterfaceParameters == parameters {
			all = append(all, r.definitionsOf(ctx, &list.Items[i])...)
		}
	}
	return all
}

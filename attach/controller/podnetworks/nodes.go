package podnetworks

import (
	"context"
	"fmt"
	"slices"
	"strings"

	coordination "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// maxNodes is how many nodes a condition names.
const maxNodes = 5

// unserved says on which nodes pods are not attached to PodNetworks, as their registrations say;
// empty: no registration says so.
func (c *Cluster) unserved(ctx context.Context) (string, error) {
	var list coordination.LeaseList
	if err := c.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list the registrations of nodes: %w", err)
	}
	var nodes []string
	for i := range list.Items {
		if why := unservedBy(&list.Items[i]); why != "" {
			nodes = append(nodes, fmt.Sprintf("%s (%s)", list.Items[i].Name, why))
		}
	}
	slices.Sort(nodes)
	more := ""
	if n := len(nodes) - maxNodes; n > 0 {
		nodes, more = nodes[:maxNodes], fmt.Sprintf(", and %d more nodes", n)
	}
	return strings.Join(nodes, ", ") + more, nil
}

func unservedBy(o client.Object) string { return o.GetAnnotations()[api.AnnotationUnserved] }

// nodeEvents are those by which a node begins or ends to attach pods to PodNetworks.
var nodeEvents = predicate.Funcs{
	CreateFunc:  func(e event.CreateEvent) bool { return unservedBy(e.Object) != "" },
	UpdateFunc:  func(e event.UpdateEvent) bool { return unservedBy(e.ObjectOld) != unservedBy(e.ObjectNew) },
	DeleteFunc:  func(e event.DeleteEvent) bool { return unservedBy(e.Object) != "" },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// allServed returns the networks to which tenure-attach attaches pods.
func (c *Cluster) allServed(ctx context.Context, _ client.Object) (all []reconcile.Request) {
	var list v1alpha1.PodNetworkList
	if err := c.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		c.Log.ErrorContext(ctx, "PodNetworks cannot be listed", "error", err)
	}
	for i := range list.Items {
		if list.Items[i].Spec.Provider == api.Provider {
			all = append(all, named("", list.Items[i].Name))
		}
	}
	return all
}
